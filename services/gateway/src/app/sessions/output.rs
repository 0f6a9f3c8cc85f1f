//! The output of a session: its changes, the whole output of a tool, and its workspace as a bundle.

use crate::{
    app::gateway::Gateway, auth::principal::Principal, backends::sandbox, errors::error::Error, scope::Scope,
    state::State,
};
use domain::{
    conversation::message::{FileDiff, Message, User},
    ids::{MessageId, SessionId, TenantId},
    limits,
};
use rpc::v1;
use store::rows::session_row::Session;
use tokio::sync::mpsc;

/// Pieces of an export that wait for the client, each with at most 256 KiB: 1 MiB for one export. One tenant makes four at the same time.
const PIECES_AHEAD: usize = 4;

/// The number of changed lines in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStat {
    pub(crate) path: String,
    pub(crate) additions: u32,
    pub(crate) deletions: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorkspaceDiff {
    /// In git's format.
    pub(crate) patch: String,
    pub(crate) files: Vec<FileStat>,
    /// Whether the patch is incomplete.
    pub(crate) truncated: bool,
    /// What the diff does not have, in words.
    pub(crate) left_out: Vec<String>,
}

/// One piece of an exported workspace: a git bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportPiece {
    pub(crate) data: Vec<u8>,
    pub(crate) commit: String,
    pub(crate) base_commit: String,
    /// What of the session's work the commits lack.
    pub(crate) left_out: Vec<String>,
}

/// Returns the changes of a prompt's turn, as its message records them.
///
/// # Errors
/// `message_not_found`, `store_unavailable`.
pub(crate) async fn diff_message(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    message: &MessageId,
) -> Result<Vec<FileDiff>, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    let entry = gateway.state.store.get_message(tenant, session, message).await?;
    Ok(match entry.message {
        Message::User(User { summary: Some(summary), .. }) => summary.diffs,
        Message::User(_) | Message::Assistant(_) => vec![],
    })
}

/// Returns the changes of a session's files since it began.
///
/// # Errors
/// `session_not_found`, `store_unavailable`; those of [`diff_workspace`].
pub(crate) async fn diff_session(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<WorkspaceDiff, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    let session = gateway.state.store.get_session(tenant, session).await?;
    diff_workspace(&gateway.state, tenant, &session).await
}

/// Like [`diff_session`], for a session that is already loaded.
///
/// # Errors
/// `requests_too_many`, `workspace_lost`, `sandbox_unavailable`; refusals of the sandbox.
pub(in crate::app) async fn diff_workspace(
    state: &State,
    tenant: TenantId,
    session: &Session,
) -> Result<WorkspaceDiff, Error> {
    let request = v1::DiffWorkspaceRequest {
        tenant_id: tenant.to_string(),
        session_id: session.info.id.to_string(),
        bytes_max: u32::try_from(limits::DIFF_BYTES_MAX).unwrap_or(u32::MAX),
        workspace_session_id: session.workspace_id.to_string(),
        workspace_opening: Some(session.workspace_opening),
        // What the copy of a subtask began with is no change of the subtask.
        from_commit: session.forked_commit().unwrap_or_default().to_owned(),
    };
    let reader = state.file_reads.take(tenant).await?;
    let _permit = state.heavy_request(tenant).await?;
    let diff = reader.diff_workspace(request).await;
    let diff = diff.map_err(|status| Error::from(status).about_files(session.has_workspace))?;
    let stat = |file: v1::DiffStat| FileStat {
        path: file.path,
        additions: file.additions,
        deletions: file.deletions,
    };
    let files = diff.files.into_iter().map(stat).collect();
    Ok(WorkspaceDiff { patch: diff.patch, files, truncated: diff.truncated, left_out: diff.left_out })
}

/// Returns the whole output of a tool call.
///
/// # Errors
/// `session_not_found`, `sandbox_unavailable`, `store_unavailable`; refusals of the sandbox.
pub(crate) async fn get_tool_output(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    path: String,
) -> Result<Vec<u8>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    state.store.get_head(tenant, session).await?;
    let (tenant_id, session_id) = (tenant.to_string(), session.to_string());
    let request = v1::GetOutputRequest { tenant_id, session_id, path };
    Ok(state.sandbox.files().get_output(request).await?.data)
}

/// Exports the workspace of a session: its commits, and one under its title with what it has not committed. With `squash`, all of it is one commit.
///
/// # Errors
/// `session_not_found`, `requests_too_many`, `workspace_lost`, `sandbox_unavailable`, `store_unavailable`; refusals of the sandbox, also
/// later in the stream.
pub(crate) async fn export(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    squash: bool,
) -> Result<mpsc::Receiver<Result<ExportPiece, Error>>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let session = state.store.get_session(tenant, session).await?;
    let request = v1::ExportWorkspaceRequest {
        commit_message: session.info.title.clone(),
        squash,
        ..sandbox::export(tenant, &session)
    };
    let failure = move |status| Error::from(status).about_files(session.has_workspace);
    let permit = state.heavy_request(tenant).await?;
    let mut responses = state.sandbox.files().export_workspace(request).await.map_err(failure)?;
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    state.tasks.spawn("export", async move {
        let _permit = permit;
        loop {
            let piece = match responses.message().await {
                Ok(None) => return,
                // The base commit alone: it comes again with the commit.
                Ok(Some(piece)) if piece.commit.is_empty() && piece.data.is_empty() => continue,
                Ok(Some(v1::ExportWorkspaceResponse { data, commit, base_commit, left_out, .. })) => {
                    Ok(ExportPiece { data, commit, base_commit, left_out })
                }
                Err(status) => Err(failure(status)),
            };
            let is_error = piece.is_err();
            if sender.send(piece).await.is_err() || is_error {
                return;
            }
        }
    });
    Ok(receiver)
}
