//! `edit`: replaces one text in a file by another. Models quote imprecisely, so inexact matches are found as well, by
//! the strategies of `edit::find`, the exact one first.

pub(crate) mod find;

use super::{Output, ToolError, described, run::Ctx, write::load, write::save};
use llm::request::ToolSpec;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use similar::TextDiff;

/// What to replace, and by what.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

/// Bytes of a diff that clients get.
const DIFF_BYTES_MAX: usize = 64 * 1024;

pub(super) fn spec() -> ToolSpec {
    described(
        "edit",
        "Replaces text in a file. oldString must be found exactly once unless replaceAll is set: quote enough lines \
         around the change, exactly as read shows them but without the line numbers. An empty oldString makes a new file.",
        json!({
            "type": "object",
            "properties": {
                "filePath": {"type": "string", "minLength": 1, "description": "Absolute path"},
                "oldString": {"type": "string", "description": "The text to replace"},
                "newString": {"type": "string", "description": "The text to put in its place"},
                "replaceAll": {"type": "boolean", "description": "Replace every occurrence"}
            },
            "required": ["filePath", "oldString", "newString"],
            "additionalProperties": false
        }),
    )
}

pub(super) async fn run(ctx: &Ctx, input: Input) -> Result<Output, ToolError> {
    if input.old_string == input.new_string {
        return Err(ToolError::Model("oldString and newString are the same: nothing to change".to_owned()));
    }
    let path = input.file_path.clone();
    if input.old_string.is_empty() {
        let made = save(ctx, &path, input.new_string.clone().into_bytes(), "absent".to_owned()).await;
        made.map_err(|error| match error {
            ToolError::Model(_) => ToolError::Model(format!(
                "{path} exists. An empty oldString only makes new files: quote the text to replace."
            )),
            other => other,
        })?;
        let metadata = diff(&path, "", &input.new_string);
        return Ok(Output { title: path, text: "The file was made.".to_owned(), metadata, todos: None });
    }
    let file = load(ctx, &path).await?;
    let before = String::from_utf8(file.data)
        .map_err(|_| ToolError::Model(format!("{path} is not UTF-8 text and cannot be edited")))?;
    let after = edited(&before, &input).map_err(ToolError::Model)?;
    // Fails when somebody changed the file since: nothing of theirs is lost.
    save(ctx, &path, after.clone().into_bytes(), file.sha256).await?;
    let metadata = diff(&path, &before, &after);
    Ok(Output { title: path, text: "The edit was made.".to_owned(), metadata, todos: None })
}

/// Gives the file's new content. Keeps its line ends and byte order mark.
fn edited(before: &str, input: &Input) -> Result<String, String> {
    let (mark, body) = before.strip_prefix('\u{feff}').map_or(("", before), |body| ("\u{feff}", body));
    let crlf = body.contains("\r\n");
    let unix = |text: &str| text.replace("\r\n", "\n");
    let content = if crlf { unix(body) } else { body.to_owned() };
    let all = if input.replace_all { find::Which::All } else { find::Which::One };
    let after = find::replace(&content, &unix(&input.old_string), &unix(&input.new_string), all)?;
    Ok(format!("{mark}{}", if crlf { after.replace('\n', "\r\n") } else { after }))
}

/// Facts about a change for clients: a unified diff and its counts.
pub(super) fn diff(path: &str, before: &str, after: &str) -> Map<String, Value> {
    let diff = TextDiff::from_lines(before, after);
    let (mut additions, mut deletions) = (0_u64, 0_u64);
    for change in diff.iter_all_changes() {
        match change.tag() {
            similar::ChangeTag::Insert => additions += 1,
            similar::ChangeTag::Delete => deletions += 1,
            similar::ChangeTag::Equal => {}
        }
    }
    let text = diff.unified_diff().header(path, path).to_string().replace('\0', "\u{fffd}");
    let mut metadata = Map::new();
    metadata.insert("diff".to_owned(), domain::text::head(&text, DIFF_BYTES_MAX).into());
    metadata.insert("additions".to_owned(), additions.into());
    metadata.insert("deletions".to_owned(), deletions.into());
    metadata
}

#[cfg(test)]
mod tests;
