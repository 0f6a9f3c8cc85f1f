//! The files of the workspace that a prompt names: read beside the loop before the model is asked, once, and kept with the
//! prompt, so that every step and every worker asks with the same words.

use super::{Loop, preparing::broken};
use crate::{
    clock::now,
    deps::Deps,
    record::Stopped,
    sandbox::Identity,
    tools::{
        ToolError,
        read::{BINARY, is_document},
        run::refused,
    },
    workspace::{self, Workspace},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    event::Event,
    limits, media,
    message::Error,
    part::{Body, Part, Text, attached::File},
    text::{percent_decode, without_nul},
    turn::Input,
};
use rpc::v1::{self, FileKind};
use std::sync::Arc;
use store::log::record::Progress;
use tokio_util::task::AbortOnDropHandle;

/// Mark on what we say of a file: the part that names it.
const FILE: &str = "file";

/// Files that are being read.
pub(super) struct Reading {
    /// Attempts at the model call that failed before.
    failed: u32,
    task: AbortOnDropHandle<Result<Vec<Told>, ToolError>>,
}

/// What was found in the place of a file.
pub(super) struct Told {
    part: Part,
    texts: Vec<String>,
    /// Its bytes, if models are shown them as they are.
    media: Option<File>,
}

impl Loop {
    /// Begins to read the files that prompts name and nobody has read. Gives whether there are any.
    pub(super) fn read_files(&mut self, failed: u32) -> bool {
        let unread = self.unread();
        if unread.is_empty() {
            return false;
        }
        let (deps, workspace, identity) =
            (Arc::clone(&self.deps), self.workspace.clone(), self.tools.identity().clone());
        let task = tokio::spawn(async move { read_all(&deps, &workspace, &identity, unread).await });
        let task = AbortOnDropHandle::new(task);
        self.reading = Some(Reading { failed, task });
        true
    }

    fn unread(&self) -> Vec<Part> {
        let users =
            self.conversation.entries().iter().filter(|entry| crate::context::as_user(entry).is_some());
        let unread = users.flat_map(|entry| {
            let is_told = |part: &Part| {
                let says = |text: &Text| text.mark(FILE).is_some_and(|id| id == part.id.as_str());
                entry.parts.iter().any(|(_, told)| matches!(&told.body, Body::Text(text) if says(text)))
            };
            let is_named = |part: &Part| match &part.body {
                Body::File(file) => file.url.starts_with("file:") && !is_told(part),
                _ => false,
            };
            entry
                .parts
                .iter()
                .map(|(_, part)| part)
                .filter(move |part| is_named(part))
                .cloned()
                .collect::<Vec<_>>()
        });
        unread.collect()
    }

    /// Keeps what was read, and calls the model.
    pub(super) async fn files_read(
        &mut self,
        (failed, read): (u32, Result<Vec<Told>, ToolError>),
    ) -> Result<Option<Input>, Stopped> {
        let told = match read {
            Ok(told) => told,
            Err(error) => return broken(error).map(Some),
        };
        let mut events = vec![];
        for Told { part, texts, media } in told {
            for text in texts {
                let text = Text::synthetic(without_nul(&text).into_owned()).marked(FILE, part.id.as_str());
                events.push(self.new_part(&part.message_id, Body::Text(text)));
            }
            if let Some(file) = media {
                let part = Part { body: Body::File(file), ..part };
                events.push(Event::PartUpdated { part: Box::new(part), at: now() });
            }
        }
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        self.call(failed).await
    }
}

/// Waits for the files that are being read. Cancel-safe.
pub(super) async fn settled(reading: &mut Option<Reading>) -> (u32, Result<Vec<Told>, ToolError>) {
    let Some(open) = reading else { return std::future::pending().await };
    let (failed, read) = (open.failed, (&mut open.task).await);
    *reading = None;
    let broken =
        |error: tokio::task::JoinError| Err(ToolError::Broken(Error::new("UnknownError", error.to_string())));
    (failed, read.unwrap_or_else(broken))
}

async fn read_all(
    deps: &Deps,
    workspace: &Workspace,
    identity: &Identity,
    parts: Vec<Part>,
) -> Result<Vec<Told>, ToolError> {
    workspace.ready().await.map_err(|status| ToolError::Broken(workspace::failure(&status)))?;
    let mut told = vec![];
    for part in parts {
        let Body::File(file) = part.body.clone() else { continue };
        let place = Place::of(&file);
        let called = format!("Called the Read tool with the following input: {}", place.input());
        let said = match read_text(deps, identity, &place).await {
            Ok(Some(text)) => Ok(Said::Text(text)),
            Ok(None) => {
                read_media(deps, identity, &place, &file).await.map(|file| Said::Media(Box::new(file)))
            }
            Err(error) => Err(error),
        };
        told.push(match said {
            Ok(Said::Text(text)) => Told { part, texts: vec![called, text], media: None },
            Ok(Said::Media(file)) => Told { part, texts: vec![called], media: Some(*file) },
            Err(ToolError::Model(error)) => {
                let text =
                    format!("Read tool failed to read {} with the following error: {error}", place.path);
                Told { part, texts: vec![text], media: None }
            }
            Err(error) => return Err(error),
        });
    }
    Ok(told)
}

