//! The parts of a prompt: what may be in them, and what the model is told of them in words of ours. Files of the workspace
//! are read by the worker, which can.

use super::check_model;
use crate::state::State;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    command::{self, CommandRequest},
    ids::{MessageId, PartId, SessionId},
    limits, media,
    part::{
        Body, NO_REPLY, Part, Text,
        attached::{File, Subtask},
    },
    text::{head, percent_decode, without_nul},
};
use rpc::status::invalid;
use std::collections::BTreeSet;
use tonic::Status;

/// A part as somebody asked for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AskedPart {
    pub(crate) id: Option<PartId>,
    pub(crate) body: Body,
}

/// Media types that are texts beside `text/…`.
const TEXTS: [&str; 8] = [
    "application/json",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "application/toml",
    "application/javascript",
    "application/x-sh",
    "application/sql",
];

/// Checks the parts of a prompt.
///
/// # Errors
/// `parts_too_many`, `part_id_duplicate`, `part_invalid`, `files_too_large`, `file_url_invalid`, `file_data_invalid`,
/// `mime_not_allowed`, `name_too_long`, `model_unknown`, `task_empty`, `command_invalid`.
pub(super) fn check(state: &State, parts: &[AskedPart]) -> Result<(), Status> {
    if parts.len() > limits::PROMPT_PARTS_MAX {
        let message = format!("a prompt has at most {} parts", limits::PROMPT_PARTS_MAX);
        return Err(invalid("parts_too_many", message));
    }
    let (mut ids, mut files_bytes) = (BTreeSet::new(), 0);
    for part in parts {
        if part.id.as_ref().is_some_and(|id| !ids.insert(id)) {
            return Err(invalid("part_id_duplicate", "two parts of the prompt have the same id"));
        }
        match &part.body {
            Body::Text(text) => check_command(text)?,
            Body::File(file) => {
                files_bytes += file.url.len();
                check_file(file)?;
            }
            Body::Compaction(_) | Body::Agent(_) => {}
            Body::Subtask(task) => check_subtask(state, task)?,
            Body::Reasoning(_)
            | Body::Tool(_)
            | Body::Patch(_)
            | Body::Snapshot(_)
            | Body::StepStart(_)
            | Body::StepFinish(_)
            | Body::Retry(_) => {
                return Err(invalid("part_invalid", "a prompt is made of texts, files, agents and tasks"));
            }
        }
    }
    if files_bytes > limits::PROMPT_FILES_BYTES_MAX {
        let most = limits::PROMPT_FILES_BYTES_MAX;
        let message = format!("the files of the prompt have {files_bytes} bytes; at most {most} are taken");
        return Err(invalid("files_too_large", message));
    }
    Ok(())
}

/// Checks what cannot stand beside everything else, and what must be started.
///
/// # Errors
/// `no_reply_task`, `part_invalid`.
pub(super) fn check_together(parts: &[AskedPart], has_text: bool, no_reply: bool) -> Result<(), Status> {
    let is_alone = !has_text && parts.len() == 1;
    let is_command =
        |part: &&AskedPart| matches!(&part.body, Body::Text(text) if CommandRequest::of(text).is_some());
    let commands = parts.iter().filter(is_command).count();
    let (is_summary, is_shell) =
        (has_kind(parts, "compaction"), shell(parts.iter().map(|part| &part.body)).is_some());
    if no_reply && (commands > 0 || is_summary || is_shell || has_kind(parts, "subtask")) {
        let message = "a task, a command or a summary cannot be stored without being started";
        return Err(invalid("no_reply_task", message));
    }
    if (is_summary || is_shell) && !is_alone {
        let message = "the wish to sum up and a command of the shell stand alone in a prompt";
        return Err(invalid("part_invalid", message));
    }
    let others = parts.iter().filter(|part| part.body.kind() != "file").count() - commands;
    if commands > 1 || commands == 1 && (has_text || others > 0) {
        let message = "beside a command stand files only; what else is to be said are its arguments";
        return Err(invalid("part_invalid", message));
    }
    Ok(())
}

/// The command of the shell that a prompt asks for.
pub(super) fn shell<'a>(mut bodies: impl Iterator<Item = &'a Body>) -> Option<&'a str> {
    bodies.find_map(|body| match body {
        Body::Text(text) => command::shell_of(text),
        _ => None,
    })
}

