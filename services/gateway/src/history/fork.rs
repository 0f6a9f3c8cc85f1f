//! Another session from an earlier point of one: its history under new ids, and its files as a bundle that another
//! workspace starts from.

use super::{
    copy::{self, Maker, Until},
    point,
};
use crate::{
    auth::Principal,
    grpc::{from_sandbox, from_store},
    state::{State, now},
};
use domain::{
    event::Event,
    ids::{EventId, MessageId, PartId, SessionId, TenantId},
    limits,
    message::ModelRef,
    permission::Rules,
    session::{Origin, Source},
};
use rpc::{
    status::{error, not_found},
    v1::{self, ExportHistory, ForkFiles},
};
use sha2::{Digest as _, Sha256};
use store::{
    log::{
        change::{Change, ChangeBody},
        messages::MessageWithParts,
    },
    session::{
        creation::{IdempotencyKey, NewSession},
        forks::NewFork,
        row::Session,
    },
};
use tonic::{Code, Status};

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) session: SessionId,
    /// The first message that is not copied; `None`: all are.
    pub(crate) before: Option<MessageId>,
    pub(crate) files: ForkFiles,
    /// The caller's idempotency key; empty: none.
    pub(crate) key: String,
}

impl Asked {
    /// The name of the fork, by which a repeated call finds it.
    fn named(&self) -> Option<IdempotencyKey> {
        let before = self.before.as_ref().map_or("", MessageId::as_str);
        let body = format!("{} {before} {}", self.session, self.files.as_str_name());
        let body_sha256 = Some(Sha256::digest(body).into());
        (!self.key.is_empty()).then(|| IdempotencyKey { name: self.key.clone(), body_sha256 })
    }
}

/// Makes a session with the history and the files of another one, once for each key.
///
/// # Errors
/// `idempotency_conflict`, `session_not_found`, `message_not_found`, `snapshot_unknown`, `base_commit_missing`,
/// `bundle_too_large`, `sandbox_unavailable`, `store_unavailable`. There is then no new session.
pub(crate) async fn fork(state: &State, principal: &Principal, asked: &Asked) -> Result<Session, Status> {
    let (tenant, key) = (principal.tenant, asked.named());
    // Whatever became of its origin since then.
    if let Some(key) = &key
        && let Some(made) = state.store.find_keyed_session(tenant, key).await.map_err(from_store)?
    {
        return Ok(made);
    }
    let origin = state.store.get_session(tenant, &asked.session).await.map_err(from_store)?;
    let entries = state.store.load_conversation(tenant, &asked.session, 0).await.map_err(from_store)?;
    let until = until(asked, &origin, &entries);
    let missing = || not_found("message_not_found", "there is no such message");
    let copied = copy::before(&entries, &until).ok_or_else(missing)?;
    let snapshot = match (asked.files, until.message) {
        (ForkFiles::Now, _) | (_, None) => Some(String::new()),
        // Without any state the files never changed.
        (ForkFiles::Unspecified | ForkFiles::AtMessage, Some(message)) => {
            point::state_before(&entries, message).map(ToOwned::to_owned)
        }
    };
    let id = state.id(SessionId::make);
    let source = match snapshot {
        Some(snapshot) => source(state, tenant, (&origin, &id), &snapshot).await?,
        None => None,
    };
    let events = copy::events(&copied, (&id, &until), &mut Made(state), now());
    let history: Vec<Change> = events.into_iter().map(|event| change(state, event)).collect();
    let new = NewSession { key, ..like(&origin, id, source.unwrap_or_else(|| origin.source.clone())) };
    let event = state.id(EventId::make);
    let fork = NewFork { origin: &asked.session, session: &new, event_id: &event, history: &history };
    let forked = state.store.fork_session(tenant, fork, now()).await;
    let (session, events) = forked.map_err(from_store)?;
    state.publisher.publish_events(tenant, &session.info.id, &events);
    Ok(session)
}

