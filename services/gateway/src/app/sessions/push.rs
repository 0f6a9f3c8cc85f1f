//! Pushes what a session has made: the sandbox exports its files as a commit, and the broker brings the commit to the repository that they came
//! from. Both streams pass through here, and nothing of them is kept. The broker begins when the sandbox names the base commit, and works while the sandbox reads the
//! files.
// Continues in broker::push::pusher.

use super::note::{NoteContext, note};
use crate::{
    app::gateway::Gateway,
    auth::principal::Principal,
    backends::sandbox,
    errors::{error::Error, invalid::Invalid},
    scope::Scope,
    state::{State, now},
};
use chassis::telemetry::AUDIT;
use domain::{
    conversation::part::Text,
    egress::{
        PushReceipt,
        push::{PUSH_MESSAGE_BYTES_MAX, SESSION_TRAILER},
    },
    ids::{EventId, SessionId, TenantId},
    session::Source,
};
use rpc::{
    push::{CarriedPush, CarryError},
    v1,
};
use settings::{
    merge::merge,
    push::{PushDestination, PushDestinationError},
};
use store::{Actor, error::Error as StoreError, people::pushes::SessionPush, rows::session_row::Session};

/// A client's request for a push.
#[derive(Debug, Clone)]
pub(crate) struct PushRequest {
    pub(crate) session: SessionId,
    /// Empty: the branch of the session.
    pub(crate) branch: String,
    /// Empty: the title of the session.
    pub(crate) message: String,
    /// Whether nothing is pushed: the person only wants to see what would be.
    pub(crate) is_preview: bool,
    /// Whether the commits of the session become one with all else.
    pub(crate) squash: bool,
}

/// Pushes a session, and stores the push in its log; or finds out what would be pushed, and stores nothing. A subtask is pushed as the session whose workspace it uses; a copy goes to the repository of its root
/// session.
///
/// # Errors
/// `scope_missing`, `session_not_found`, `text_too_long`, `push_source_missing`, `push_not_configured`, `push_branch_invalid`, `settings_unreadable`,
/// `requests_too_many`, `workspace_lost`, `sandbox_unavailable`; refusals of the sandbox and the broker;
/// `broker_unavailable`, `store_unavailable`, `gateway_stopped`: pushed or not. A repeated push finds what is pushed, and stores that in the log if the
/// newest push to the branch there brought another commit.
///
/// Dropped midway: the push goes on and is stored like any other.
pub(crate) async fn push(
    gateway: &Gateway,
    principal: &Principal,
    request: &PushRequest,
) -> Result<CarriedPush, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    let named = state.store.get_session(tenant, &request.session).await?;
    let root = find_other(state, tenant, &named, &named.root_id).await?;
    let owner = find_other(state, tenant, &named, &named.workspace_id).await?;
    check_message(&request.message)?;
    state.broker.check_push()?;
    let destination = find_destination(state, tenant, &root.source, &owner.info.id, request).await?;
    let permit = state.heavy_request(tenant).await?;
    let (task_state, request, by) = (state.clone(), request.clone(), principal.actor());
    // Boxed because the future is large.
    let work = Box::pin(async move {
        let _permit = permit;
        let state = &task_state;
        if !request.is_preview {
            let object = format!("{} {} {}", owner.info.id, destination.url, destination.branch);
            state.store.acting(by.clone()).note_action(tenant, "session.push_begin", &object).await?;
        }
        let result = transfer(state, tenant, &owner, &destination, &request).await;
        tracing::info!(
            target: AUDIT,
            {
                tenant.id = %tenant,
                session.id = %owner.info.id,
                git.url = destination.url,
                git.branch = %destination.branch,
                git.commit = result.as_ref().ok().map(|pushed| pushed.answer.commit.as_str()),
                git.is_preview = request.is_preview,
                actor = by.name,
                error.code = result.as_ref().err().map(Error::code),
            },
            "a push of a session ended"
        );
        let pushed = result?;
        if request.is_preview {
            return Ok(pushed);
        }
        let recorded = record(state, tenant, &owner, &pushed.answer, &by).await;
        recorded.map(|()| pushed)
    });
    // Once the branch has moved, the log must say so, also if the client has left.
    state.tasks.run("push", work).await.ok_or(Error::GatewayStopped)?
}