fn check_command(text: &Text) -> Result<(), Status> {
    if command::shell_of(text).is_some_and(|words| words.trim().is_empty()) {
        return Err(invalid("command_invalid", "the command of the shell is empty"));
    }
    let Some(asked) = CommandRequest::of(text) else { return Ok(()) };
    let is_name = !asked.name.is_empty() && !asked.name.contains(char::is_whitespace);
    if is_name && asked.name.len() <= limits::NAME_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a command's name has 1 to {} bytes and no white space", limits::NAME_BYTES_MAX);
    Err(invalid("command_invalid", message))
}

/// Bytes of all texts in the parts.
pub(super) fn text_bytes(parts: &[AskedPart]) -> usize {
    let bytes = |part: &AskedPart| match &part.body {
        Body::Text(text) => text.text.len() + command::shell_of(text).map_or(0, str::len),
        Body::Subtask(task) => task.prompt.len(),
        _ => 0,
    };
    parts.iter().map(bytes).sum()
}

/// Whether a part of this kind is among them.
pub(super) fn has_kind(parts: &[AskedPart], kind: &str) -> bool {
    parts.iter().any(|part| part.body.kind() == kind)
}

fn check_file(file: &File) -> Result<(), Status> {
    let name = file.filename.as_deref().unwrap_or_default();
    if name.len() > limits::NAME_BYTES_MAX || file.mime.len() > limits::NAME_BYTES_MAX {
        let message = format!("a file's name and type have at most {} bytes", limits::NAME_BYTES_MAX);
        return Err(invalid("name_too_long", message));
    }
    if let Some(path) = file.url.strip_prefix("file://") {
        let is_path = path.starts_with('/') && path.len() <= limits::PATH_BYTES_MAX && !path.contains('\0');
        return if is_path { Ok(()) } else { Err(url_invalid(&file.url)) };
    }
    let is_text = is_text(&file.mime);
    if !is_text && !media::TYPES.contains(&file.mime.as_str()) {
        let mime = head(&file.mime, limits::NAME_BYTES_MAX);
        let message = format!("{mime:?} is neither a text nor one of {}", media::TYPES.join(", "));
        return Err(invalid("mime_not_allowed", message));
    }
    let bytes = decode(&file.url)?;
    if is_text && String::from_utf8(bytes).is_err() {
        return Err(invalid("file_data_invalid", format!("{name:?} is no text in UTF-8")));
    }
    Ok(())
}

fn is_text(mime: &str) -> bool {
    let plain = mime.split(';').next().unwrap_or_default().trim();
    plain.starts_with("text/") || TEXTS.contains(&plain)
}

fn url_invalid(url: &str) -> Status {
    let shown = head(url, 100).escape_debug().to_string();
    invalid("file_url_invalid", format!("{shown} is neither data:… nor file:///workspace/…"))
}

/// The bytes of a `data:` address.
fn decode(url: &str) -> Result<Vec<u8>, Status> {
    let rest = url.strip_prefix("data:").ok_or_else(|| url_invalid(url))?;
    let (head, data) = rest.split_once(',').ok_or_else(|| url_invalid(url))?;
    if head.ends_with(";base64") {
        let wrong = |error| invalid("file_data_invalid", format!("a file is no base64: {error}"));
        return STANDARD.decode(data).map_err(wrong);
    }
    percent_decode(data).ok_or_else(|| invalid("file_data_invalid", "a file has a wrong % in its address"))
}

fn check_subtask(state: &State, task: &Subtask) -> Result<(), Status> {
    check_model(state, task.model.as_ref())?;
    if task.prompt.trim().is_empty() || task.description.trim().is_empty() {
        return Err(invalid("task_empty", "a task has a prompt and a description"));
    }
    let command = task.command.as_deref().unwrap_or_default();
    if task.description.len() > limits::NAME_BYTES_MAX || command.len() > limits::NAME_BYTES_MAX {
        let message = format!("a task's description has at most {} bytes", limits::NAME_BYTES_MAX);
        return Err(invalid("name_too_long", message));
    }
    Ok(())
}

