//! Forks a session: a new session with a copy of the history under new ids, and with the files as a bundle that its workspace starts
//! from.

use super::{
    copy::{self, Copier, CopyEnd, IdSource},
    point,
};
use crate::{
    app::{admission, checks, gateway::Gateway},
    auth::principal::Principal,
    backends::sandbox,
    errors::{entity::Entity, error::Error, refusal::Refusal},
    quotas::Growth,
    scope::Scope,
    state::{State, now},
};
use bus::feed::News;
use domain::{
    conversation::message::ModelRef,
    event::Event,
    ids::{EventId, MessageId, PartId, SessionId, TenantId},
    limits,
    policy::permission::Rules,
    session::{FilesCopy, Source},
};
use rpc::v1::{self, ErrorCode, ExportHistory};
use sha2::{Digest as _, Sha256};
use store::{
    log::{
        change::{Change, ChangeBody},
        messages::MessageWithParts,
        outline::MessageOutline,
    },
    rows::session_row::Session,
    session::{
        creation::{IdempotencyKey, NewSession},
        forks::{Fork, NewFork},
    },
    tenant::bundle_writer::BundleWriter,
};

/// A client's request for a fork.
#[derive(Debug, Clone)]
pub(crate) struct ForkRequest {
    pub(crate) session: SessionId,
    /// The first message that is not copied; `None`: all messages are copied.
    pub(crate) before: Option<MessageId>,
    pub(crate) files: ForkFiles,
    pub(crate) idempotency_key: String,
}

/// The files that a fork starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForkFiles {
    /// Same as `AtMessage`, but the two have different idempotency hashes.
    Default,
    /// The files at the end of the copied history.
    AtMessage,
    Now,
}

impl ForkRequest {
    /// The hash by which a repeated call finds the fork.
    fn key(&self) -> Option<IdempotencyKey> {
        let before = self.before.as_ref().map_or("", MessageId::as_str);
        // The values of the gRPC API: gateways of all versions hash the same text.
        let files = match self.files {
            ForkFiles::Default => "FORK_FILES_UNSPECIFIED",
            ForkFiles::AtMessage => "FORK_FILES_AT_MESSAGE",
            ForkFiles::Now => "FORK_FILES_NOW",
        };
        let body_sha256 = Some(Sha256::digest(format!("{} {before} {files}", self.session)).into());
        (!self.idempotency_key.is_empty())
            .then(|| IdempotencyKey { name: self.idempotency_key.clone(), body_sha256 })
    }
}

/// Creates a session with the history and the files of another one, once for each key.
///
/// # Errors
/// `idempotency_key_too_long`, `idempotency_key_invalid`, `idempotency_conflict`, `session_not_found`, `message_not_found`,
/// `sessions_too_many`, `storage_full`, `requests_too_many`, `snapshot_unknown`, `workspace_lost`, `base_commit_missing`, `bundle_too_large`, `history_too_large`, `sandbox_unavailable`,
/// `store_unavailable`. On error no session was created.
pub(crate) async fn fork(
    gateway: &Gateway,
    principal: &Principal,
    request: &ForkRequest,
) -> Result<Session, Error> {
    let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
    let tenant = account.tenant;
    checks::idempotency_key(&request.idempotency_key)?;
    let key = request.key();
    // Check this before the origin is read: the origin may have been deleted since the first call.
    if let Some(key) = &key
        && let Some(fork) = state.store.find_keyed_session(tenant, key).await?
    {
        return Ok(fork);
    }
    admission::admit(state, account, &[Growth::SESSION, Growth::bytes(1)]).await?;
    let _permit = state.heavy_request(tenant).await?;
    let origin = state.store.get_session(tenant, &request.session).await?;
    let outline = state.store.load_outline(tenant, &request.session).await?;
    let end = copy_end(request, &origin, &outline);
    let before_seq = end.before_seq(&outline).ok_or(Error::NotFound(Entity::Message))?;
    let snapshot = match (request.files, end.message) {
        (ForkFiles::Now, _) | (ForkFiles::Default | ForkFiles::AtMessage, None) => Some(String::new()),
        // No snapshot: the files never changed.
        (ForkFiles::Default | ForkFiles::AtMessage, Some(message)) => {
            point::state_before(&outline, message).map(ToOwned::to_owned)
        }
    };
    let id = state.id(SessionId::make);
    let source = match snapshot {
        Some(snapshot) => bundle_files(state, tenant, &origin, snapshot).await?,
        None => None,
    };
    let source = source.unwrap_or_else(|| origin.source.clone());
    let new = NewSession { key, ..like(&origin, id.clone(), source) };
    let mut copier = Copier::new(&id, end, StateIds(state), now());
    let mut copy = |entries: &[MessageWithParts]| {
        copier.events(entries).into_iter().map(|event| change(state, event)).collect()
    };
    let event = state.id(EventId::make);
    let _turn = state.room.turn(Some(tenant)).await?;
    let fork = NewFork { origin: &request.session, session: &new, event_id: &event, before_seq };
    let Fork { session, created } = state.store.fork_session(tenant, fork, &mut copy, now()).await?;
    if let Some(created) = created {
        let news = News::Beat { epoch: created.epoch, seq: session.event_seq };
        state.publisher.publish_events(tenant, &session.info.id, &[created]);
        state.publisher.publish(tenant, &session.info.id, &news);
    }
    Ok(session)
}