/// Stores a push in the log of its session, and tells clients. The session may have been deleted meanwhile.
///
/// # Errors
/// `store_unavailable`, `store_failed`.
async fn record(
    state: &State,
    tenant: TenantId,
    owner: &Session,
    pushed: &v1::PushResponse,
    by: &Actor,
) -> Result<(), Error> {
    let v1::PushResponse { url, branch, commit, commits, files, .. } = pushed.clone();
    let receipt = PushReceipt { url, branch, commit, commits, files };
    let text = Text::note(format!("flotilla push by {}: {}", by.name, receipt.sentence()));
    let note = note(state, NoteContext::of(owner), text);
    let (session, id) = (&owner.info.id, state.id(EventId::make));
    let push = SessionPush { receipt, by: by.name.clone(), note };
    match state.store.acting(by.clone()).record_push(tenant, session, push, &id, now()).await {
        Ok(events) => state.publisher.publish_events(tenant, session, &events),
        Err(StoreError::NotFound(_)) => tracing::info!(session.id = %session, "a pushed session is deleted"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Reads the session `id`, unless it is the one that was read already.
async fn find_other(
    state: &State,
    tenant: TenantId,
    known: &Session,
    id: &SessionId,
) -> Result<Session, Error> {
    if known.info.id == *id {
        return Ok(known.clone());
    }
    Ok(state.store.get_session(tenant, id).await?)
}

fn check_message(message: &str) -> Result<(), Error> {
    if message.len() > PUSH_MESSAGE_BYTES_MAX || message.contains('\0') {
        let text = format!("the message of the commit may have {PUSH_MESSAGE_BYTES_MAX} bytes, without NUL");
        return Err(Invalid::TextTooLong.because(text));
    }
    Ok(())
}

async fn find_destination(
    state: &State,
    tenant: TenantId,
    source: &Source,
    session: &SessionId,
    request: &PushRequest,
) -> Result<PushDestination, Error> {
    // What a client says of a bundle leads nowhere else than a session that the same person starts with this URL.
    let url = source.push_url().ok_or(Error::PushSourceMissing)?;
    let stored = state.store.list_settings_of(tenant, session).await?;
    let merged = state.settings_above(&stored).and_then(|documents| merge(&documents));
    let rules = merged.map_err(|problems| Error::SettingsUnreadable(problems.to_string()))?.settings.git_push;
    PushDestination::find(&rules, url, &request.branch, session).map_err(|error| match error {
        PushDestinationError::NotConfigured => Error::PushNotConfigured(without_user(url)),
        PushDestinationError::Branch(_) => Invalid::PushBranch.because(error.to_string()),
    })
}

/// A URL without the part in front of its host.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Carries the commit from the sandbox to the broker.
async fn transfer(
    state: &State,
    tenant: TenantId,
    owner: &Session,
    destination: &PushDestination,
    request: &PushRequest,
) -> Result<CarriedPush, Error> {
    let PushRequest { message, squash, is_preview, .. } = request;
    let session = &owner.info.id;
    let message = if message.trim().is_empty() { &owner.info.title } else { message };
    let export = v1::ExportWorkspaceRequest {
        commit_message: message.trim_end().to_owned(),
        message_line: format!("{SESSION_TRAILER}{session}"),
        squash: *squash,
        ..sandbox::export(tenant, owner)
    };
    let has_workspace = owner.has_workspace;
    let failure = move |status| Error::from(status).about_files(has_workspace);
    let pieces = state.sandbox.files().export_workspace(export).await.map_err(failure)?;
    let header = v1::PushHeader {
        tenant_id: tenant.to_string(),
        project_id: owner.info.project_id.to_string(),
        session_id: session.to_string(),
        is_preview: *is_preview,
        ..v1::PushHeader::from(destination)
    };
    let (messages, carrier) = rpc::push::begin(pieces, header).await.map_err(failure)?;
    carrier.end(state.broker.push(messages)).await.map_err(|error| match error {
        CarryError::Export(status) => failure(status),
        CarryError::Push(error) => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_user() {
        for (url, want) in [
            ("https://ann:hunter2@h.org/a", "https://h.org/a"),
            ("ssh://git@h.org", "ssh://h.org"),
            ("https://h.org/a@b", "https://h.org/a@b"),
        ] {
            assert_eq!(without_user(url), want);
        }
    }
}
