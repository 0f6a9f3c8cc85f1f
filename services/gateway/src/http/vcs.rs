//! What the newest session of a directory changed in its files, since the commit that it began with: commits of the agent
//! change nothing about that.

use super::{
    caller::Caller,
    error::Result,
    files::{fence, found, newest},
    input::{Body, Query},
};
use crate::{grpc::from_sandbox, state::State, workspace};
use axum::{
    Json,
    extract::State as Shared,
    http::header,
    response::{IntoResponse as _, Response},
};
use domain::limits;
use rpc::{status, v1};
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Status;

/// The media type of a patch.
pub(super) const PATCH: &str = "text/x-diff; charset=utf-8";

/// The branch that the newest session works on.
pub(super) async fn branch(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let branch = newest(&state, &caller).await?.and_then(|session| session.branch);
    Ok(Json(branch.map_or_else(|| json!({}), |branch| json!({"branch": branch}))))
}

/// The files that differ.
pub(super) async fn status(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Vec<Value>>> {
    let diff = diff(&state, &caller).await?;
    let files = changed(&diff).map(|(file, _, status)| {
        json!({"file": file.path, "additions": file.additions, "deletions": file.deletions, "status": status})
    });
    Ok(Json(files.collect()))
}

/// What OpenCode compares with: what is committed, or the default branch. Here both are the commit of the beginning.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Git,
    Branch,
}

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(rename = "mode")]
    _mode: Mode,
}

/// The files that differ, with their patches.
pub(super) async fn patches(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(_): Query<Asked>,
) -> Result<Json<Vec<Value>>> {
    let diff = diff(&state, &caller).await?;
    let files = changed(&diff).map(|(file, patch, status)| {
        let (additions, deletions) = (file.additions, file.deletions);
        json!({"file": file.path, "patch": patch, "additions": additions, "deletions": deletions, "status": status})
    });
    Ok(Json(files.collect()))
}

/// The whole patch.
pub(super) async fn raw(Shared(state): Shared<State>, caller: Caller) -> Result<Response> {
    let patch = diff(&state, &caller).await?.patch;
    Ok(([(header::CONTENT_TYPE, PATCH)], patch).into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct Applied {
    patch: String,
}

/// Applies a patch to the files of the newest session, as somebody would at its terminal. One that does not fit changes
/// nothing. The files are made first if they never were.
pub(super) async fn apply(
    Shared(state): Shared<State>,
    caller: Caller,
    Body(Applied { patch }): Body<Applied>,
) -> Result<Json<Value>> {
    let Some(session) = newest(&state, &caller).await? else {
        let message = "there is no session in this directory, so there are no files";
        return Err(status::invalid("workspace_missing", message).into());
    };
    let request = v1::ApplyPatchRequest { fence: Some(fence(&caller, &session)), patch };
    // To OpenCode, what does not fit is a mistake in the request.
    let wrong = |refused: Status| match status::code_of(&refused).as_deref() {
        Some("workspace_missing") => status::invalid("workspace_missing", refused.message()),
        Some("patch_refused") => status::invalid("patch_refused", refused.message()),
        Some("file_not_permitted") => status::invalid("file_not_permitted", refused.message()),
        _ => from_sandbox(refused),
    };
    let apply = || {
        let (mut sandbox, request) = (state.sandbox.clone(), request.clone());
        async move { sandbox.apply_patch(request).await }
    };
    let place = (caller.principal.tenant, &session.root_id);
    workspace::with_files(&state, place, apply).await.map_err(wrong)?;
    Ok(Json(json!({"applied": true})))
}

async fn diff(state: &State, caller: &Caller) -> Result<v1::DiffWorkspaceResponse> {
    let Some(session) = newest(state, caller).await? else { return Ok(v1::DiffWorkspaceResponse::default()) };
    let request = v1::DiffWorkspaceRequest {
        tenant_id: caller.principal.tenant.to_string(),
        session_id: session.info.id.to_string(),
        bytes_max: u32::try_from(limits::DIFF_BYTES_MAX).unwrap_or(u32::MAX),
        workspace_session_id: session.root_id.to_string(),
    };
    found(state.sandbox.clone().diff_workspace(request).await)
}

/// Each file with its patch and what became of it. Both are in the order of git; of a patch that was cut the last ones have none.
fn changed(diff: &v1::DiffWorkspaceResponse) -> impl Iterator<Item = (&v1::DiffStat, &str, &'static str)> {
    let patches = sections(&diff.patch).into_iter().chain(std::iter::repeat(""));
    diff.files.iter().zip(patches).map(|(file, patch)| (file, patch, became(patch)))
}

/// The patches of single files in a patch. Only the line that begins one begins so: lines of files have a mark before them.
fn sections(patch: &str) -> Vec<&str> {
    let begin = "diff --git ";
    let later = patch.match_indices("\ndiff --git ").map(|(at, _)| at + 1);
    let begins: Vec<usize> = patch.starts_with(begin).then_some(0).into_iter().chain(later).collect();
    let ends = begins.iter().skip(1).copied().chain([patch.len()]);
    begins.iter().zip(ends).map(|(begin, end)| &patch[*begin..end]).collect()
}

fn became(patch: &str) -> &'static str {
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
    fn a_patch_is_told_file_by_file() {
        let added = "diff --git a/a b/a\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+diff --git a\n";
        let gone = "diff --git a/b b/b\ndeleted file mode 100644\nindex 1..0\n";
        let stat = |path: &str| v1::DiffStat { path: path.to_owned(), additions: 1, deletions: 0 };
        let patch = format!("{added}{gone}");
        let files = vec![stat("a"), stat("b"), stat("cut")];
        let diff = v1::DiffWorkspaceResponse { patch, files, ..Default::default() };
        let told: Vec<_> = changed(&diff).map(|(file, patch, status)| (&*file.path, patch, status)).collect();
        assert_eq!(told, [("a", added, "added"), ("b", gone, "deleted"), ("cut", "", "modified")]);
    }
}
