//! `read`: shows lines of a file, an image, a PDF document, or the entries of a directory.

use crate::{
    process::sandbox::has_code,
    repository::guidance::instruction,
    tools::{
        context::CallContext,
        media,
        outcome::{Output, TRUNCATED, ToolError, sandbox_error},
        path,
        spec::tool_spec,
    },
};
use domain::policy::tool;
use domain::{
    conversation::part::{Part, ToolState},
    limits,
    session::WORKSPACE,
    text::without_nul,
};
use rpc::v1::{self, ErrorCode, FileKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::PoisonError;

/// Bytes of the instructions that accompany one file that a tool reads: together with the file they stay below the limit
/// of one tool output. Of longer ones the model reads only where they are.
const GUIDANCE_REMINDER_BYTES_MAX: usize = 8 * 1024;

/// The arguments of a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    file_path: String,
    offset: Option<u64>,
    limit: Option<u32>,
}

/// Maximum characters shown of one line. The rest is cut.
const LINE_CHARS_MAX: u32 = 2_000;

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "read",
        "Shows a text file with line numbers (at most 2000 lines and 50 KB at once), a picture (PNG, JPEG, GIF, WebP), a \
         PDF document, or the entries of a directory. Use offset and limit for the rest of a long text file.",
        json!({
            "type": "object",
            "properties": {
                "filePath": {"type": "string", "minLength": 1, "description": "Absolute path"},
                "offset": {"type": "integer", "minimum": 0, "description": "First line to show, from 1"},
                "limit": {"type": "integer", "minimum": 1, "maximum": limits::TOOL_OUTPUT_LINES_MAX, "description": "Number of lines"}
            },
            "required": ["filePath"],
            "additionalProperties": false
        }),
    )
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let mut output = read(ctx, &input).await?;
    let reminders = reminders(ctx, &input.file_path).await;
    if !reminders.is_empty() {
        let paths = reminders.iter().map(|(path, _)| path.as_str()).collect();
        output.metadata.insert(LOADED.to_owned(), paths);
        output.text.extend(reminders.iter().map(|(_, reminder)| format!("\n\n{reminder}")));
    }
    Ok(output)
}

async fn read(ctx: &CallContext, input: &Input) -> Result<Output, ToolError> {
    let first_line = input.offset.unwrap_or(1).max(1);
    let request = v1::ReadLinesRequest {
        fence: ctx.identity.fence(),
        path: input.file_path.clone(),
        first_line,
        lines_max: input.limit.unwrap_or(u32::MAX).min(u32::try_from(ctx.bounds.lines).unwrap_or(u32::MAX)),
        line_chars_max: LINE_CHARS_MAX,
        // Leaves room for the line numbers within the model's limit. Zero would mean the default.
        bytes_max: u32::try_from((ctx.bounds.bytes * 8 / 10).max(1)).unwrap_or(u32::MAX),
    };
    let read = ctx.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.read_lines(request).await }
    });
    let read = match read.await {
        Ok(read) => read,
        Err(status) if has_code(&status, ErrorCode::FileIsBinary) => {
            return shown_media(ctx, &input.file_path).await;
        }
        Err(status) => return Err(sandbox_error(&status)),
    };
    let text = match read.kind() {
        // Old PDF documents consist of text characters only.
        FileKind::Text if first_line == 1 && is_document(&read.lines) => {
            return shown_media(ctx, &input.file_path).await;
        }
        FileKind::Text => numbered(&read, first_line),
        FileKind::Directory => read.lines.join("\n"),
        FileKind::Binary | FileKind::Other | FileKind::Unspecified => {
            return Err(ToolError::Model(format!("{} is not a text file", input.file_path)));
        }
    };
    let preview = read.lines.iter().take(PREVIEW_LINES).map(String::as_str).collect::<Vec<_>>().join("\n");
    let mut metadata = preview_metadata(&preview);
    metadata.insert(TRUNCATED.to_owned(), read.more.into());
    Ok(Output { title: path::relative(&input.file_path), text, metadata, ..Output::default() })
}

