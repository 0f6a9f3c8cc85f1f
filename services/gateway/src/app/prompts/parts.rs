//! The parts of a prompt: their checks, and the texts that the model gets for them. The worker reads files of the workspace.

use super::request::PromptPart;
use crate::{
    app::checks,
    errors::{error::Error, invalid::Invalid},
    state::State,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    conversation::{
        command::{self, CommandRequest},
        media::{self, Defect},
        part::{
            Body, NO_REPLY, Part, Text,
            attached::{File, Subtask},
        },
    },
    ids::{MessageId, PartId, SessionId},
    limits,
    text::{head, percent_decode, without_nul},
};
use std::{borrow::Cow, collections::BTreeSet};

/// Parts of one prompt: far more than a person attaches. Beyond it: `parts_too_many`.
const PROMPT_PARTS_MAX: usize = 64;

/// Media types of texts other than `text/…`.
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

/// Checks each part of a prompt.
///
/// # Errors
/// `parts_too_many`, `part_id_duplicate`, `part_invalid`, `files_too_large`, `file_url_invalid`, `file_data_invalid`,
/// `mime_not_allowed`, `name_too_long`, `model_unknown`, `task_empty`, `command_invalid`.
pub(super) fn check(state: &State, parts: &[PromptPart]) -> Result<(), Error> {
    if parts.len() > PROMPT_PARTS_MAX {
        let message = format!("the prompt has {} parts, the limit is {}", parts.len(), PROMPT_PARTS_MAX);
        return Err(Invalid::PartsTooMany.because(message));
    }
    let (mut ids, mut files_bytes) = (BTreeSet::new(), 0);
    for part in parts {
        if part.id.as_ref().is_some_and(|id| !ids.insert(id)) {
            return Err(Invalid::PartIdDuplicate.because("two parts of the prompt have the same id"));
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
                let message = "a prompt can have only text, file, agent and task parts";
                return Err(Invalid::Part.because(message));
            }
        }
    }
    let limit = limits::PROMPT_FILES_BYTES_MAX;
    if files_bytes > limit {
        let message = format!("the files of the prompt are {files_bytes} bytes, the limit is {limit} bytes");
        return Err(Invalid::FilesTooLarge.because(message));
    }
    Ok(())
}

/// Checks which parts may appear together, and which need a turn.
///
/// # Errors
/// `no_reply_task`, `part_invalid`.
pub(super) fn check_together(parts: &[PromptPart], has_text: bool, no_reply: bool) -> Result<(), Error> {
    let is_alone = !has_text && parts.len() == 1;
    let is_command =
        |part: &&PromptPart| matches!(&part.body, Body::Text(text) if CommandRequest::of(text).is_some());
    let commands = parts.iter().filter(is_command).count();
    let (is_compaction, is_shell) =
        (has_kind(parts, "compaction"), shell(parts.iter().map(|part| &part.body)).is_some());
    if no_reply && (commands > 0 || is_compaction || is_shell || has_kind(parts, "subtask")) {
        let message = "a task, a command or a compaction needs a turn; send it without no_reply";
        return Err(Invalid::NoReplyTask.because(message));
    }
    if (is_compaction || is_shell) && !is_alone {
        let message = "a compaction or a shell command must be the only part of its prompt";
        return Err(Invalid::Part.because(message));
    }
    let others = parts.iter().filter(|part| part.body.kind() != "file").count() - commands;
    if commands > 1 || commands == 1 && (has_text || others > 0) {
        let message = "a command can be sent with files only; pass other text as its arguments";
        return Err(Invalid::Part.because(message));
    }
    Ok(())
}

/// The shell command of a prompt.
pub(super) fn shell<'a>(bodies: impl Iterator<Item = &'a Body>) -> Option<&'a str> {
    bodies.filter_map(text_of).find_map(command::shell_of)
}

fn text_of(body: &Body) -> Option<&Text> {
    if let Body::Text(text) = body { Some(text) } else { None }
}

