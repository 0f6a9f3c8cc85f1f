//! The changes of a session since its first commit: of the one that the client last worked with in the directory, else of the newest one. Commits of the agent count as changes too.

use super::read::{find, find_open, of_file};
use crate::{
    app::{
        files::directory::DirectoryFiles,
        gateway::Gateway,
        sessions::output::{FileStat, WorkspaceDiff},
    },
    errors::invalid::Invalid,
    http::{
        callers::caller::Caller,
        input::extractors::{Body, Query},
        refusal::Result,
    },
};
use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse as _, Response},
};
use domain::session::{FIRST_BRANCH, Origin};
use serde::Deserialize;
use serde_json::{Value, json};

/// The media type of a patch.
pub(in crate::http) const PATCH: &str = "text/x-diff; charset=utf-8";

/// The branch of the session's files. Before they are open: that of the newest files that are, else that of the worktree, or of files that
/// start empty.
pub(in crate::http) async fn branch(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let Some(directory) = caller.find_directory(&gateway).await? else { return Ok(Json(json!({}))) };
    let branch = |files: Option<DirectoryFiles>| Some(files?.branch()?.to_owned());
    let known = match branch(find(&gateway, &caller).await?) {
        None => branch(find_open(&gateway, &caller).await?),
        known => known,
    };
    let first = || match directory.worktree {
        Some(worktree) => Some(worktree.branch),
        None => (directory.project.source.origin == Origin::Empty).then(|| FIRST_BRANCH.to_owned()),
    };
    let branch = known.or_else(first);
    Ok(Json(branch.map_or_else(|| json!({}), |branch| json!({"branch": branch}))))
}

pub(in crate::http) async fn status(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<Value>>> {
    let diff = diff(&gateway, &caller).await?;
    let files = changes(&diff).map(|FileChange { stat, status, .. }| {
        json!({"file": stat.path, "additions": stat.additions, "deletions": stat.deletions, "status": status})
    });
    Ok(Json(files.collect()))
}

/// The base that OpenCode compares with: the last commit, or the default branch. Here both are the commit that the session
/// started from.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Git,
    Branch,
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct ModeQuery {
    #[serde(rename = "mode")]
    _mode: Mode,
}

/// The changed files with their patches, and then the files that are too large for a diff: their patch says so.
pub(in crate::http) async fn patches(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(_): Query<ModeQuery>,
) -> Result<Json<Vec<Value>>> {
    let diff = diff(&gateway, &caller).await?;
    let files = changes(&diff).map(|FileChange { stat, patch, status }| {
        let (additions, deletions) = (stat.additions, stat.deletions);
        json!({"file": stat.path, "patch": patch, "additions": additions, "deletions": deletions, "status": status})
    });
    Ok(Json(files.chain(diff.left_out.iter().map(|text| left_out(text))).collect()))
}

/// A file that the diff left out, or the number of further ones. It has no status: git did not compare it.
fn left_out(text: &str) -> Value {
    let file = text.rsplit_once(", ").map_or(text, |(path, _size)| path);
    json!({"file": file, "patch": format!("left out: {text}\n"), "additions": 0, "deletions": 0})
}

/// The whole patch.
pub(in crate::http) async fn raw(State(gateway): State<Gateway>, caller: Caller) -> Result<Response> {
    let patch = diff(&gateway, &caller).await?.patch;
    Ok(([(header::CONTENT_TYPE, PATCH)], patch).into_response())
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct PatchBody {
    patch: String,
}

/// Applies a patch to the files of the session, as a person would in its terminal.
pub(in crate::http) async fn apply(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(body): Body<PatchBody>,
) -> Result<Json<Value>> {
    let no_files = || Invalid::WorkspaceMissing.because("this directory has no session, so it has no files");
    let files = find(&gateway, &caller).await?.ok_or_else(no_files)?;
    files.apply(&caller.principal, body.patch).await?;
    Ok(Json(json!({"applied": true})))
}

async fn diff(gateway: &Gateway, caller: &Caller) -> Result<WorkspaceDiff> {
    match find(gateway, caller).await? {
        Some(files) => files.diff().await.map_err(of_file),
        None => Ok(WorkspaceDiff::default()),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct FileChange<'a> {
    stat: &'a FileStat,
    /// Empty if the whole patch was cut before it.
    patch: &'a str,
    status: &'static str,
}

/// The changed files. Files and patches are both in git's order; if the whole patch was cut, the last files have no
/// patch.
fn changes(diff: &WorkspaceDiff) -> impl Iterator<Item = FileChange<'_>> {
    let patches = split(&diff.patch).into_iter().chain(std::iter::repeat(""));
    diff.files.iter().zip(patches).map(|(stat, patch)| FileChange { stat, patch, status: file_status(patch) })
}

/// The patch of each file. Only its first line begins with `diff --git`: content lines have a mark at their start.
fn split(patch: &str) -> Vec<&str> {
    let begin = "diff --git ";
    let later = patch.match_indices("\ndiff --git ").map(|(at, _)| at + 1);
    let begins: Vec<usize> = patch.starts_with(begin).then_some(0).into_iter().chain(later).collect();
    let ends = begins.iter().skip(1).copied().chain([patch.len()]);
    begins.iter().zip(ends).map(|(begin, end)| &patch[*begin..end]).collect()
}

fn file_status(patch: &str) -> &'static str {
    match patch.lines().nth(1).unwrap_or_default() {
        line if line.starts_with("new file mode ") => "added",
        line if line.starts_with("deleted file mode ") => "deleted",
        _ => "modified",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_diff_left_out_is_named() {
        let file =
            |file: &str, patch: &str| json!({"file": file, "patch": patch, "additions": 0, "deletions": 0});
        let want = file("a, b.bin", "left out: a, b.bin, 8.0 GiB\n");
        assert_eq!(left_out("a, b.bin, 8.0 GiB"), want);
        assert_eq!(left_out("and 3 more"), file("and 3 more", "left out: and 3 more\n"));
    }

    #[test]
    fn a_patch_is_split_by_files() {
        let added = "diff --git a/a b/a\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+diff --git a\n";
        let gone = "diff --git a/b b/b\ndeleted file mode 100644\nindex 1..0\n";
        let stat = |path: &str| FileStat { path: path.to_owned(), additions: 1, deletions: 0 };
        let files = vec![stat("a"), stat("b"), stat("cut")];
        let diff =
            WorkspaceDiff { patch: format!("{added}{gone}"), files, truncated: true, left_out: vec![] };
        let found: Vec<_> = changes(&diff).map(|it| (&*it.stat.path, it.patch, it.status)).collect();
        assert_eq!(found, [("a", added, "added"), ("b", gone, "deleted"), ("cut", "", "modified")]);
    }
}
