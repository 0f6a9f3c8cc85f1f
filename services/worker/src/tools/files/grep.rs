//! `grep`: finds lines by a regular expression.

use crate::tools::{
    context::CallContext,
    outcome::{Output, ToolError, sandbox_error},
    path::absolute,
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
    include: Option<String>,
}

/// Maximum lines in one answer. The answer says that there are more.
const MATCHES_MAX: u32 = 100;

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "grep",
        "Finds lines by a regular expression in the files of the workspace, newest file first, at most 100 lines. Files \
         that git ignores are left out.",
        json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1, "description": "The regular expression"},
                "path": {"type": "string", "description": "File or directory to look in; default /workspace"},
                "include": {"type": "string", "description": "Only files whose name matches, for example *.{ts,tsx}"}
            },
            "required": ["pattern"],
            "additionalProperties": false
        }),
    )
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let request = v1::GrepFilesRequest {
        fence: ctx.identity.fence(),
        pattern: input.pattern.clone(),
        path: input.path.unwrap_or_default(),
        include: input.include.unwrap_or_default(),
        matches_max: MATCHES_MAX,
    };
    let found = ctx.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.grep_files(request).await }
    });
    let found = found.await.map_err(|status| sandbox_error(&status))?;
    let mut metadata = Map::new();
    metadata.insert("matches".to_owned(), found.matches.len().into());
    metadata.insert("truncated".to_owned(), found.truncated.into());
    Ok(Output { title: input.pattern, text: grouped(&found), metadata, ..Output::default() })
}

/// The matching lines, grouped by file.
fn grouped(found: &v1::GrepFilesResponse) -> String {
    let (mut text, mut file) = (String::new(), "");
    if found.matches.is_empty() {
        text.push_str("No matches found");
    }
    for found in &found.matches {
        if found.path != file {
            file = &found.path;
            text.push_str(&format!("{}{}:\n", if text.is_empty() { "" } else { "\n" }, absolute(file)));
        }
        text.push_str(&format!("  {}: {}\n", found.line, found.text));
    }
    if found.truncated && found.matches.len() >= usize::try_from(MATCHES_MAX).unwrap_or(usize::MAX) {
        text.push_str(&format!("\n(Only the first {MATCHES_MAX}: use a narrower pattern or path.)"));
    } else if found.truncated {
        text.push_str(
            "\n(Some files were left out, too large or too many to be searched: use a narrower path.)",
        );
    }
    text
}
