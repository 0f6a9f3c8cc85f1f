//! Lets a session continue whose files the sandbox machine lost.

use super::edits;
use crate::{
    app::{
        gateway::Gateway,
        sessions::note::{NoteContext, note},
    },
    auth::principal::Principal,
    backends::sandbox::fence,
    errors::{error::Error, invalid::Invalid, refusal::Refusal},
    scope::Scope,
};
use domain::{
    conversation::part::Text,
    ids::SessionId,
    session::{WORKSPACE, restart_note},
};
use rpc::v1::{self, ErrorCode};
use store::log::edits::Edit;

/// Bytes of the listing that tells whether the files exist; its text is not used.
const LISTING_BYTES_MAX: u32 = 1_024;
/// Who decided, in the note that tells the model.
const DECISION: &str = "A person decided to continue";

/// Forgets the lost files of a session, so that its next turn opens its source again, and leaves a note for the model.
///
/// # Errors
/// `session_not_found`, `workspace_not_lost`, `session_busy`, `session_quarantined`, `revert_unfinished`, `requests_too_many`,
/// `sandbox_unavailable`, `store_unavailable`.
pub(crate) async fn restart_workspace(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<(), Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    let owner = state.store.get_session(tenant, session).await?.workspace_id;
    let owner = state.store.get_session(tenant, &owner).await?;
    if !owner.has_workspace {
        let message = "the files of this session were never opened; its next prompt opens them";
        return Err(Invalid::WorkspaceNotLost.because(message));
    }
    // Any call for the files tells whether they exist.
    let request = v1::ReadLinesRequest {
        fence: Some(fence(tenant, &owner)),
        path: WORKSPACE.to_owned(),
        lines_max: 1,
        bytes_max: LISTING_BYTES_MAX,
        ..Default::default()
    };
    let reader = state.file_reads.take(tenant).await?;
    match reader.read_lines(request).await.map_err(Refusal::from) {
        Err(refusal) if refusal.code == Some(ErrorCode::WorkspaceMissing) => {}
        Err(refusal) => return Err(Error::Sandbox(refusal)),
        Ok(_) => return Err(Invalid::WorkspaceNotLost.because("the session has its files")),
    }
    drop(reader);
    let note = note(state, NoteContext::of(&owner), Text::synthetic(restart_note(DECISION)));
    edits::edit(gateway, principal, &owner.info.id, &Edit::RestartWorkspace(note)).await
}
