//! Edits of a file. Models quote imprecisely, so `find` tries inexact matches after the exact one.

mod find;

use crate::lines::{in_unix_lines, unix};
use convert_client::request::Edit;

/// Returns the file's new content. Keeps its line endings and byte order mark.
///
/// # Errors
/// A sentence for the model.
pub(crate) fn apply(before: &str, edits: &[Edit]) -> Result<String, String> {
    in_unix_lines(before, |content| {
        let mut content = content.to_owned();
        for (number, edit) in (1..).zip(edits) {
            content = one(&content, edit).map_err(|error| match edits.len() {
                1 => error,
                _ => format!("Edit {number}: {error} No edit was made."),
            })?;
        }
        Ok(content)
    })
}

fn one(content: &str, edit: &Edit) -> Result<String, String> {
    if edit.old == edit.new {
        return Err("oldString and newString are the same: nothing to change.".to_owned());
    }
    find::replace(content, &unix(&edit.old), &unix(&edit.new), edit.which)
}

#[cfg(test)]
mod tests;