/// The end of the copy: the requested message, or an earlier one if the session is reverted to an earlier point.
fn copy_end<'a>(request: &'a ForkRequest, origin: &'a Session, outline: &[MessageOutline]) -> CopyEnd<'a> {
    let position = |id: &MessageId| outline.iter().position(|message| message.id == *id);
    let before = request.before.as_ref();
    let Some(revert) = &origin.info.revert else { return CopyEnd { message: before, part: None } };
    let is_earlier = before.is_some_and(|before| position(before) <= position(&revert.message_id));
    if is_earlier {
        return CopyEnd { message: before, part: None };
    }
    CopyEnd { message: Some(&revert.message_id), part: revert.part_id.as_ref() }
}

fn change(state: &State, event: Event) -> Change {
    Change { id: state.id(EventId::make), body: ChangeBody::Event(event) }
}

fn like(origin: &Session, id: SessionId, source: Source) -> NewSession {
    let info = &origin.info;
    NewSession {
        id,
        project_id: info.project_id.clone(),
        // The store copies the worktree of the origin.
        worktree_id: None,
        title: copy::title(&info.title),
        agent: info.agent.clone(),
        model: ModelRef { provider_id: info.model.provider_id.clone(), model_id: info.model.id.clone() },
        // The store copies the variant of the origin.
        variant: None,
        chosen: origin.chosen,
        source: Some(source),
        class: origin.class,
        // The store copies the rules of the origin.
        rules: Rules::default(),
        budget: origin.budget,
        on_ask: origin.on_ask,
        tries_environment: false,
        key: None,
    }
}

struct StateIds<'a>(&'a State);

impl IdSource for StateIds<'_> {
    fn message(&mut self) -> MessageId {
        self.0.id(MessageId::make)
    }

    fn part(&mut self) -> PartId {
        self.0.id(PartId::make)
    }
}

/// Stores the files of a snapshot (empty: the current files) as a bundle. `None`: the origin has no files yet.
async fn bundle_files(
    state: &State,
    tenant: TenantId,
    origin: &Session,
    snapshot: String,
) -> Result<Option<Source>, Error> {
    let request = v1::ExportWorkspaceRequest {
        history: ExportHistory::Whole.into(),
        snapshot,
        ..sandbox::export(tenant, origin)
    };
    let mut pieces = state.sandbox.files().export_workspace(request).await?;
    let mut next = match pieces.message().await.map_err(Refusal::from) {
        Ok(first) => first,
        Err(refusal) if refusal.code == Some(ErrorCode::WorkspaceMissing) && !origin.has_workspace => {
            return Ok(None);
        }
        Err(refusal) => return Err(Error::Sandbox(refusal).about_files(origin.has_workspace)),
    };
    let mut bundle = BundleWriter::begin(&state.store, tenant).await?;
    let (mut commit, mut install) = (String::new(), None);
    while let Some(piece) = next {
        if commit.is_empty() {
            commit = piece.commit;
            install = Some(piece.install_key).filter(|key| !key.is_empty());
        }
        if bundle.size_bytes() + piece.data.len() as u64 > limits::BUNDLE_BYTES_MAX {
            return Err(Error::ForkTooLarge(limits::BUNDLE_BYTES_MAX));
        }
        bundle.add(&piece.data).await?;
        let received = pieces.message().await.map_err(Refusal::from);
        next = received.map_err(|refusal| Error::Sandbox(refusal).about_files(origin.has_workspace))?;
    }
    let bundle = bundle.close().await?.publish(None).await?;
    Ok(Some(origin.source.copied(&origin.workspace_id, FilesCopy { bundle, commit, install })))
}
