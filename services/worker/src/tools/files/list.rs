//! `list`: shows a directory as a tree.

use crate::tools::{
    context::CallContext,
    outcome::{Output, ToolError, sandbox_error},
    path::relative,
    spec::tool_spec,
};
use domain::policy::tool;
use rpc::v1::{self, FileKind};
use serde::Deserialize;
use serde_json::{Map, json};

/// The arguments of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    path: Option<String>,
    #[serde(default)]
    ignore: Vec<String>,
}

/// Maximum entries in one answer. The answer says that there are more.
const ENTRIES_MAX: u32 = 1_000;

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "list",
        "Shows the files below a directory as a tree, at most 1000. Files that git ignores are left out.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The directory; default /workspace"},
                "ignore": {"type": "array", "items": {"type": "string"}, "maxItems": 50,
                           "description": "Additional patterns to leave out"}
            },
            "additionalProperties": false
        }),
    )
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let path = input.path.unwrap_or_else(|| domain::session::WORKSPACE.to_owned());
    let request = v1::ListFilesRequest {
        fence: ctx.identity.fence(),
        path: path.clone(),
        entries_max: ENTRIES_MAX,
        ignore: input.ignore,
    };
    let found = ctx.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.list_files(request).await }
    });
    let found = found.await.map_err(|status| sandbox_error(&status))?;
    let mut metadata = Map::new();
    metadata.insert("count".to_owned(), found.entries.len().into());
    metadata.insert("truncated".to_owned(), found.truncated.into());
    let text = tree(&path, &found);
    Ok(Output { title: relative(&path), text, metadata, ..Output::default() })
}

fn tree(path: &str, found: &v1::ListFilesResponse) -> String {
    let mut entries: Vec<&v1::FileEntry> = found.entries.iter().collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let base = path.trim_start_matches(domain::session::WORKSPACE).trim_matches('/');
    let mut text = format!("{}/\n", path.trim_end_matches('/'));
    for entry in entries {
        let inside = entry.path.strip_prefix(base).unwrap_or(&entry.path).trim_matches('/');
        let (depth, name) = (inside.matches('/').count() + 1, inside.rsplit('/').next().unwrap_or(inside));
        let slash = if entry.kind() == FileKind::Directory { "/" } else { "" };
        text.push_str(&format!("{}{name}{slash}\n", "  ".repeat(depth)));
    }
    if found.truncated {
        text.push_str(&format!("\n(Only the first {ENTRIES_MAX}: use a narrower path.)"));
    }
    text
}