enum Said {
    Text(String),
    Media(Box<File>),
}

/// What an address names.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    path: String,
    first_line: Option<u64>,
    last_line: Option<u64>,
}

impl Place {
    fn of(file: &File) -> Self {
        let address = file.url.trim_start_matches("file://");
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let number = |key: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(name, _)| *name == key).find_map(|(_, value)| value.parse::<u64>().ok())
        };
        let decoded = percent_decode(path).and_then(|bytes| String::from_utf8(bytes).ok());
        Self {
            path: decoded.unwrap_or_else(|| path.to_owned()),
            first_line: number("start").filter(|line| *line > 0),
            last_line: number("end"),
        }
    }

    fn lines_max(&self) -> Option<u64> {
        let (first, last) = (self.first_line?, self.last_line?);
        Some(last.saturating_sub(first) + 1)
    }

    fn input(&self) -> String {
        let mut input = serde_json::json!({"filePath": self.path});
        if let Some(first) = self.first_line {
            input["offset"] = first.into();
        }
        if let Some(lines) = self.lines_max() {
            input["limit"] = lines.into();
        }
        input.to_string()
    }
}

/// The lines of a file, or the entries of a directory; `None` for what is no text, by its content.
async fn read_text(deps: &Deps, identity: &Identity, place: &Place) -> Result<Option<String>, ToolError> {
    let most = limits::TOOL_OUTPUT_LINES_MAX as u64;
    let first_line = place.first_line.unwrap_or(1);
    let request = v1::ReadLinesRequest {
        fence: identity.fence(),
        path: place.path.clone(),
        first_line,
        lines_max: u32::try_from(place.lines_max().unwrap_or(most).clamp(1, most)).unwrap_or(u32::MAX),
        line_chars_max: limits::LINE_CHARS,
        bytes_max: u32::try_from(limits::TOOL_OUTPUT_BYTES_MAX).unwrap_or(u32::MAX),
    };
    let read = deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.read_lines(request).await }
    });
    let read = match read.await {
        Ok(read) => read,
        Err(status) if rpc::status::code_of(&status).as_deref() == Some(BINARY) => return Ok(None),
        Err(status) => return Err(refused(&status)),
    };
    if read.kind() == FileKind::Text && first_line == 1 && is_document(&read.lines) {
        return Ok(None);
    }
    let path = &place.path;
    let (kind, content) = match read.kind() {
        FileKind::Directory => ("directory", read.lines.join("\n")),
        FileKind::Text | FileKind::Binary | FileKind::Other | FileKind::Unspecified => {
            let lines = (first_line..).zip(&read.lines).map(|(number, line)| format!("{number}: {line}\n"));
            let end = first_line + read.lines.len() as u64;
            let rest = if read.more {
                format!("\n(File has more lines. Use 'offset' to read beyond line {})", end.saturating_sub(1))
            } else {
                format!("\n(End of file - total {} lines)", end.saturating_sub(1))
            };
            ("file", format!("{}{rest}", lines.collect::<String>()))
        }
    };
    Ok(Some(format!("<path>{path}</path>\n<type>{kind}</type>\n<content>\n{content}\n</content>")))
}

async fn read_media(deps: &Deps, identity: &Identity, place: &Place, file: &File) -> Result<File, ToolError> {
    // As much as a prompt's own files may have, as it will be written.
    let bytes_max = limits::PROMPT_FILES_BYTES_MAX / 4 * 3;
    let request = v1::ReadFileRequest {
        fence: identity.fence(),
        path: place.path.clone(),
        offset_bytes: 0,
        bytes_max: u32::try_from(bytes_max).unwrap_or(u32::MAX),
    };
    let read = deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.read_file(request).await }
    });
    let read = read.await.map_err(|status| refused(&status))?;
    if read.size_bytes > bytes_max as u64 {
        let text = format!("it has {} bytes; at most {bytes_max} can be shown", read.size_bytes);
        return Err(ToolError::Model(text));
    }
    let Some(mime) = media::of_bytes(&read.data) else {
        return Err(ToolError::Model("it is neither text nor a picture nor a PDF document".to_owned()));
    };
    let url = format!("data:{mime};base64,{}", STANDARD.encode(&read.data));
    Ok(File { mime: mime.to_owned(), url, ..file.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn an_address_names_a_path_and_lines() {
        for (url, path, first_line, last_line, lines) in [
            ("file:///workspace/a.txt", "/workspace/a.txt", None, None, None),
            ("file:///workspace/a%20b?start=3&end=5", "/workspace/a b", Some(3), Some(5), Some(3)),
            ("file:///workspace/a?start=0&end=x", "/workspace/a", None, None, None),
            ("file:///workspace/a?start=5&end=3", "/workspace/a", Some(5), Some(3), Some(1)),
        ] {
            let file = File { mime: String::new(), filename: None, url: url.to_owned(), source: None };
            let place = Place::of(&file);
            assert_eq!(place, Place { path: path.to_owned(), first_line, last_line });
            assert_eq!(place.lines_max(), lines);
        }
    }
}