/// Where the copy ends: where it is asked to, or earlier where the session is taken back to already.
fn until<'a>(asked: &'a Asked, origin: &'a Session, entries: &[MessageWithParts]) -> Until<'a> {
    let place = |id: &MessageId| entries.iter().position(|entry| entry.message.id() == id);
    let before = asked.before.as_ref();
    let Some(revert) = &origin.info.revert else { return Until { message: before, part: None } };
    let is_earlier = before.is_some_and(|before| place(before) <= place(&revert.message_id));
    if is_earlier {
        return Until { message: before, part: None };
    }
    Until { message: Some(&revert.message_id), part: revert.part_id.as_ref() }
}

fn change(state: &State, event: Event) -> Change {
    Change { id: state.id(EventId::make), body: ChangeBody::Event(event) }
}

fn like(origin: &Session, id: SessionId, source: Source) -> NewSession {
    let info = &origin.info;
    NewSession {
        id,
        project_id: info.project_id.clone(),
        title: copy::title(&info.title),
        agent: info.agent.clone(),
        model: ModelRef { provider_id: info.model.provider_id.clone(), model_id: info.model.id.clone() },
        chosen: origin.chosen,
        source,
        class: origin.class,
        // Those of the origin are copied with it.
        rules: Rules::default(),
        budget: origin.budget,
        on_ask: origin.on_ask,
        key: None,
    }
}

struct Made<'a>(&'a State);

impl Maker for Made<'_> {
    fn message(&mut self) -> MessageId {
        self.0.id(MessageId::make)
    }

    fn part(&mut self) -> PartId {
        self.0.id(PartId::make)
    }
}

/// Stores the files of a snapshot (empty: of now) as a bundle for the new session. `None` when there never were files.
async fn source(
    state: &State,
    tenant: TenantId,
    (origin, id): (&Session, &SessionId),
    snapshot: &str,
) -> Result<Option<Source>, Status> {
    let request = v1::ExportWorkspaceRequest {
        tenant_id: tenant.to_string(),
        session_id: origin.info.id.to_string(),
        workspace_session_id: origin.root_id.to_string(),
        history: ExportHistory::Whole.into(),
        snapshot: snapshot.to_owned(),
        ..Default::default()
    };
    let mut pieces =
        state.sandbox.clone().export_workspace(request).await.map_err(from_sandbox)?.into_inner();
    // The name of no other: uploads are named by their hash.
    let bundle = format!("fork:{id}");
    state.store.begin_bundle(tenant, &bundle, 0).await.map_err(from_store)?;
    let (mut commit, mut gathered, mut piece, mut size) = (String::new(), vec![], 0, 0);
    loop {
        let received = match pieces.message().await {
            Ok(Some(received)) => received,
            Ok(None) => break,
            Err(status) if is_without_files(&status) => return Ok(None),
            Err(status) => return Err(from_sandbox(status)),
        };
        if commit.is_empty() {
            commit = received.commit;
        }
        size += received.data.len() as u64;
        if size > limits::BUNDLE_BYTES_MAX {
            let text =
                format!("the files have more than {} bytes with their history", limits::BUNDLE_BYTES_MAX);
            return Err(error(Code::ResourceExhausted, "bundle_too_large", text));
        }
        gathered.extend(received.data);
        while gathered.len() >= limits::BUNDLE_PIECE_BYTES {
            let rest = gathered.split_off(limits::BUNDLE_PIECE_BYTES);
            let stored = state.store.put_bundle_piece(tenant, &bundle, piece, &gathered).await;
            stored.map_err(from_store)?;
            (gathered, piece) = (rest, piece + 1);
        }
    }
    state.store.put_bundle_piece(tenant, &bundle, piece, &gathered).await.map_err(from_store)?;
    state.store.begin_bundle(tenant, &bundle, size).await.map_err(from_store)?;
    state.store.complete_bundle(tenant, &bundle).await.map_err(from_store)?;
    Ok(Some(Source { origin: Origin::Bundle(bundle), revision: Some(commit), uncommitted: true }))
}

fn is_without_files(status: &Status) -> bool {
    rpc::status::code_of(status).as_deref() == Some("workspace_missing")
}
