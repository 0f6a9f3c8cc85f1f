//! The attachments and settings of a prompt on the command line: agent, files, effort, and the format of the answer.

use crate::{exit::coded, input};
use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    conversation::{media, message::VARIANTS},
    limits,
    session::WORKSPACE,
};
use rpc::v1::{AcceptPromptRequest, CommandPart, ErrorCode, FilePart, OutputFormat, prompt_part::Kind};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Bytes of a file with a JSON schema: far more than the gateway takes without its white space. Beyond it: `file_too_large`.
const SCHEMA_FILE_BYTES_MAX: usize = 1024 * 1024;

/// The attachments and settings of a prompt.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct AttachArgs {
    /// Attach one of your files to the prompt: a text, a picture or a PDF. A path below /workspace names a file or
    /// directory of the session instead. May be repeated.
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Run a command of the repository, or init or review; the text of your prompt is its arguments.
    #[arg(long, value_name = "NAME")]
    command: Option<String>,
    /// The agent that answers: build, plan (which changes nothing), or an agent of the repository. Default: the
    /// session's.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The reasoning effort of the model.
    #[arg(long, value_name = "WORD", value_parser = clap::builder::PossibleValuesParser::new(VARIANTS))]
    variant: Option<String>,
    /// Require an answer that is an object of the JSON schema in this file.
    #[arg(long, value_name = "FILE")]
    json_schema: Option<PathBuf>,
}

impl AttachArgs {
    /// Adds all of it to a prompt. What the gateway would refuse is refused here as far as that is simple, because a new session would stay behind.
    ///
    /// # Errors
    /// If a file cannot be read, or is neither text nor a known media type; `prompt_empty`, `schema_invalid`.
    pub(crate) fn add_to(&self, prompt: &mut AcceptPromptRequest) -> Result<()> {
        if let Some(name) = self.command.clone() {
            let command = CommandPart { name, arguments: std::mem::take(&mut prompt.text) };
            prompt.parts.push(Kind::Command(command).into());
        }
        for path in &self.files {
            let file = file(path).with_context(|| format!("attach {}", path.display()))?;
            prompt.parts.push(Kind::File(file).into());
        }
        prompt.agent = self.agent.clone().unwrap_or_default();
        prompt.variant = self.variant.clone().unwrap_or_default();
        if let Some(path) = &self.json_schema {
            let json_schema = schema(path).with_context(|| format!("use {}", path.display()))?;
            prompt.format = Some(OutputFormat { json_schema, retry_count: None });
        }
        if prompt.text.trim().is_empty() && prompt.parts.is_empty() {
            return Err(coded(ErrorCode::PromptEmpty, "the prompt is empty; say what to do"));
        }
        Ok(())
    }
}

/// Reads the schema of an answer.
fn schema(path: &Path) -> Result<String> {
    let text = input::read_text(path, SCHEMA_FILE_BYTES_MAX)?;
    let schema: Value = serde_json::from_str(&text).map_err(|error| {
        coded(ErrorCode::SchemaInvalid, format!("the answer schema is not valid JSON: {error}"))
    })?;
    if schema["type"] != "object" {
        return Err(coded(ErrorCode::SchemaInvalid, "the answer schema must be of type object"));
    }
    Ok(text)
}

fn file(path: &Path) -> Result<FilePart> {
    let filename = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.starts_with(WORKSPACE) {
        let (mime, url) = ("text/plain".to_owned(), format!("file://{}", path.display()));
        return Ok(FilePart { mime, filename, url, source_json: String::new() });
    }
    let bytes = input::read(path, limits::PROMPT_FILES_BYTES_MAX)?;
    let mime = match media::of_name(&filename) {
        Some(mime) => mime,
        None if std::str::from_utf8(&bytes).is_ok() => "text/plain",
        None => bail!("it is not a text, a picture or a PDF"),
    };
    let url = format!("data:{mime};base64,{}", STANDARD.encode(bytes));
    Ok(FilePart { mime: mime.to_owned(), filename, url, source_json: String::new() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::exit;

    #[test]
    fn files_of_the_session_are_named_and_ours_are_sent() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes, url) in [
            ("a.rs", &b"fn"[..], Some("data:text/plain;base64,Zm4=")),
            ("b.PNG", &[0xff], Some("data:image/png;base64,/w==")),
            ("c.bin", &[0xff], None),
        ] {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(file(&path).ok().map(|file| file.url).as_deref(), url, "{name}");
        }
        assert_eq!(file(Path::new("/workspace/src/a.rs")).unwrap().url, "file:///workspace/src/a.rs");
        assert!(file(Path::new("/nowhere/a")).is_err());
        assert_eq!(exit::code(&file(Path::new("/dev/zero")).unwrap_err()), "file_not_regular");
    }

    #[test]
    fn prompts_and_schemas_that_the_gateway_refuses_are_not_sent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("schema.json");
        let check = |text: &str, schema: Option<&str>| {
            let json_schema = schema.map(|schema| {
                std::fs::write(&path, schema).unwrap();
                path.clone()
            });
            let mut prompt = AcceptPromptRequest { text: text.to_owned(), ..AcceptPromptRequest::default() };
            let arguments = AttachArgs { json_schema, ..AttachArgs::default() };
            arguments.add_to(&mut prompt).map_err(|error| exit::code(&error)).err()
        };
        assert_eq!(check(" \n", None).as_deref(), Some("prompt_empty"));
        for wrong in ["{", "[]", "{}", r#"{"type": "string"}"#] {
            assert_eq!(check("x", Some(wrong)).as_deref(), Some("schema_invalid"), "{wrong}");
        }
        assert_eq!(check("x", Some(r#"{"type": "object"}"#)), None);
        let command = AttachArgs { command: Some("review".to_owned()), ..AttachArgs::default() };
        command.add_to(&mut AcceptPromptRequest::default()).unwrap();
    }
}
