//! Builds the tree of values of one file and enforces the bounds that apply to every syntax.

use crate::{
    node::{Content, KeyPath, Member, Node, Origin},
    problem::{Problem, Problems, shown_text},
};
use domain::limits::SETTINGS_VALUES_MAX;
use std::sync::Arc;

/// Bytes of one settings key; permission patterns are keys.
const SETTINGS_KEY_BYTES_MAX: usize = domain::limits::PERMISSION_RULE_BYTES_MAX;

/// The shared state of all values of one file: their number, and the mistakes in them.
pub(crate) struct Builder {
    values: usize,
    pub(crate) problems: Problems,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self { values: 0, problems: Problems::default() }
    }

    /// Counts one more value. Returns `false` if there are too many, and reports that once.
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

    /// Creates a string value. Refuses NUL, which Postgres cannot store and no setting needs.
    pub(crate) fn text(&mut self, origin: Origin, text: String) -> Node {
        if text.contains('\0') {
            self.complain(&origin, "a text without NUL".to_owned(), shown_text(&text));
        }
        Node::text(origin, text)
    }

    /// Adds a member to an object. Refuses a repeated key, because it is unclear which value counts.
    pub(crate) fn insert(&mut self, object: &mut Object, entry: Member) {
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

#[derive(Default)]
pub(crate) struct Object {
    keys: std::collections::HashSet<Arc<str>>,
    entries: Vec<Member>,
}

impl Object {
    pub(crate) fn node(self, origin: Origin) -> Node {
        Node { origin, value: Content::Map(self.entries) }
    }
}