fn check_command(text: &Text) -> Result<(), Error> {
    if command::shell_of(text).is_some_and(|words| words.trim().is_empty()) {
        return Err(Invalid::Command.because("the shell command is empty"));
    }
    let Some(command) = CommandRequest::of(text) else { return Ok(()) };
    let is_name = !command.name.is_empty() && !command.name.contains(char::is_whitespace);
    if is_name && command.name.len() <= limits::NAME_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("a command name must have 1 to {} bytes and no white space", limits::NAME_BYTES_MAX);
    Err(Invalid::Command.because(message))
}

pub(super) fn text_bytes(parts: &[PromptPart]) -> usize {
    let bytes = |part: &PromptPart| match &part.body {
        Body::Text(text) => text.text.len() + command::shell_of(text).map_or(0, str::len),
        Body::Subtask(task) => task.prompt.len(),
        Body::Reasoning(_)
        | Body::File(_)
        | Body::Tool(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Snapshot(_)
        | Body::Patch(_)
        | Body::Agent(_)
        | Body::Retry(_)
        | Body::Compaction(_) => 0,
    };
    parts.iter().map(bytes).sum()
}

fn has_kind(parts: &[PromptPart], kind: &str) -> bool {
    parts.iter().any(|part| part.body.kind() == kind)
}

fn check_file(file: &File) -> Result<(), Error> {
    let name = file.filename.as_deref().unwrap_or_default();
    if name.len() > limits::NAME_BYTES_MAX || file.mime.len() > limits::NAME_BYTES_MAX {
        let message =
            format!("a file's name and media type must each have at most {} bytes", limits::NAME_BYTES_MAX);
        return Err(Invalid::NameTooLong.because(message));
    }
    if let Some(path) = file.url.strip_prefix("file://") {
        let is_path = path.starts_with('/') && path.len() <= limits::PATH_BYTES_MAX && !path.contains('\0');
        return if is_path { Ok(()) } else { Err(url_invalid(&file.url)) };
    }
    let is_text = is_text(&file.mime);
    if !is_text && !media::TYPES.contains(&file.mime.as_str()) {
        let mime = head(&file.mime, limits::NAME_BYTES_MAX);
        let message =
            format!("media type {mime:?} is not allowed; use text or one of {}", media::TYPES.join(", "));
        return Err(Invalid::MimeNotAllowed.because(message));
    }
    let bytes = decode(&file.url)?;
    if !is_text {
        return media::check(&bytes).map(drop).map_err(|defect| defective(name, defect));
    }
    match String::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(Invalid::FileData.because(format!("{name:?} is not valid UTF-8"))),
    }
}

/// The refusal of a picture or a document that would make every later request of the session fail.
fn defective(name: &str, defect: Defect) -> Error {
    let reason = match defect {
        Defect::Foreign | Defect::Damaged => Invalid::FileData,
        Defect::Dimensions(_) | Defect::Bytes(_) => Invalid::FilesTooLarge,
    };
    reason.because(format!("{name:?} cannot be sent to a model: {defect}"))
}

fn is_text(mime: &str) -> bool {
    let plain = mime.split(';').next().unwrap_or_default().trim();
    plain.starts_with("text/") || TEXTS.contains(&plain)
}

fn url_invalid(url: &str) -> Error {
    let url = head(url, 100).escape_debug().to_string();
    Invalid::FileUrl.because(format!("{url} is not a file URL; use data:… or file:///workspace/…"))
}

/// The bytes of a `data:` URL.
fn decode(url: &str) -> Result<Vec<u8>, Error> {
    let rest = url.strip_prefix("data:").ok_or_else(|| url_invalid(url))?;
    let (head, data) = rest.split_once(',').ok_or_else(|| url_invalid(url))?;
    if head.ends_with(";base64") {
        let wrong = |error| Invalid::FileData.because(format!("a file is not valid base64: {error}"));
        return STANDARD.decode(data).map_err(wrong);
    }
    percent_decode(data).ok_or_else(|| Invalid::FileData.because("a data: URL has an invalid % escape"))
}

