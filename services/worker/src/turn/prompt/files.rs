//! The files of the workspace that a prompt names. A separate task reads them, or the same of the commit while the session has none, once before the model is called, and they are
//! stored with the prompt, so that every step and every worker sends the same text.

use super::commands::broken_signal;
use crate::{
    conversation::entries,
    process::{
        clock::now,
        deps::Deps,
        sandbox::{Identity, has_code},
    },
    record::WriteError,
    repository::{reading::CommitQuestion, workspace::Workspace},
    tools::{
        files::read::is_document,
        outcome::{ToolError, opening_error, sandbox_error},
    },
    turn::session::Session,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chassis::tasks;
use domain::{
    conversation::{
        media::{self, Defect},
        message::Error,
        part::{Body, Part, Text, attached::File},
    },
    event::Event,
    limits,
    text::{percent_decode, without_nul},
    turn::{signal::Signal, work::Need},
};
use rpc::v1::{self, ErrorCode, FileKind};
use std::sync::Arc;
use store::log::{messages::MessageWithParts, record::Progress};
use tokio_util::task::AbortOnDropHandle;

/// Mark on a synthetic text about a file: the id of the part that names the file.
const FILE: &str = "file";

/// Files of prompts that are being read.
#[derive(Default)]
pub(in crate::turn) struct PromptFiles {
    reading: Option<AbortOnDropHandle<FilesRead>>,
}

/// The end of the reading.
pub(in crate::turn) type FilesRead = Result<Vec<FileContent>, ToolError>;

/// The result of reading a file part.
pub(in crate::turn) struct FileContent {
    part: Part,
    texts: Vec<String>,
    /// Its bytes, if models receive files of its type.
    media: Option<File>,
}

impl PromptFiles {
    /// Starts to read the files that prompts name and that are not read yet. False if there are none.
    pub(in crate::turn) fn read(&mut self, session: &Session) -> bool {
        let unread = unread_files(session.conversation().entries());
        if unread.is_empty() {
            return false;
        }
        let (deps, workspace) = (Arc::clone(&session.deps), session.workspace.clone());
        let identity = session.identity.clone();
        let read = async move { read_all(&deps, &workspace, &identity, unread).await };
        self.reading = Some(tasks::spawn_owned("prompt files", read));
        true
    }

    /// Waits until the files are read, if they are being read. Cancel-safe.
    pub(in crate::turn) async fn next(&mut self) -> FilesRead {
        let Some(reading) = &mut self.reading else { return std::future::pending().await };
        let read = reading.await;
        self.reading = None;
        read.unwrap_or_else(|error| Err(ToolError::Broken(Error::new("UnknownError", error.to_string()))))
    }

    /// Ends the reading: the step is being stopped.
    pub(in crate::turn) fn stop(&mut self) {
        self.reading = None;
    }
}

/// Stores the results, with which the prompts are ready for a model.
pub(in crate::turn) async fn store_contents(
    session: &mut Session,
    contents: FilesRead,
) -> Result<Signal, WriteError> {
    let contents = match contents {
        Ok(contents) => contents,
        Err(error) => return broken_signal(error),
    };
    let mut events = vec![];
    for FileContent { part, texts, media } in contents {
        for text in texts {
            let text = Text::synthetic(without_nul(&text).into_owned()).marked(FILE, part.id.as_str());
            events.push(session.new_part(&part.message_id, Body::Text(text)));
        }
        if let Some(file) = media {
            let part = Part { body: Body::File(file), ..part };
            events.push(Event::PartUpdated { part: Box::new(part), at: now() });
        }
    }
    session.write(events, Progress::None).await?;
    Ok(Signal::Ready(Need::PromptFiles))
}

/// The file parts of prompts without a text about them.
fn unread_files(entries: &[MessageWithParts]) -> Vec<Part> {
    let mut unread = vec![];
    for entry in entries.iter().filter(|entry| entries::as_user(entry).is_some()) {
        let texts = || entry.parts.iter().filter_map(|(_, part)| part.body.as_text());
        let is_read =
            |part: &Part| texts().any(|text| text.mark(FILE).is_some_and(|id| id == part.id.as_str()));
        let is_in_workspace =
            |part: &Part| part.body.as_file().is_some_and(|file| file.url.starts_with("file:"));
        let parts = entry.parts.iter().map(|(_, part)| part);
        unread.extend(parts.filter(|part| is_in_workspace(part) && !is_read(part)).cloned());
    }
    unread
}

async fn read_all(
    deps: &Deps,
    workspace: &Workspace,
    identity: &Identity,
    parts: Vec<Part>,
) -> Result<Vec<FileContent>, ToolError> {
    if let Some(contents) = read_of_commit(workspace, &parts).await? {
        return Ok(contents);
    }
    workspace.ready().await.map_err(|status| opening_error(&status))?;
    let mut contents = vec![];
    for part in parts {
        let Some(file) = part.body.as_file().cloned() else { continue };
        let address = FileAddress::of(&file);
        let content = match read_one(deps, identity, &address, &file).await {
            Err(ToolError::Model(error)) => Content::Failure(error),
            content => content?,
        };
        contents.push(content.of(part, &address));
    }
    Ok(contents)
}

/// Reads the files from the commit of the source, without files of the session. `None`: the session needs its files, because they count, or because not all of
/// these are text.
async fn read_of_commit(
    workspace: &Workspace,
    parts: &[Part],
) -> Result<Option<Vec<FileContent>>, ToolError> {
    let addresses: Vec<_> =
        parts.iter().filter_map(|part| Some(FileAddress::of(part.body.as_file()?))).collect();
    if addresses.len() > limits::SOURCE_FILES_MAX || !workspace.has_source() {
        return Ok(None);
    }
    let requests: Vec<_> = addresses.iter().map(FileAddress::request).collect();
    let read = workspace.read_source(CommitQuestion::Files(&requests)).await;
    let Some(read) = read.map_err(|status| opening_error(&status))? else { return Ok(None) };
    let content = |(part, (address, read)): (&Part, (&FileAddress, v1::SourceFile))| {
        let content = match read.lines {
            Some(lines) => Content::Text(address.text(lines)?),
            None if read.refusal == ErrorCode::FileIsBinary.as_str() => return None,
            None => Content::Failure(read.reason),
        };
        Some(content.of(part.clone(), address))
    };
    Ok(parts.iter().zip(addresses.iter().zip(read.files)).map(content).collect())
}

enum Content {
    Text(String),
    Media(Box<File>),
    /// Why it cannot be read.
    Failure(String),
}

impl Content {
    /// What is stored of a part that names the file at `address`.
    fn of(self, part: Part, address: &FileAddress) -> FileContent {
        let called = format!("Called the Read tool with the following input: {}", address.input());
        match self {
            Self::Text(text) => FileContent { part, texts: vec![called, text], media: None },
            Self::Media(file) => FileContent { part, texts: vec![called], media: Some(*file) },
            Self::Failure(error) => {
                let text =
                    format!("Read tool failed to read {} with the following error: {error}", address.path);
                FileContent { part, texts: vec![text], media: None }
            }
        }
    }
}

async fn read_one(
    deps: &Deps,
    identity: &Identity,
    address: &FileAddress,
    file: &File,
) -> Result<Content, ToolError> {
    match read_text(deps, identity, address).await? {
        Some(text) => Ok(Content::Text(text)),
        None => read_media(deps, identity, address, file).await.map(|file| Content::Media(Box::new(file))),
    }
}

/// The path and the lines that the URL of a file names.
#[derive(Debug, PartialEq, Eq)]
struct FileAddress {
    path: String,
    first_line: Option<u64>,
    last_line: Option<u64>,
}

impl FileAddress {
    fn of(file: &File) -> Self {
        let url = file.url.trim_start_matches("file://");
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
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

    /// The request for its lines, without a fence.
    fn request(&self) -> v1::ReadLinesRequest {
        let most = limits::TOOL_OUTPUT_LINES_MAX as u64;
        v1::ReadLinesRequest {
            fence: None,
            path: self.path.clone(),
            first_line: self.first_line.unwrap_or(1),
            lines_max: u32::try_from(self.lines_max().unwrap_or(most).clamp(1, most)).unwrap_or(u32::MAX),
            line_chars_max: limits::LINE_CHARS,
            bytes_max: u32::try_from(limits::TOOL_OUTPUT_BYTES_MAX).unwrap_or(u32::MAX),
        }
    }

    /// What was read, as a model gets it; `None` for a file that is not text.
    fn text(&self, read: v1::ReadLinesResponse) -> Option<String> {
        let first_line = self.first_line.unwrap_or(1);
        if read.kind() == FileKind::Text && first_line == 1 && is_document(&read.lines) {
            return None;
        }
        let path = &self.path;
        let (kind, content) = match read.kind() {
            FileKind::Directory => ("directory", read.lines.join("\n")),
            FileKind::Text | FileKind::Binary | FileKind::Other | FileKind::Unspecified => {
                let lines =
                    (first_line..).zip(&read.lines).map(|(number, line)| format!("{number}: {line}\n"));
                let end = (first_line + read.lines.len() as u64).saturating_sub(1);
                let rest = match read.more {
                    true => format!("\n(File has more lines. Use 'offset' to read beyond line {end})"),
                    false => format!("\n(End of file - total {end} lines)"),
                };
                ("file", format!("{}{rest}", lines.collect::<String>()))
            }
        };
        Some(format!("<path>{path}</path>\n<type>{kind}</type>\n<content>\n{content}\n</content>"))
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

/// The lines of a file, or the entries of a directory; `None` for a file that is not text.
async fn read_text(
    deps: &Deps,
    identity: &Identity,
    address: &FileAddress,
) -> Result<Option<String>, ToolError> {
    let request = v1::ReadLinesRequest { fence: identity.fence(), ..address.request() };
    let read = deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.read_lines(request).await }
    });
    match read.await {
        Ok(read) => Ok(address.text(read)),
        Err(status) if has_code(&status, ErrorCode::FileIsBinary) => Ok(None),
        Err(status) => Err(sandbox_error(&status)),
    }
}

async fn read_media(
    deps: &Deps,
    identity: &Identity,
    address: &FileAddress,
    file: &File,
) -> Result<File, ToolError> {
    // As many bytes as the attached files of a prompt may have once they are encoded.
    let bytes_max = limits::PROMPT_FILES_BYTES_MAX / 4 * 3;
    let request = v1::ReadFileRequest {
        fence: identity.fence(),
        path: address.path.clone(),
        offset_bytes: 0,
        bytes_max: u32::try_from(bytes_max).unwrap_or(u32::MAX),
    };
    let read = deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.read_file(request).await }
    });
    let read = read.await.map_err(|status| sandbox_error(&status))?;
    if read.size_bytes > bytes_max as u64 {
        let text = format!("it has {} bytes; the limit is {bytes_max}", read.size_bytes);
        return Err(ToolError::Model(text));
    }
    let mime = media::check(&read.data).map_err(|defect| match defect {
        Defect::Foreign => ToolError::Model("it is not text, a picture or a PDF document".to_owned()),
        Defect::Damaged | Defect::Dimensions(_) | Defect::Bytes(_) => ToolError::Model(defect.to_string()),
    })?;
    let url = format!("data:{mime};base64,{}", STANDARD.encode(&read.data));
    Ok(File { mime: mime.to_owned(), url, ..file.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_url_names_a_path_and_lines() {
        for (url, path, first_line, last_line, lines) in [
            ("file:///workspace/a.txt", "/workspace/a.txt", None, None, None),
            ("file:///workspace/a%20b?start=3&end=5", "/workspace/a b", Some(3), Some(5), Some(3)),
            ("file:///workspace/a?start=0&end=x", "/workspace/a", None, None, None),
            ("file:///workspace/a?start=5&end=3", "/workspace/a", Some(5), Some(3), Some(1)),
        ] {
            let file = File { mime: String::new(), filename: None, url: url.to_owned(), source: None };
            let address = FileAddress::of(&file);
            assert_eq!(address, FileAddress { path: path.to_owned(), first_line, last_line });
            assert_eq!(address.lines_max(), lines);
        }
    }
}
