//! Mistakes in settings: position, key, expected value and found value. A file is read to its end, so people see all its
//! mistakes.

use crate::node::{Content, KeyPath, Node, Origin};
use domain::{limits::SETTINGS_PROBLEMS_MAX, text};
use std::fmt;

/// Bytes of a wrong value that a mistake shows. The rest is cut.
const SETTINGS_SHOWN_BYTES_MAX: usize = 60;

/// One mistake.
///
/// `opencode.json:3:12: agent.build.steps: expected a whole number from 1 to 4294967295, found "many"`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub origin: Origin,
    /// The path of the value; empty for the whole file.
    pub path: KeyPath,
    /// A description of valid values; empty if `found` says what is wrong.
    pub expected: String,
    /// The found value, shortened, with references as they were written.
    pub found: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, path, expected, found } = self;
        write!(f, "{origin}: ")?;
        if !path.0.is_empty() {
            write!(f, "{path}: ")?;
        }
        if !expected.is_empty() {
            write!(f, "expected {expected}, ")?;
        }
        write!(f, "found {found}")
    }
}

/// The mistakes in settings, in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Problems {
    /// At most [`SETTINGS_PROBLEMS_MAX`].
    pub list: Vec<Problem>,
    /// The number of further ones.
    pub more: usize,
}

impl Problems {
    pub(crate) fn one(problem: Problem) -> Self {
        Self { list: vec![problem], more: 0 }
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        if self.list.len() < SETTINGS_PROBLEMS_MAX { self.list.push(problem) } else { self.more += 1 }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.more += other.more;
        other.list.into_iter().for_each(|problem| self.push(problem));
    }

    /// `value`, unless there are problems.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.list.is_empty() { Ok(value) } else { Err(self) }
    }

    fn lines(&self) -> String {
        let mut lines: Vec<_> = self.list.iter().map(ToString::to_string).collect();
        if self.more > 0 {
            lines.push(format!("and {} more", self.more));
        }
        lines.join("\n")
    }
}

/// A value for people: short, with references as they were written.
pub(crate) fn shown(node: &Node) -> String {
    match &node.value {
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "an object".to_owned(),
        Content::Text { text, written } => shown_text(written.as_deref().unwrap_or(text)),
        Content::Null | Content::Bool(_) | Content::Number(_) => node.to_json().to_string(),
    }
}

/// A text for people: short, in quotes.
pub(crate) fn shown_text(value: &str) -> String {
    let head = text::head(value, SETTINGS_SHOWN_BYTES_MAX);
    let end = if head.len() < value.len() { " …" } else { "" };
    format!("{}{end}", serde_json::Value::from(head))
}
