//! One file of settings: a tree whose values know where they stand. Its meaning is read when it is merged.

use crate::{
    jsonc,
    markdown::{self, Kind},
    node::{Content, Entry, KeyPath, Node, Origin},
    problem::{Problem, Problems, shown_text},
};
use domain::{
    level::Level,
    limits::{SETTINGS_FILE_BYTES_MAX, SETTINGS_KEY_BYTES_MAX, SETTINGS_VALUES_MAX},
};
use std::{fmt, sync::Arc};

/// A file of settings. `Debug` does not show its values: they may be secret.
#[derive(Clone, PartialEq)]
pub struct Document {
    pub(crate) level: Level,
    pub(crate) file: Arc<str>,
    /// What it costs to keep, what replaced its references included.
    pub(crate) bytes: usize,
    pub(crate) root: Node,
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, file, bytes, root: _ } = self;
        write!(f, "Document({level:?}, {file}, {bytes} bytes)")
    }
}

impl Document {
    /// Reads `opencode.json` or `opencode.jsonc`: JSON with comments and trailing commas. Nothing but white space and
    /// comments counts as an empty object, as it does for OpenCode.
    ///
    /// # Errors
    /// The text is too long, no JSON, or exceeds a bound of `SETTINGS_*`.
    pub fn json(level: Level, file: &str, text: &str) -> Result<Self, Problems> {
        let start = start(level, file);
        check_bytes(&start, text)?;
        Ok(Self { level, bytes: text.len(), root: jsonc::parse(&start, text)?, file: start.file })
    }

    /// Reads an agent or a command in Markdown. [`markdown::kind_of`] gives `kind` and `name` for a path.
    ///
    /// # Errors
    /// The text is too long, its front matter is not understood, or exceeds a bound of `SETTINGS_*`.
    pub fn markdown(level: Level, file: &str, named: (Kind, &str), text: &str) -> Result<Self, Problems> {
        let start = start(level, file);
        check_bytes(&start, text)?;
        Ok(Self { level, bytes: text.len(), root: markdown::parse(&start, named, text)?, file: start.file })
    }

    /// Who made it.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Its name.
    pub fn file(&self) -> &str {
        &self.file
    }
}

/// The beginning of a file.
fn start(level: Level, file: &str) -> Origin {
    Origin { level, file: Arc::from(file), line: 1, column: 1 }
}

fn check_bytes(start: &Origin, text: &str) -> Result<(), Problems> {
    if text.len() <= SETTINGS_FILE_BYTES_MAX {
        return Ok(());
    }
    Err(Problems::one(Problem {
        origin: start.clone(),
        path: KeyPath::default(),
        expected: format!("at most {SETTINGS_FILE_BYTES_MAX} bytes"),
        found: format!("{}", text.len()),
    }))
}

/// Puts the values of one file together and keeps the bounds that any syntax needs.
pub(crate) struct Builder {
    values: usize,
    pub(crate) problems: Problems,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self { values: 0, problems: Problems::default() }
    }

    /// Counts one more value; false once there are too many, and then said once.
    pub(crate) fn count(&mut self, origin: &Origin) -> bool {
        self.values += 1;
        if self.values == SETTINGS_VALUES_MAX + 1 {
            self.complain(origin, format!("at most {SETTINGS_VALUES_MAX} values"), "more".to_owned());
        }
        self.values <= SETTINGS_VALUES_MAX
    }

    pub(crate) fn complain(&mut self, origin: &Origin, expected: String, found: String) {
        let path = KeyPath::default();
        self.problems.push(Problem { origin: origin.clone(), path, expected, found });
    }

    /// A text. Postgres cannot hold NUL, and no setting needs it.
    pub(crate) fn text(&mut self, origin: Origin, text: String) -> Node {
        if text.contains('\0') {
            self.complain(&origin, "a text without NUL".to_owned(), shown_text(&text));
        }
        Node::text(origin, text)
    }

    /// Adds a member to an object; a key that comes twice is refused, because nobody can tell which one was meant.
    pub(crate) fn insert(&mut self, object: &mut Object, entry: Entry) {
        if entry.key.len() > SETTINGS_KEY_BYTES_MAX || entry.key.contains('\0') {
            let expected = format!("a key of at most {SETTINGS_KEY_BYTES_MAX} bytes, without NUL");
            self.complain(&entry.origin, expected, shown_text(&entry.key));
        } else if !object.keys.insert(Arc::clone(&entry.key)) {
            self.complain(&entry.origin, "each key once".to_owned(), shown_text(&entry.key));
        } else {
            object.entries.push(entry);
        }
    }
}

/// An object that is being put together.
#[derive(Default)]
pub(crate) struct Object {
    keys: std::collections::HashSet<Arc<str>>,
    entries: Vec<Entry>,
}

impl Object {
    pub(crate) fn node(self, origin: Origin) -> Node {
        Node { origin, value: Content::Map(self.entries) }
    }
}