fn check_subtask(state: &State, task: &Subtask) -> Result<(), Error> {
    checks::model(state, task.model.as_ref())?;
    if task.prompt.trim().is_empty() || task.description.trim().is_empty() {
        return Err(Invalid::TaskEmpty.because("a task needs a prompt and a description"));
    }
    let command = task.command.as_deref().unwrap_or_default();
    if task.description.len() > limits::NAME_BYTES_MAX || command.len() > limits::NAME_BYTES_MAX {
        let message = format!(
            "a task's description and command must each have at most {} bytes",
            limits::NAME_BYTES_MAX
        );
        return Err(Invalid::NameTooLong.because(message));
    }
    Ok(())
}

/// The parts of a message to store: those of the prompt, and the texts that the model gets for them. Parts without an id get one,
/// in ascending order.
pub(super) fn to_stored(
    state: &State,
    session: &SessionId,
    message: &MessageId,
    prompt: Vec<PromptPart>,
) -> Vec<Part> {
    let part = |id: Option<PartId>, body: Body| Part {
        id: id.unwrap_or_else(|| state.id(PartId::make)),
        session_id: session.clone(),
        message_id: message.clone(),
        body,
    };
    let mut parts = vec![];
    for PromptPart { id, body } in prompt {
        let ModelTexts { before, after } = model_texts(&body);
        parts.extend(before.into_iter().map(|text| part(None, Body::Text(text))));
        parts.push(part(id, clean(body)));
        parts.extend(after.into_iter().map(|text| part(None, Body::Text(text))));
    }
    parts
}

/// Marks a message that starts no turn: on its first text, or on an empty text that no model gets.
pub(super) fn mark_as_note(state: &State, parts: &mut Vec<Part>) {
    let first_text = parts
        .iter_mut()
        .find_map(|part| if let Body::Text(text) = &mut part.body { Some(text) } else { None });
    if let Some(text) = first_text {
        *text = std::mem::take(text).marked(NO_REPLY, true);
    } else if let Some(first) = parts.first() {
        let text = Text { ignored: Some(true), ..Text::synthetic("") }.marked(NO_REPLY, true);
        let mark = Part { id: state.id(PartId::make), body: Body::Text(text), ..first.clone() };
        parts.push(mark);
    }
}

/// The texts that the model gets with a part.
#[derive(Debug, Default)]
struct ModelTexts {
    before: Vec<Text>,
    after: Vec<Text>,
}

