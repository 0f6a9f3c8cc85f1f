//! `edit`: replaces a text in a file. Models quote imprecisely: `flotilla-convert` finds what they meant, in a process of its own,
//! because the search takes time that grows with file and quote.

use super::{
    diff::{compare, file_change, proposed_change},
    write::{load, save},
};
use crate::tools::{
    context::CallContext,
    outcome::{Output, ToolError, conversion_error},
    path::relative,
    spec::tool_spec,
};
use convert_client::{
    reply::Change,
    request::{self, FileEdits, FileVersions, Occurrences},
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
        return change(ctx, path, vec![edit]).await;
    }
    let result = save(ctx, &path, edit.new_string.clone().into_bytes(), "absent".to_owned()).await;
    result.map_err(|error| match error {
        ToolError::Model(_) => ToolError::Model(format!(
            "{path} exists. An empty oldString only creates new files: quote the text to replace."
        )),
        other => other,
    })?;
    let versions = FileVersions { path: path.clone(), before: String::new(), after: edit.new_string };
    let metadata = file_change(&path, compare(ctx, versions).await);
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
        let versions = FileVersions { path: path.clone(), before: String::new(), after: edit.new_string };
        return Ok(proposed_change(&path, compare(ctx, versions).await));
    }
    preview_change(ctx, &path, vec![edit]).await
}

/// The change that the arguments of a call tell, without the file.
pub(super) fn written(input: Input) -> Vec<FileVersions> {
    written_edits(&input.file_path, vec![input.edit])
}

/// The change that the arguments of edits of one file tell, without the file.
pub(super) fn written_edits(path: &str, edits: Vec<Edit>) -> Vec<FileVersions> {
    let versions =
        |edit: Edit| FileVersions { path: path.to_owned(), before: edit.old_string, after: edit.new_string };
    edits.into_iter().map(versions).collect()
}

/// Describes the change that edits of one file would make.
pub(super) async fn preview_change(
    ctx: &CallContext,
    path: &str,
    edits: Vec<Edit>,
) -> Result<Map<String, Value>, ToolError> {
    let Plan { change, .. } = plan(ctx, path, edits).await?;
    Ok(proposed_change(path, change.diff))
}

/// A change of one file that was read.
struct Plan {
    change: Change,
    /// The hash of the file before.
    sha256: String,
}

async fn plan(ctx: &CallContext, path: &str, edits: Vec<Edit>) -> Result<Plan, ToolError> {
    let file = load(ctx, path).await?;
    let before = String::from_utf8(file.data)
        .map_err(|_| ToolError::Model(format!("{path} is not UTF-8 text and cannot be edited")))?;
    let edits = edits.into_iter().map(to_request).collect();
    let edits = FileEdits { path: path.to_owned(), before, edits };
    let change = ctx.converter().edits(edits).await.map_err(|error| conversion_error(&error))?;
    Ok(Plan { change: change.map_err(ToolError::Model)?, sha256: file.sha256 })
}

fn to_request(edit: Edit) -> request::Edit {
    let which = if edit.replace_all { Occurrences::All } else { Occurrences::One };
    request::Edit { old: edit.old_string, new: edit.new_string, which }
}

/// Applies edits to one file, all or none.
pub(super) async fn change(ctx: &CallContext, path: String, edits: Vec<Edit>) -> Result<Output, ToolError> {
    let mut text = match edits.len() {
        1 => "The edit was made.".to_owned(),
        count => format!("All {count} edits were made."),
    };
    let Plan { change, sha256 } = plan(ctx, &path, edits).await?;
    text.push_str(&inexact_note(&change.inexact_lines));
    // The write fails if the file has changed since it was read, so no other change is lost.
    save(ctx, &path, change.after.into_bytes(), sha256).await?;
    let metadata = file_change(&path, change.diff);
    Ok(Output { title: relative(&path), text, metadata, ..Output::default() })
}

/// Tells the model where its quotes did not match exactly. Empty if all of them did.
pub(super) fn inexact_note(lines: &[usize]) -> String {
    let numbers = lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match lines.len() {
        0 => String::new(),
        1 => format!(" The quote matched only inexactly, at line {numbers}: read the result."),
        _ => format!(" Quotes matched only inexactly, at lines {numbers}: read the result."),
    }
}
