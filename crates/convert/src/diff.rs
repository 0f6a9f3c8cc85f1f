//! The difference between two versions of a file.

use convert_client::{bounds::DIFF_BYTES_MAX, reply::Diff};
use similar::{ChangeTag, TextDiff};
use std::time::Duration;

/// Time to find the smallest difference. After it the difference is correct but larger than necessary: people read it, and it
/// must not cost the change itself.
const SEARCH_TIME_MAX: Duration = Duration::from_millis(200);

pub(crate) fn compare(path: &str, before: &str, after: &str) -> Diff {
    let diff = TextDiff::configure().timeout(SEARCH_TIME_MAX).diff_lines(before, after);
    let (mut additions, mut deletions) = (0_u64, 0_u64);
    for change in diff.iter_all_changes() {
        match change.tag() {
            ChangeTag::Insert => additions += 1,
            ChangeTag::Delete => deletions += 1,
            ChangeTag::Equal => {}
        }
    }
    let text = diff.unified_diff().header(path, path).to_string().replace('\0', "\u{fffd}");
    Diff { text: domain::text::head(&text, DIFF_BYTES_MAX).to_owned(), additions, deletions }
}
