//! `edit`: replaces a text in a file. Models quote imprecisely, so `edit::find` tries inexact matches after the exact
//! one.

mod find;

use super::{
    diff::{file_change, proposed_change},
    path::relative,
    write::{load, save},
};
use crate::tools::{
    context::CallContext,
    outcome::{Output, ToolError},
    spec::tool_spec,
};
use domain::policy::tool;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments of a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    file_path: String,
    #[serde(flatten)]
    edit: Edit,
}

/// One replacement.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Edit {
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "edit",
        "Replaces text in a file. oldString must be found exactly once unless replaceAll is set: quote enough lines \
         around the change, exactly as read shows them but without the line numbers. An empty oldString creates a new file.",
        json!({
            "type": "object",
            "properties": {
                "filePath": {"type": "string", "minLength": 1, "description": "Absolute path"},
                "oldString": {"type": "string", "description": "The text to replace"},
                "newString": {"type": "string", "description": "The replacement text"},
                "replaceAll": {"type": "boolean", "description": "Replace every occurrence"}
            },
            "required": ["filePath", "oldString", "newString"],
            "additionalProperties": false
        }),
    )
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let Input { file_path: path, edit } = input;
    if !edit.old_string.is_empty() {
        return change(ctx, path, &[edit]).await;
    }
    let result = save(ctx, &path, edit.new_string.clone().into_bytes(), "absent".to_owned()).await;
    result.map_err(|error| match error {
        ToolError::Model(_) => ToolError::Model(format!(
            "{path} exists. An empty oldString only creates new files: quote the text to replace."
        )),
        other => other,
    })?;
    let metadata = file_change(&path, "", &edit.new_string);
    Ok(Output {
        title: relative(&path),
        text: "The file was created.".to_owned(),
        metadata,
        ..Output::default()
    })
}

/// Describes the change that a call would make, for the person whom the session asks for permission.
pub(crate) async fn preview(ctx: &CallContext, input: Input) -> Result<Map<String, Value>, ToolError> {
    let Input { file_path: path, edit } = input;
    if edit.old_string.is_empty() {
        return Ok(proposed_change(&path, "", &edit.new_string));
    }
    preview_change(ctx, &path, &[edit]).await
}

/// Describes the change that edits of one file would make.
pub(super) async fn preview_change(
    ctx: &CallContext,
    path: &str,
    edits: &[Edit],
) -> Result<Map<String, Value>, ToolError> {
    let Plan { before, after, .. } = plan(ctx, path, edits).await?;
    Ok(proposed_change(path, &before, &after))
}

/// A change of one file that was read.
struct Plan {
    before: String,
    after: String,
    /// The hash of the file before.
    sha256: String,
}

async fn plan(ctx: &CallContext, path: &str, edits: &[Edit]) -> Result<Plan, ToolError> {
    let file = load(ctx, path).await?;
    let before = String::from_utf8(file.data)
        .map_err(|_| ToolError::Model(format!("{path} is not UTF-8 text and cannot be edited")))?;
    let after = edited(&before, edits).map_err(ToolError::Model)?;
    Ok(Plan { before, after, sha256: file.sha256 })
}

/// Applies edits to one file, all or none.
pub(super) async fn change(ctx: &CallContext, path: String, edits: &[Edit]) -> Result<Output, ToolError> {
    let Plan { before, after, sha256 } = plan(ctx, &path, edits).await?;
    // The write fails if the file has changed since it was read, so no other change is lost.
    save(ctx, &path, after.clone().into_bytes(), sha256).await?;
    let metadata = file_change(&path, &before, &after);
    let text = match edits.len() {
        1 => "The edit was made.".to_owned(),
        count => format!("All {count} edits were made."),
    };
    Ok(Output { title: relative(&path), text, metadata, ..Output::default() })
}

/// Returns the file's new content. Keeps its line endings and byte order mark.
fn edited(before: &str, edits: &[Edit]) -> Result<String, String> {
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
    if edit.old_string == edit.new_string {
        return Err("oldString and newString are the same: nothing to change.".to_owned());
    }
    let all = if edit.replace_all { find::Occurrences::All } else { find::Occurrences::One };
    find::replace(content, &unix(&edit.old_string), &unix(&edit.new_string), all)
}

/// Edits a text in a form with Unix line endings and without a byte order mark, and then restores both.
pub(super) fn in_unix_lines(
    before: &str,
    change: impl FnOnce(&str) -> Result<String, String>,
) -> Result<String, String> {
    let (mark, body) = before.strip_prefix('\u{feff}').map_or(("", before), |body| ("\u{feff}", body));
    let crlf = body.contains("\r\n");
    let after = if crlf { change(&unix(body))?.replace('\n', "\r\n") } else { change(body)? };
    Ok(format!("{mark}{after}"))
}

fn unix(text: &str) -> String {
    text.replace("\r\n", "\n")
}

#[cfg(test)]
mod tests;
