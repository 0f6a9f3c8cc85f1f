//! Replies of `flotilla-convert`.

use crate::bounds::PATTERN_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// The first byte of the output, before the reply. The program writes it when it has read its whole request, before it looks into it: if a
/// process ends without it, the content is not the reason, and another process may get the request. Almost no reply begins with this
/// byte, so a service of a version without the mark refuses it.
pub const READ_MARK: u8 = 0xff;

/// The commands that a shell command line would run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Commands {
    /// Each simple command: its words with one space between them.
    pub patterns: Vec<String>,
    /// The patterns that an answer "always" would allow: for each command its name, with sub-commands, and ` *`.
    pub always: Vec<String>,
    /// Path arguments of commands that change or show files.
    pub paths: Vec<String>,
    /// Whether a part of it depends on the shell's state, or cannot be parsed.
    pub is_unclear: bool,
}

impl Commands {
    /// A command line that could not be read.
    pub fn unclear(text: &str) -> Self {
        let pattern = domain::text::head(text.trim(), PATTERN_BYTES_MAX).to_owned();
        Self { patterns: vec![pattern], is_unclear: true, ..Self::default() }
    }
}

/// The new content of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub after: String,
    /// The lines that a quote matched inexactly, from 1: the first line of each such place in the new content.
    pub inexact_lines: Vec<usize>,
    /// The difference for people.
    pub diff: Diff,
}

/// The difference between two versions of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Diff {
    /// A unified diff, cut at `DIFF_BYTES_MAX`.
    pub text: String,
    /// Lines that were added.
    pub additions: u64,
    /// Lines that were deleted.
    pub deletions: u64,
}

/// The result of a check against a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchemaVerdict {
    /// The schema can be used, and the value matches it.
    Match,
    /// The value does not match: its problems with their locations, in one line.
    Mismatch(String),
    /// The schema cannot be used: why.
    Unusable(String),
}