/// Reads a picture or a document.
async fn shown_media(ctx: &CallContext, path: &str) -> Result<Output, ToolError> {
    let mut output = media::read(ctx, path).await?;
    output.metadata.extend(preview_metadata(&output.text));
    Ok(output)
}

/// The metadata of every answer: what clients show of it, and the instruction files that come with it.
fn preview_metadata(preview: &str) -> Map<String, Value> {
    Map::from_iter([
        ("preview".to_owned(), without_nul(preview).into()),
        (LOADED.to_owned(), Value::Array(vec![])),
    ])
}

/// The note below lines with bytes that are no text: the model must not take them for characters of the file.
const NOT_UTF8: &str = "\n(Where � stands, the file may have bytes that are not UTF-8, for example Latin-1. `edit` does not change such a file: convert it \
                        first, or change it with a command.)\n";

/// Lines that clients show of a file, as in OpenCode.
const PREVIEW_LINES: usize = 20;

/// Whether the lines are those of a PDF document that consists of text characters only, as old ones do.
pub(crate) fn is_document(lines: &[String]) -> bool {
    lines
        .first()
        .is_some_and(|line| domain::conversation::media::of_bytes(line.as_bytes()) == Some("application/pdf"))
}

/// The metadata key for the instruction files of an answer.
const LOADED: &str = "loaded";

/// The instruction files of an answer of this tool.
pub(crate) fn loaded_instructions(part: &Part) -> Vec<String> {
    let metadata = part.body.as_tool().and_then(|tool| match &tool.state {
        ToolState::Completed { metadata, .. } => metadata.get(LOADED),
        ToolState::Pending { .. } | ToolState::Running { .. } | ToolState::Error { .. } => None,
    });
    let paths = metadata.and_then(Value::as_array).into_iter().flatten();
    paths.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

/// The instructions of the directories above a file that the model has not seen yet: path and text. Empty if they
/// cannot be read, because the model gets the file in any case.
async fn reminders(ctx: &CallContext, path: &str) -> Vec<(String, String)> {
    let file = path::absolute(path);
    let Some((directory, _)) =
        file.strip_prefix(&format!("{WORKSPACE}/")).and_then(|path| path.rsplit_once('/'))
    else {
        return vec![];
    };
    let request = v1::ReadGuidanceRequest {
        fence: ctx.identity.fence(),
        directory: directory.to_owned(),
        only_levels: true,
        ..Default::default()
    };
    let Ok(found) = ctx.deps.sandbox.client().read_guidance(request).await else { return vec![] };
    let mut seen = ctx.seen_instructions.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut reminders, mut left) = (vec![], GUIDANCE_REMINDER_BYTES_MAX);
    // The nearest first, because it is the most specific for the file.
    for level in found.into_inner().instructions.into_iter().rev() {
        let is_itself =
            file.strip_prefix(WORKSPACE).is_some_and(|path| path.trim_start_matches('/') == level.path);
        if !seen.insert(level.path.clone()) || is_itself {
            continue;
        }
        let text = instruction(&level);
        let text = if text.len() <= left {
            left -= text.len();
            text
        } else {
            format!("{WORKSPACE}/{} has instructions for this file: read them.", level.path)
        };
        reminders.push((level.path, format!("<system-reminder>\n{text}\n</system-reminder>")));
    }
    reminders
}

fn numbered(read: &v1::ReadLinesResponse, first_line: u64) -> String {
    if read.lines.is_empty() {
        return if first_line == 1 {
            "(The file is empty.)".to_owned()
        } else {
            format!("(There is no line {first_line}.)")
        };
    }
    let mut text = String::new();
    for (number, line) in (first_line..).zip(&read.lines) {
        text.push_str(&format!("{number}: {line}\n"));
    }
    if read.lines.iter().any(|line| line.contains(char::REPLACEMENT_CHARACTER)) {
        text.push_str(NOT_UTF8);
    }
    if read.more {
        let next = first_line + read.lines.len() as u64;
        text.push_str(&format!("\n(There is more: continue with offset {next}.)"));
    }
    text
}