fn model_texts(body: &Body) -> ModelTexts {
    match body {
        Body::File(file) if file.url.starts_with("data:") && is_text(&file.mime) => {
            let bytes = decode(&file.url).unwrap_or_default();
            let text = String::from_utf8(bytes).unwrap_or_default();
            let input = serde_json::json!({"filePath": file.filename.as_deref().unwrap_or("a file")});
            let call = format!("Called the Read tool with the following input: {input}");
            let before = vec![Text::synthetic(clean_text(call)), Text::synthetic(clean_text(text))];
            ModelTexts { before, after: vec![] }
        }
        Body::Agent(agent) => ModelTexts { before: vec![], after: vec![Text::synthetic(agent.told())] },
        Body::File(_)
        | Body::Text(_)
        | Body::Reasoning(_)
        | Body::Tool(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Snapshot(_)
        | Body::Patch(_)
        | Body::Subtask(_)
        | Body::Retry(_)
        | Body::Compaction(_) => ModelTexts::default(),
    }
}

fn clean_text(text: String) -> String {
    match without_nul(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}

/// A checked file with the media type of its bytes: providers refuse a picture under the name of another type, and names of files are often wrong.
fn with_true_type(file: File) -> File {
    if is_text(&file.mime) || !file.url.starts_with("data:") {
        return file;
    }
    match decode(&file.url).ok().and_then(|bytes| Some((media::of_bytes(&bytes)?, bytes))) {
        Some((mime, bytes)) if mime != file.mime => {
            let url = format!("data:{mime};base64,{}", STANDARD.encode(bytes));
            File { mime: mime.to_owned(), url, ..file }
        }
        Some(_) | None => file,
    }
}

/// The body without bytes that Postgres cannot store, and with the true type of a file.
fn clean(body: Body) -> Body {
    match body {
        Body::Text(text) => Body::Text(Text { text: clean_text(text.text), ..text }),
        Body::File(file) => {
            let file = with_true_type(file);
            Body::File(File {
                mime: clean_text(file.mime),
                filename: file.filename.map(clean_text),
                url: clean_text(file.url),
                ..file
            })
        }
        Body::Subtask(task) => Body::Subtask(Subtask {
            prompt: clean_text(task.prompt),
            description: clean_text(task.description),
            command: task.command.map(clean_text),
            ..task
        }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// A PNG of one pixel.
    const DOT: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn file(mime: &str, url: &str) -> File {
        File { mime: mime.to_owned(), filename: None, url: url.to_owned(), source: None }
    }

    #[test]
    fn a_file_must_match_its_type() {
        for (mime, url, code) in [
            ("text/plain", "data:text/plain,a%20b", None),
            ("text/plain", "data:text/plain;base64,w6k=", None),
            ("image/png", &format!("data:image/png;base64,{DOT}"), None),
            ("image/jpeg", &format!("data:image/jpeg;base64,{DOT}"), None),
            ("application/pdf", "data:application/pdf,%25PDF-1.4%0A1 0 obj", None),
            ("application/pdf", "data:application/pdf,hello", Some("file_data_invalid")),
            ("image/png", "data:image/png,<html>login</html>", Some("file_data_invalid")),
            ("image/png", &format!("data:image/png;base64,{}", &DOT[..12]), Some("file_data_invalid")),
            ("image/gif", "data:image/gif,GIF89a%41%1f%01%00%00%00%00;", Some("files_too_large")),
            ("any/thing", "file:///workspace/a.bin", None),
            ("text/plain", "data:text/plain;base64,/w==", Some("file_data_invalid")),
            ("text/plain", "data:text/plain,%2", Some("file_data_invalid")),
            ("image/png", "data:image/png;base64,A", Some("file_data_invalid")),
            ("image/png", "https://example.com/a.png", Some("file_url_invalid")),
            ("image/png", "file://host/a.png", Some("file_url_invalid")),
            ("audio/mp3", "data:audio/mp3;base64,AA==", Some("mime_not_allowed")),
        ] {
            let got = check_file(&file(mime, url)).err();
            assert_eq!(got.as_ref().map(Error::code), code, "{mime} {url}");
        }
    }

    #[test]
    fn a_picture_is_stored_with_the_type_of_its_bytes() {
        let url = |mime: &str| format!("data:{mime};base64,{DOT}");
        for mime in ["image/jpeg", "image/png"] {
            let Body::File(stored) = clean(Body::File(file(mime, &url(mime)))) else { panic!("no file") };
            assert_eq!((stored.mime.as_str(), stored.url), ("image/png", url("image/png")));
        }
    }

    #[test]
    fn the_model_gets_the_text_of_a_text_file_only() {
        let ModelTexts { before, after } = model_texts(&Body::File(file("text/plain", "data:,a%00b")));
        let words: Vec<_> = before.iter().map(|text| text.text.as_str()).collect();
        let called = "Called the Read tool with the following input: {\"filePath\":\"a file\"}";
        assert_eq!((words.as_slice(), after.len()), (&[called, "a\u{fffd}b"][..], 0));
        assert!(before.iter().all(|text| text.synthetic == Some(true)));
        let ModelTexts { before, after } =
            model_texts(&Body::File(file("image/png", "data:image/png;base64,AA==")));
        assert_eq!((before.len(), after.len()), (0, 0));
    }
}
