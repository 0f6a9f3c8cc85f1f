//! A file change as clients see it.

use super::path::{absolute, relative};
use serde_json::{Map, Value, json};
use similar::TextDiff;

/// Maximum bytes of a diff for clients.
const DIFF_BYTES_MAX: usize = 64 * 1024;

/// Describes the change of one file as OpenCode's clients read it: the diff, the file, and `diagnostics`, without which the TUI does
/// not show the content of the file. Flotilla runs no language servers, so there are none.
pub(super) fn file_change(path: &str, before: &str, after: &str) -> Map<String, Value> {
    let (file, mut metadata) = (absolute(path), diff(path, before, after));
    let filediff = json!({
        "file": file, "patch": metadata["diff"], "additions": metadata["additions"], "deletions": metadata["deletions"],
    });
    metadata.insert("filediff".to_owned(), filediff);
    metadata.insert("filepath".to_owned(), file.into());
    metadata.insert("diagnostics".to_owned(), json!({}));
    metadata
}

/// Describes a change of one file for which the session asks a person's permission, as OpenCode's TUI reads it.
pub(super) fn proposed_change(path: &str, before: &str, after: &str) -> Map<String, Value> {
    let mut metadata = diff(path, before, after);
    metadata.insert("filepath".to_owned(), relative(path).into());
    metadata
}

/// Describes a change for clients: a unified diff, and how many lines it adds and deletes.
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
