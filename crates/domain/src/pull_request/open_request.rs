//! Requests that are being worked on.

use super::request::CommentId;
use crate::text::head;
use serde::{Deserialize, Serialize};

/// Bytes of the first line of a request that the state shows.
const LINE_BYTES_MAX: usize = 200;

/// A request that is being worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    pub comment: CommentId,
    pub author: String,
    /// Its first line.
    pub line: String,
    /// Whether the author sees that it was read.
    #[serde(default)]
    pub(super) is_acknowledged: bool,
}

impl OpenRequest {
    pub fn new(comment: CommentId, author: &str, task: &str) -> Self {
        let line = task.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
        Self {
            comment,
            author: author.to_owned(),
            line: head(line, LINE_BYTES_MAX).to_owned(),
            is_acknowledged: false,
        }
    }
}
