//! Opens the workspace of a session whose loops have not opened it, as the first call of a tool would.

use crate::{
    app::settings::{self, SessionFiles},
    backends::sandbox::fence,
    errors::{error::Error, refusal::Refusal},
    state::{State, now},
};
use ::settings::merge::merge;
use domain::{
    egress::git::find_address,
    ids::{EventId, SessionId, TenantId},
    session::{Origin, Source},
};
use futures::{Stream, StreamExt as _, stream};
use rpc::v1::{self, ErrorCode, open_workspace_request::Part};
use store::{log::edits::Edit, rows::session_row::Session};
use tonic::Status;

/// Makes a call that needs the files of a session with a workspace of its own. If they were never opened, opens the workspace and repeats the
/// call.
///
/// # Errors
/// Those of `call`; `workspace_lost`; `workspace_missing` if a loop is about to open the files; refusals of the sandbox;
/// `store_unavailable`, `sandbox_unavailable`.
pub(in crate::app) async fn with_files<T, C: Future<Output = Result<T, Status>>>(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    call: impl Fn() -> C,
) -> Result<T, Error> {
    match call().await.map_err(Refusal::from) {
        Ok(answer) => Ok(answer),
        Err(missing) if missing.code == Some(ErrorCode::WorkspaceMissing) => {
            let stored = state.store.get_session(tenant, session).await?;
            if !stored.has_workspace {
                open(state, tenant, &stored, missing).await?;
            }
            // A loop may have opened the files since the first call. If it recorded that and they are missing, they are lost.
            match call().await.map_err(Refusal::from) {
                Err(again) if again.code == Some(ErrorCode::WorkspaceMissing) && stored.has_workspace => {
                    Err(Error::WorkspaceLost)
                }
                result => result.map_err(Error::Sandbox),
            }
        }
        Err(refusal) => Err(Error::Sandbox(refusal)),
    }
}

/// Opens the workspace of a session. With epoch 0 the sandbox opens only a workspace that no loop ever had. Otherwise a loop
/// knows more about the workspace, so the result is `missing`; so it is for files that only a loop can open.
///
/// # Errors
/// `missing`; refusals of the sandbox; `sandbox_unavailable`.
async fn open(state: &State, tenant: TenantId, session: &Session, missing: Refusal) -> Result<(), Error> {
    let session_id = &session.info.id;
    if needs_loop(state, tenant, session).await? {
        return Err(Error::Sandbox(missing));
    }
    let mut header = v1::WorkspaceHeader {
        fence: Some(fence(tenant, session)),
        // The gateway opens no door. The submodules that need one stay empty.
        git_prefixes: vec![],
        project_id: session.info.project_id.to_string(),
        ..v1::WorkspaceHeader::from(&session.source)
    };
    let sandbox = state.sandbox.files();
    if session.source.origin != Origin::Empty {
        let parts = messages(state, tenant, &session.source, header.clone());
        let parts = parts.map(|part| v1::CloneSourceRequest { workspace: Some(part) });
        // Boxed because the future is large and rarely needed.
        let cloned = Box::pin(sandbox.clone_source(parts)).await.map_err(Refusal::from);
        let cloned = cloned.map_err(|refusal| explain(refusal, &missing))?;
        let files = cloned.configuration.unwrap_or_default().files;
        let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
        let files = SessionFiles { session, above: &[], files: &files };
        // Only a loop brings what the environment describes.
        if settings::allowed_environment(state, tenant, files).await?.is_some() {
            return Err(Error::Sandbox(missing));
        }
        header.base_commit = cloned.base_commit;
    }
    let parts = messages(state, tenant, &session.source, header);
    let opened = Box::pin(sandbox.open_workspace(parts)).await.map_err(Refusal::from);
    let opened = opened.map_err(|refusal| explain(refusal, &missing))?;
    state.store.note_workspace(tenant, session_id).await?;
    announce_branch(state, tenant, session_id, opened.branch).await;
    Ok(())
}

/// A loop that has begun knows more about the files.
fn explain(refusal: Refusal, missing: &Refusal) -> Error {
    Error::Sandbox(if refusal.code == Some(ErrorCode::EpochStale) { missing.clone() } else { refusal })
}

/// The header and, for a bundle, its pieces from Postgres.
fn messages(
    state: &State,
    tenant: TenantId,
    source: &Source,
    header: v1::WorkspaceHeader,
) -> impl Stream<Item = v1::OpenWorkspaceRequest> + Send + use<> {
    let bundle = match &source.origin {
        Origin::Bundle(id) => Some(id.clone()),
        Origin::Empty | Origin::GitUrl(_) => None,
    };
    let pieces = stream::unfold((state.store.clone(), bundle, 0), move |(store, bundle, piece)| async move {
        match store.find_bundle_piece(tenant, bundle.as_deref()?, piece).await {
            Ok(data) => Some((Part::Data(data?), (store, bundle, piece + 1))),
            // The stream ends early, and the sandbox refuses the incomplete bundle.
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot read a bundle");
                None
            }
        }
    });
    let parts = stream::once(async { Part::Header(header) }).chain(pieces);
    parts.map(|part| v1::OpenWorkspaceRequest { part: Some(part) })
}

/// Whether only a loop can open the files: the settings name a credential for their repository, an image, variables, or a script. Only a loop brings
/// images, and it alone opens the door through which a private repository is cloned: two callers could take rules from each other.
async fn needs_loop(state: &State, tenant: TenantId, session: &Session) -> Result<bool, Error> {
    let stored = state.store.list_settings_of(tenant, &session.info.id).await?;
    let merged = state.settings_above(&stored).and_then(|documents| merge(&documents));
    // Settings that cannot be read end a turn with their own error.
    let Ok(settings) = merged.map(|merged| merged.settings) else { return Ok(false) };
    let has_credential = match &session.source.origin {
        Origin::GitUrl(url) => find_address(settings.git_credentials.keys(), url).is_some(),
        Origin::Empty | Origin::Bundle(_) => false,
    };
    let has_script = settings.install.is_some() || settings.start.is_some();
    Ok(has_credential || has_script || settings.image.is_some() || !settings.variables.is_empty())
}

/// Stores the branch of files that were just opened, and tells clients. If that fails, the next loop does so.
async fn announce_branch(state: &State, tenant: TenantId, session: &SessionId, branch: String) {
    if branch.is_empty() {
        return;
    }
    let edit = Edit::Branch(branch);
    match state.store.edit(tenant, session, &edit, &state.id(EventId::make), now()).await {
        Ok(events) => state.publisher.publish_events(tenant, session, &events),
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the branch of new files is not announced"
            );
        }
    }
}
