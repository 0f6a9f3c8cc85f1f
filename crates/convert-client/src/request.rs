//! Requests to `flotilla-convert`: one for each process.

use crate::patch::Hunk;
use serde::{Deserialize, Serialize};

/// A request with its content.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Converts an HTML page; the reply is an `Option<String>`, `None` if the page cannot be laid out.
    Page(Page),
    /// Reads shell command lines; the reply is a `Vec<Commands>`, one for each line.
    Commands(Vec<String>),
    /// Edits a file; the reply is a `Result<Change, String>`, its error a sentence for the model.
    Edits(FileEdits),
    /// Applies the hunks of a patch to a file; the reply is a `Result<Change, String>`, its error a sentence for the model.
    Patch(FilePatch),
    /// Compares two versions of a file; the reply is a `Diff`.
    Diff(FileVersions),
    /// Checks a schema and perhaps a value; the reply is a `SchemaVerdict`.
    Schema(SchemaCheck),
}

/// A page of the web.
#[derive(Debug, Serialize, Deserialize)]
pub struct Page {
    pub html: String,
    pub form: PageForm,
}

/// The form that a page becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageForm {
    Markdown,
    /// The text alone.
    Text,
}

/// Edits of one file: all or none.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileEdits {
    /// The path that the diff shows.
    pub path: String,
    pub before: String,
    /// Each edit sees the result of the one before it.
    pub edits: Vec<Edit>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Edit {
    /// The text to replace, as the model quotes it.
    pub old: String,
    pub new: String,
    pub which: Occurrences,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occurrences {
    /// The only one.
    One,
    All,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct FilePatch {
    /// The path that the diff and the errors show.
    pub path: String,
    pub before: String,
    /// In the order of the file.
    pub hunks: Vec<Hunk>,
}

/// Two versions of one file.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileVersions {
    /// The path that the diff shows.
    pub path: String,
    /// The content before.
    pub before: String,
    pub after: String,
}

/// A JSON schema, and a value that must match it.
#[derive(Debug, Serialize, Deserialize)]
pub struct SchemaCheck {
    /// JSON.
    pub schema: String,
    /// JSON; `None`: only the schema is checked.
    pub value: Option<String>,
}
