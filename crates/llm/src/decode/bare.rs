//! Text of a stream that belongs to no event. Some servers report a late error there, as JSON on one line or on several.

use crate::error::Error;
use crate::protocols::classify;
use domain::limits::MODEL_ERROR_BODY_BYTES_MAX;

/// The bare lines that may become an error.
#[derive(Debug, Default)]
pub(super) struct BareText {
    lines: String,
    /// Bytes of all bare lines of the answer. An answer with more than [`MODEL_ERROR_BODY_BYTES_MAX`] of them is not read
    /// for errors any further.
    bytes: usize,
}

impl BareText {
    /// Adds a line. Returns the error that the lines report once they are complete.
    pub(super) fn push(&mut self, line: &str) -> Option<Error> {
        self.bytes = self.bytes.saturating_add(line.len());
        let is_start = line.starts_with(['{', '[']);
        if self.bytes > MODEL_ERROR_BODY_BYTES_MAX || (self.lines.is_empty() && !is_start) {
            return None;
        }
        self.lines.push_str(line);
        self.lines.push('\n');
        // Other lines cannot end a JSON document as servers print it.
        if !(is_start || line.starts_with(['}', ']'])) {
            return None;
        }
        let outcome = serde_json::from_str(&self.lines);
        if !outcome.as_ref().is_err_and(serde_json::Error::is_eof) {
            self.lines.clear();
        }
        classify::find_error(&outcome.ok()?)
    }
}
