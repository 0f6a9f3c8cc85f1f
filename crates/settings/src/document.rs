//! One settings file: a tree of values with their positions. `merge` interprets them.

use crate::{
    markdown::{self, Subject},
    meaning::modes,
    node::{KeyPath, Node, Origin},
    problem::{Problem, Problems},
    syntax::{jsonc, yaml},
};
use domain::{limits::SETTINGS_FILE_BYTES_MAX, policy::level::Level};
use std::{fmt, sync::Arc};

/// A settings file. `Debug` shows no values, because they may be secret.
#[derive(Clone, PartialEq)]
pub struct Document {
    pub(crate) level: Level,
    pub(crate) file: Arc<str>,
    /// Its size in memory, with the texts that replaced its references.
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
    /// Parses `opencode.json` or `opencode.jsonc`: JSON with comments and trailing commas. As in OpenCode, a file that contains
    /// only white space and comments is an empty object.
    ///
    /// # Errors
    /// The text is too long, is not JSON, or exceeds a limit.
    pub fn json(level: Level, file: &str, text: &str) -> Result<Self, Problems> {
        let start = start(level, file);
        check_bytes(&start, text)?;
        let mut root = jsonc::parse(&start, text)?;
        modes::to_agents(&mut root);
        Ok(Self { level, bytes: text.len(), root, file: start.file })
    }

    /// Parses YAML.
    ///
    /// # Errors
    /// The text is too long, is not YAML, or exceeds a limit.
    pub(crate) fn yaml(level: Level, file: &str, text: &str) -> Result<Self, Problems> {
        let start = start(level, file);
        check_bytes(&start, text)?;
        Ok(Self { level, bytes: text.len(), root: yaml::parse(&start, text)?, file: start.file })
    }

    /// Parses an agent or a command in Markdown. [`markdown::subject_of`] returns the subject for a path.
    ///
    /// # Errors
    /// The text is too long, its front matter is not YAML, or exceeds a limit.
    pub fn markdown(level: Level, file: &str, subject: Subject<'_>, text: &str) -> Result<Self, Problems> {
        let start = start(level, file);
        check_bytes(&start, text)?;
        let mut root = markdown::parse(&start, subject, text)?;
        modes::to_agents(&mut root);
        Ok(Self { level, bytes: text.len(), root, file: start.file })
    }

    /// Removes every value except those at `path`, which has the keys of each depth.
    pub(crate) fn keep(&mut self, path: &[&[&str]]) {
        self.root.keep(path);
    }

    pub fn level(&self) -> Level {
        self.level
    }

    pub fn file(&self) -> &str {
        &self.file
    }
}

/// The start position of a file.
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
