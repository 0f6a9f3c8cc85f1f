//! A file change as clients see it.

use crate::tools::{
    context::CallContext,
    path::{absolute, relative},
};
use convert_client::{reply::Diff, request::FileVersions};
use serde_json::{Map, Value, json};

/// Compares two versions of a file for people. A comparison without a result says why instead: it must not undo or forbid the
/// change.
pub(super) async fn compare(ctx: &CallContext, versions: FileVersions) -> Diff {
    ctx.converter().diff(versions).await.unwrap_or_else(|error| {
        tracing::warn!(error.code = error.code(), "two versions of a file were not compared: {error}");
        Diff { text: format!("# {}: {error}\n", error.code()), ..Diff::default() }
    })
}

/// Describes the change of one file as OpenCode's clients read it: the diff, the file, and `diagnostics`, without which the TUI does
/// not show the content of the file. Flotilla runs no language servers, so there are none.
pub(super) fn file_change(path: &str, diff: Diff) -> Map<String, Value> {
    let file = absolute(path);
    let filediff =
        json!({"file": file, "patch": diff.text, "additions": diff.additions, "deletions": diff.deletions});
    let mut metadata = facts(diff);
    metadata.insert("filediff".to_owned(), filediff);
    metadata.insert("filepath".to_owned(), file.into());
    metadata.insert("diagnostics".to_owned(), json!({}));
    metadata
}

/// Describes a change of one file for which the session asks a person's permission, as OpenCode's TUI reads it.
pub(super) fn proposed_change(path: &str, diff: Diff) -> Map<String, Value> {
    let mut metadata = facts(diff);
    metadata.insert("filepath".to_owned(), relative(path).into());
    metadata
}

/// The descriptions of several changes as one: the diffs one after the other, every file once, the sums of the counts.
pub(super) fn merged(changes: impl Iterator<Item = Map<String, Value>>) -> Map<String, Value> {
    let mut all = Map::new();
    for (key, value) in changes.flatten() {
        let both = match (all.remove(&key), value) {
            (Some(Value::String(names)), Value::String(more)) if key == "filepath" => {
                let is_new = |name: &&str| !names.split(", ").any(|known| known == *name);
                let more = more.split(", ").filter(is_new);
                Value::from(std::iter::once(names.as_str()).chain(more).collect::<Vec<_>>().join(", "))
            }
            (Some(Value::String(before)), Value::String(more)) => Value::from(before + &more),
            (Some(Value::Array(before)), Value::Array(more)) => Value::from([before, more].concat()),
            (Some(Value::Number(before)), Value::Number(more)) => {
                Value::from(before.as_u64().unwrap_or(0) + more.as_u64().unwrap_or(0))
            }
            (_, value) => value,
        };
        all.insert(key, both);
    }
    all
}

/// A unified diff, and how many lines it adds and deletes.
pub(super) fn facts(diff: Diff) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("diff".to_owned(), diff.text.into());
    metadata.insert("additions".to_owned(), diff.additions.into());
    metadata.insert("deletions".to_owned(), diff.deletions.into());
    metadata
}
