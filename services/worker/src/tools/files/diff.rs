//! A file change as clients see it.

use serde_json::{Map, Value};
use similar::TextDiff;

/// Maximum bytes of a diff for clients.
const DIFF_BYTES_MAX: usize = 64 * 1024;

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