/// The stored parts of a message: what was asked for, and what a model is told of it. Ids ascend where none are given.
pub(super) fn stored(
    state: &State,
    (session, message): (&SessionId, &MessageId),
    asked: Vec<AskedPart>,
) -> Vec<Part> {
    let part = |id: Option<PartId>, body: Body| Part {
        id: id.unwrap_or_else(|| state.id(PartId::make)),
        session_id: session.clone(),
        message_id: message.clone(),
        body,
    };
    let mut parts = vec![];
    for AskedPart { id, body } in asked {
        let (before, after) = told(&body);
        parts.extend(before.into_iter().map(|text| part(None, Body::Text(text))));
        parts.push(part(id, clean(body)));
        parts.extend(after.into_iter().map(|text| part(None, Body::Text(text))));
    }
    parts
}

/// Marks a message to which nobody wants an answer: on its first text, or on an empty one that no model sees.
pub(super) fn mark_as_note(state: &State, parts: &mut Vec<Part>) {
    let text = parts.iter_mut().find_map(|part| match &mut part.body {
        Body::Text(text) => Some(text),
        _ => None,
    });
    if let Some(text) = text {
        *text = std::mem::take(text).marked(NO_REPLY, true);
    } else if let Some(first) = parts.first() {
        let text = Text { ignored: Some(true), ..Text::synthetic("") }.marked(NO_REPLY, true);
        let mark = Part { id: state.id(PartId::make), body: Body::Text(text), ..first.clone() };
        parts.push(mark);
    }
}

/// What is said to the model before and after a part.
fn told(body: &Body) -> (Vec<Text>, Vec<Text>) {
    match body {
        Body::File(file) if file.url.starts_with("data:") && is_text(&file.mime) => {
            let bytes = decode(&file.url).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let input = serde_json::json!({"filePath": file.filename.as_deref().unwrap_or("a file")});
            let called = format!("Called the Read tool with the following input: {input}");
            (vec![Text::synthetic(clean_text(&called)), Text::synthetic(clean_text(&text))], vec![])
        }
        Body::Agent(agent) => (vec![], vec![Text::synthetic(agent.told())]),
        _ => (vec![], vec![]),
    }
}

fn clean_text(text: &str) -> String {
    without_nul(text).into_owned()
}

/// Without what Postgres cannot hold.
fn clean(body: Body) -> Body {
    match body {
        Body::Text(text) => Body::Text(Text { text: clean_text(&text.text), ..text }),
        Body::File(file) => Body::File(File {
            mime: clean_text(&file.mime),
            filename: file.filename.as_deref().map(clean_text),
            url: clean_text(&file.url),
            ..file
        }),
        Body::Subtask(task) => Body::Subtask(Subtask {
            prompt: clean_text(&task.prompt),
            description: clean_text(&task.description),
            command: task.command.as_deref().map(clean_text),
            ..task
        }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    fn file(mime: &str, url: &str) -> File {
        File { mime: mime.to_owned(), filename: None, url: url.to_owned(), source: None }
    }

    #[test]
    fn files_are_what_they_say() {
        for (mime, url, code) in [
            ("text/plain", "data:text/plain,a%20b", None),
            ("text/plain", "data:text/plain;base64,w6k=", None),
            ("image/png", "data:image/png;base64,AA==", None),
            ("any/thing", "file:///workspace/a.bin", None),
            ("text/plain", "data:text/plain;base64,/w==", Some("file_data_invalid")),
            ("text/plain", "data:text/plain,%2", Some("file_data_invalid")),
            ("image/png", "data:image/png;base64,A", Some("file_data_invalid")),
            ("image/png", "https://example.com/a.png", Some("file_url_invalid")),
            ("image/png", "file://host/a.png", Some("file_url_invalid")),
            ("audio/mp3", "data:audio/mp3;base64,AA==", Some("mime_not_allowed")),
        ] {
            let got = check_file(&file(mime, url)).err().and_then(|status| rpc::status::code_of(&status));
            assert_eq!(got.as_deref(), code, "{mime} {url}");
        }
    }

    #[test]
    fn a_text_is_told_to_the_model_and_a_picture_is_not() {
        let (before, after) = told(&Body::File(file("text/plain", "data:,a%00b")));
        let words: Vec<_> = before.iter().map(|text| text.text.as_str()).collect();
        let called = "Called the Read tool with the following input: {\"filePath\":\"a file\"}";
        assert_eq!((words.as_slice(), after.len()), (&[called, "a\u{fffd}b"][..], 0));
        assert!(before.iter().all(|text| text.synthetic == Some(true)));
        let (before, after) = told(&Body::File(file("image/png", "data:image/png;base64,AA==")));
        assert_eq!((before.len(), after.len()), (0, 0));
    }
}
