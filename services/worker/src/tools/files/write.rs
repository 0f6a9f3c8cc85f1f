//! `write`: writes a whole file.

use super::diff::{compare, file_change, proposed_change};
use crate::{
    process::sandbox::is_away,
    tools::{
        context::CallContext,
        outcome::{Output, ToolError, UNCERTAIN, sandbox_error},
        path::relative,
        spec::tool_spec,
    },
};
use convert_client::request::FileVersions;
use domain::limits;
use domain::policy::tool;
use rpc::v1;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments of a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    file_path: String,
    content: String,
}

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "write",
        "Writes a whole file, with its directories; an existing file is replaced. For changes inside a file use edit.",
        json!({
            "type": "object",
            "properties": {
                "filePath": {"type": "string", "minLength": 1, "description": "Absolute path"},
                "content": {"type": "string", "description": "The whole content"}
            },
            "required": ["filePath", "content"],
            "additionalProperties": false
        }),
    )
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    if input.content.len() > limits::FILE_BYTES_MAX {
        return Err(ToolError::Model(format!("The content is longer than {} bytes", limits::FILE_BYTES_MAX)));
    }
    let before = match load(ctx, &input.file_path).await {
        Ok(file) => Some(String::from_utf8_lossy(&file.data).into_owned()),
        Err(_) => None,
    };
    let written = save(ctx, &input.file_path, input.content.clone().into_bytes(), String::new()).await?;
    let path = input.file_path;
    let versions =
        FileVersions { path: path.clone(), before: before.unwrap_or_default(), after: input.content };
    let mut metadata = file_change(&path, compare(ctx, versions).await);
    metadata.insert("exists".to_owned(), (!written.created).into());
    let text = if written.created { "The file was created." } else { "The file was replaced." };
    Ok(Output { title: relative(&path), text: text.to_owned(), metadata, ..Output::default() })
}

/// Describes the change that a call would make, for the person whom the session asks for permission.
pub(crate) async fn preview(ctx: &CallContext, input: Input) -> Result<Map<String, Value>, ToolError> {
    let before = match load(ctx, &input.file_path).await {
        Ok(file) => String::from_utf8_lossy(&file.data).into_owned(),
        Err(ToolError::Model(_)) => String::new(),
        Err(error) => return Err(error),
    };
    let path = input.file_path;
    let versions = FileVersions { path: path.clone(), before, after: input.content };
    Ok(proposed_change(&path, compare(ctx, versions).await))
}

/// The change that the arguments of a call tell, without the file.
pub(super) fn written(input: Input) -> Vec<FileVersions> {
    vec![FileVersions { path: input.file_path, before: String::new(), after: input.content }]
}

/// Reads a whole file of at most 10 MiB.
pub(super) async fn load(ctx: &CallContext, path: &str) -> Result<v1::ReadFileResponse, ToolError> {
    let request = v1::ReadFileRequest {
        fence: ctx.identity.fence(),
        path: path.to_owned(),
        offset_bytes: 0,
        bytes_max: u32::try_from(limits::FILE_BYTES_MAX).unwrap_or(u32::MAX),
    };
    let read = ctx.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.read_file(request).await }
    });
    let read = read.await.map_err(|status| sandbox_error(&status))?;
    if read.size_bytes > limits::FILE_BYTES_MAX as u64 {
        return Err(ToolError::Model(format!(
            "{path} is {} bytes, which is too large for a tool to change",
            read.size_bytes
        )));
    }
    Ok(read)
}

/// Writes a whole file; `expected_sha256` as in the sandbox's `WriteFile`.
pub(super) async fn save(
    ctx: &CallContext,
    path: &str,
    data: Vec<u8>,
    expected_sha256: String,
) -> Result<v1::WriteFileResponse, ToolError> {
    let request =
        v1::WriteFileRequest { fence: ctx.identity.fence(), path: path.to_owned(), data, expected_sha256 };
    // Not retried: if the answer is lost, the worker does not know whether the file was written.
    let response = ctx.deps.sandbox.client().write_file(request).await;
    let written = response.map_err(|status| {
        if is_away(&status) { ToolError::Model(UNCERTAIN.to_owned()) } else { sandbox_error(&status) }
    })?;
    ctx.note_written(path);
    Ok(written.into_inner())
}
