//! Opens the workspace of a session that has not had a prompt yet, as its first prompt would.

use crate::ground::{
    error::Error,
    services::sandbox::{Reason, Refusal, fence},
    state::{State, now},
};
use domain::{
    egress::git::find_address,
    ids::{EventId, SessionId, TenantId},
    session::Origin,
    text::is_sha256,
};
use futures::{StreamExt as _, stream};
use rpc::v1::{self, open_workspace_request::Part};
use settings::merge::merge;
use store::{log::edits::Edit, session::row::Session};
use tonic::Status;

/// Makes a call that needs the files of a root session. If they were never opened, opens the workspace and repeats the
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
        Err(missing) if missing.reason == Reason::WorkspaceMissing => {
            let stored = state.store.get_session(tenant, session).await?;
            if !stored.has_workspace {
                open(state, tenant, &stored, missing).await?;
            }
            // A loop may have opened the files since the first call. If it recorded that and they are missing, they are lost.
            match call().await.map_err(Refusal::from) {
                Err(again) if again.reason == Reason::WorkspaceMissing && stored.has_workspace => {
                    Err(Error::WorkspaceLost)
                }
                result => result.map_err(Error::Sandbox),
            }
        }
        Err(refusal) => Err(Error::Sandbox(refusal)),
    }
}

/// Opens the workspace of a root session. With epoch 0 the sandbox opens only a workspace that no loop ever had. Otherwise a loop
/// knows more about the workspace, so the result is `missing`; so it is for files that only a loop can open.
///
/// # Errors
/// `missing`; refusals of the sandbox; `sandbox_unavailable`.
async fn open(state: &State, tenant: TenantId, session: &Session, missing: Refusal) -> Result<(), Error> {
    let (source, session_id) = (session.source.clone(), &session.info.id);
    if needs_loop(state, tenant, session).await? {
        return Err(Error::Sandbox(missing));
    }
    let (git_url, bundle) = match source.origin {
        Origin::Empty => (String::new(), None),
        Origin::GitUrl(url) => (url, None),
        Origin::Bundle(id) => (String::new(), Some(id)),
    };
    let header = v1::WorkspaceHeader {
        fence: Some(fence(tenant, session)),
        git_url,
        bundle: bundle.is_some(),
        revision: source.revision.unwrap_or_default(),
        uncommitted: source.uncommitted,
        // Forks of earlier versions have bundles with other names.
        bundle_sha256: bundle.clone().filter(|id| is_sha256(id)).unwrap_or_default(),
        image: None,
        environment_key: String::new(),
        install: None,
        start: String::new(),
        // The gateway opens no door. The submodules that need one stay empty.
        git_prefixes: vec![],
        project_id: session.info.project_id.to_string(),
    };
    let store = state.store.clone();
    let pieces = stream::unfold((store, bundle, 0), move |(store, bundle, piece)| async move {
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
    let messages = parts.map(|part| v1::OpenWorkspaceRequest { part: Some(part) });
    let mut sandbox = state.sandbox.files();
    // Boxed because the future is large and rarely needed.
    match Box::pin(sandbox.open_workspace(messages)).await.map_err(Refusal::from) {
        Ok(opened) => {
            state.store.note_workspace(tenant, session_id).await?;
            announce_branch(state, tenant, session_id, opened.into_inner().branch).await;
            Ok(())
        }
        Err(refusal) if refusal.reason == Reason::EpochStale => Err(Error::Sandbox(missing)),
        Err(refusal) => Err(Error::Sandbox(refusal)),
    }
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
