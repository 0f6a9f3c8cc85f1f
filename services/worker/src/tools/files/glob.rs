//! `glob`: finds files by name.

use crate::tools::{
    context::CallContext,
    outcome::{Output, ToolError, sandbox_error},
    path::{absolute, relative},
    spec::tool_spec,
};
use domain::policy::tool;
use rpc::v1;
use serde::Deserialize;
use serde_json::{Map, json};

/// The arguments of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    pattern: String,
    path: Option<String>,
}

/// Maximum files in one answer. It has the newest ones, and says that there are more.
const FILES_MAX: u32 = 100;

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "glob",
        "Finds files by a glob pattern such as **/*.rs, newest first, at most 100. Files that git ignores are left out.",
        json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1, "description": "The pattern"},
                "path": {"type": "string", "description": "Directory to look in; default /workspace"}
            },
            "required": ["pattern"],
            "additionalProperties": false
        }),
    )
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let title = input.path.as_deref().map_or_else(String::new, searched);
    let request = v1::GlobFilesRequest {
        fence: ctx.identity.fence(),
        pattern: input.pattern,
        path: input.path.unwrap_or_default(),
        entries_max: FILES_MAX,
    };
    let found = ctx.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.glob_files(request).await }
    });
    let found = found.await.map_err(|status| sandbox_error(&status))?;
    let mut lines: Vec<String> = found.entries.iter().map(|entry| absolute(&entry.path)).collect();
    let mut metadata = Map::new();
    metadata.insert("count".to_owned(), lines.len().into());
    metadata.insert("truncated".to_owned(), found.truncated.into());
    if lines.is_empty() {
        lines.push("No files found".to_owned());
    }
    if found.truncated {
        lines.push(format!("\n(Only the newest {FILES_MAX}: use a narrower pattern or path.)"));
    }
    Ok(Output { title, text: lines.join("\n"), metadata, ..Output::default() })
}

/// The directory of a search, as OpenCode's clients show it next to the pattern: nothing for the whole workspace.
fn searched(path: &str) -> String {
    Some(relative(path)).filter(|path| path != ".").unwrap_or_default()
}
