//! Reverts a session to an earlier point, and undoes reverts. The files change now, under a hold that keeps the whole tree of the
//! session idle; the next prompt removes the messages. If a gateway dies in between, the stored intent remains, and the next call
//! finishes it.
// Continues in store::session::reverts, for the hold, and in store::session::inputs, where the next prompt removes the messages.

use super::{
    files::{Difference, Files},
    point,
};
use crate::{
    app::gateway::Gateway,
    auth::principal::Principal,
    errors::{entity::Entity, error::Error, refusal::Refusal},
    scope::Scope,
    state::{State, now},
};
use domain::{
    ids::{EventId, MessageId, PartId, SessionId, TenantId},
    limits,
    session::Revert,
};
use rpc::v1::ErrorCode;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use store::{
    Store,
    log::outline::MessageOutline,
    rows::session_row::Session,
    session::reverts::{Hold, HoldRelease, RevertResult},
};
use tokio::time::Instant;

/// Time limit of a revert; milliseconds. The gateway renews its hold for as long, and prompts are refused meanwhile.
const REVERT_WAIT_MS: u64 = 45_000;

/// Time between two renewals of a hold; milliseconds. Two may fail before the hold ends.
const RENEW_MS: u64 = limits::REVERT_HOLD_MS / 4;

/// The point that a client wants to revert a session to.
#[derive(Debug, Clone)]
pub(crate) struct RevertPoint {
    /// The first message to remove.
    pub(crate) message: MessageId,
    /// The first part of it to remove.
    pub(crate) part: Option<PartId>,
}

/// The operation on a held session.
#[derive(Debug, Clone)]
enum Operation {
    Revert(RevertPoint),
    Unrevert,
    /// Finish an unfinished earlier call, if there is one.
    Finish,
}

/// Why an operation failed, by its effect on the files.
enum Failure {
    /// It wrote no file.
    Unchanged(Error),
    /// It may have written files.
    Midway(Error),
}

impl Failure {
    fn unchanged(error: impl Into<Error>) -> Self {
        Self::Unchanged(error.into())
    }

    fn midway(error: impl Into<Error>) -> Self {
        Self::Midway(error.into())
    }
}

/// Reverts a session to before a message, or before one of its parts. Repeating the call changes nothing. A second revert to
/// another point starts from the files as they were before the first revert.
///
/// # Errors
/// `session_not_found`, `message_not_found`, `part_not_found`, `requests_too_many`, `session_busy`, `session_quarantined`,
/// `snapshot_unknown`, `workspace_missing`, `workspace_lost`, `sandbox_unavailable`, `store_unavailable`. For the last two, try again.
/// `file_not_permitted` names the files that could not be written or removed. If all files are again as they were before any revert, the session has none. If they
/// are not, the revert stays unfinished: repeat the call, or call [`unrevert`], when these files can be changed. The next prompt ends it with the files as they are.
pub(crate) async fn revert(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    point: RevertPoint,
) -> Result<Session, Error> {
    let tenant = principal.tenant(Scope::Write)?;
    let _permit = gateway.state.heavy_request(tenant).await?;
    with_hold(&gateway.state, tenant, session, Operation::Revert(point)).await
}

/// Restores the files to their state before [`revert`]. Without a revert it does nothing.
///
/// # Errors
/// Those of [`revert`].
pub(crate) async fn unrevert(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<Session, Error> {
    let tenant = principal.tenant(Scope::Write)?;
    let _permit = gateway.state.heavy_request(tenant).await?;
    with_hold(&gateway.state, tenant, session, Operation::Unrevert).await
}

/// Finishes an unfinished revert, so that the session accepts prompts again.
///
/// # Errors
/// Those of [`revert`]. After `file_not_permitted` the session has no revert, even if not all files are as they were: it must accept the next prompt.
pub(in crate::app) async fn finish(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
) -> Result<(), Error> {
    with_hold(state, tenant, session, Operation::Finish).await.map(drop)
}

/// Holds the session, performs the operation, and releases the hold. The operation continues if the caller
/// disconnects.
async fn with_hold(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    operation: Operation,
) -> Result<Session, Error> {
    let (tasks, state, session) = (state.tasks.clone(), state.clone(), session.clone());
    let work = async move {
        let since = Instant::now();
        let hold = state.store.hold_session(tenant, &session).await?;
        let limit = Duration::from_millis(REVERT_WAIT_MS);
        let files_done = AtomicBool::new(false);
        let result = tokio::select! {
            biased;
            result = tokio::time::timeout(limit, perform(&state, &hold, &files_done, operation)) => result,
            // The operation was dropped midway, for example at its time limit. The stored intent records that.
            lost = keep_hold(&state.store, &hold, &files_done, since) => Ok(Err(Failure::midway(lost))),
        };
        let (left, error) = match result {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(Failure::Unchanged(error))) => (HoldRelease::Unchanged, error),
            Ok(Err(Failure::Midway(error))) => (HoldRelease::Unfinished, error),
            Err(_) => (HoldRelease::Unfinished, Error::RevertTimedOut),
        };
        if let Err(error) = state.store.release_hold(&hold, left).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot release a hold; it expires");
        }
        let has_workspace = state.store.get_session(tenant, &session).await?.has_workspace;
        Err(error.about_files(has_workspace))
    };
    tasks.run("revert", work).await.ok_or(Error::GatewayStopped)?
}

/// Renews a hold that began at `since` until the files are written. Ends when the hold is lost, or may be lost as far as this
/// gateway can tell: from then on other sessions may use the files.
async fn keep_hold(
    store: &Store,
    hold: &Hold,
    files_done: &AtomicBool,
    since: Instant,
) -> store::error::Error {
    let ttl = Duration::from_millis(limits::REVERT_HOLD_MS - limits::LEASE_MARGIN_MS);
    let mut until = since + ttl;
    loop {
        tokio::time::sleep(Duration::from_millis(RENEW_MS)).await;
        let sent_at = Instant::now();
        let renewed = tokio::time::timeout_at(until, store.renew_hold(hold)).await;
        if files_done.load(Ordering::Relaxed) {
            // The operation itself ends the hold now, and reports the result.
            return std::future::pending().await;
        }
        match renewed {
            Ok(Ok(())) => until = sent_at + ttl,
            Ok(Err(error)) if error.is_transient() && Instant::now() < until => {}
            Ok(Err(error)) => return error,
            Err(_) => return store::error::Error::timed_out(),
        }
    }
}

async fn perform(
    state: &State,
    hold: &Hold,
    files_done: &AtomicBool,
    operation: Operation,
) -> Result<Session, Failure> {
    let outline = state.store.load_outline(hold.tenant, &hold.session).await.map_err(Failure::unchanged)?;
    let files = Files::new(state.sandbox.files().clone(), hold);
    let must_end = matches!(operation, Operation::Finish);
    let work = Work { state, hold, files_done, files, outline, must_end };
    match operation {
        Operation::Revert(point) => work.revert(&point.message, point.part.as_ref()).await,
        Operation::Finish => match hold.revert.clone().filter(|_| hold.is_unfinished) {
            Some(revert) => work.revert(&revert.message_id, revert.part_id.as_ref()).await,
            None => work.end(hold.revert.clone(), Difference::default()).await,
        },
        Operation::Unrevert => work.unrevert().await,
    }
}

struct Work<'a> {
    state: &'a State,
    hold: &'a Hold,
    /// Set when the operation will write no more files.
    files_done: &'a AtomicBool,
    files: Files,
    outline: Vec<MessageOutline>,
    /// Whether the session must accept the next prompt, even if some files cannot be restored.
    must_end: bool,
}

impl Work<'_> {
    async fn revert(self, message: &MessageId, part: Option<&PartId>) -> Result<Session, Failure> {
        let missing = part.map_or(Entity::Message, |_| Entity::Part);
        let point = point::find(&self.outline, message, part)
            .ok_or_else(|| Failure::unchanged(Error::NotFound(missing)))?;
        let first_snapshot = self.hold.revert.as_ref().and_then(|revert| revert.snapshot.clone());
        let mut revert = Revert {
            message_id: point.message,
            part_id: point.part,
            snapshot: first_snapshot.clone(),
            diff: None,
        };
        if point.files.is_empty() && first_snapshot.is_none() {
            return self.end(Some(revert), Difference::default()).await;
        }
        let snapshot = match first_snapshot.clone() {
            Some(snapshot) => snapshot,
            None => self.files.track().await.map_err(Failure::unchanged)?,
        };
        revert.snapshot = Some(snapshot.clone());
        self.intend(&revert).await?;
        if first_snapshot.is_some() {
            // The first revert may have changed files that this point does not include.
            self.restore(&snapshot).await?;
        }
        if let Err(status) = self.files.revert(point.files).await {
            return self.undo(&snapshot, status.into()).await;
        }
        let changes = self.files.diff(&snapshot, "").await.map_err(Failure::midway)?;
        revert.diff = Some(changes.files.iter().filter_map(|file| file.patch.as_deref()).collect());
        let total = self.total(&changes.state).await;
        self.end(Some(revert), total).await
    }

    async fn unrevert(self) -> Result<Session, Failure> {
        let revert = self.hold.revert.clone();
        let Some((revert, snapshot)) =
            revert.and_then(|it| it.snapshot.clone().map(|snapshot| (it, snapshot)))
        else {
            return self.end(None, Difference::default()).await;
        };
        self.intend(&revert).await?;
        self.restore(&snapshot).await?;
        let total = self.total(&snapshot).await;
        self.end(None, total).await
    }

    async fn intend(&self, revert: &Revert) -> Result<(), Failure> {
        self.state.store.intend_revert(self.hold, revert).await.map_err(Failure::unchanged)
    }

    /// Restores the files to their state before any revert. If some of them cannot be written or removed, the revert stays unfinished: only the revert names the
    /// snapshot, and a person may make these files writable and try again. A prompt ends the revert, because nothing else would let the session accept prompts.
    async fn restore(&self, snapshot: &str) -> Result<(), Failure> {
        let Err(status) = self.files.restore(snapshot).await else { return Ok(()) };
        let refusal = Refusal::from(status);
        if refusal.code == Some(ErrorCode::SnapshotUnknown) {
            // The sandbox wrote no file.
            return Err(Failure::unchanged(Error::Sandbox(refusal)));
        }
        if self.must_end && refusal.code == Some(ErrorCode::FileNotPermitted) {
            let total = self.total("").await;
            self.end(None, total).await?;
        }
        Err(Failure::midway(Error::Sandbox(refusal)))
    }

    /// Abandons a revert that the sandbox refused: the files return to their state before any revert.
    async fn undo(self, snapshot: &str, refused: Error) -> Result<Session, Failure> {
        self.restore(snapshot).await?;
        self.end(None, Difference::default()).await?;
        Err(Failure::Midway(refused))
    }

    /// The changes of the session from its first state to `to`; an empty name means the current files. A failure is only logged: the sandbox may no longer have that
    /// state.
    async fn total(&self, to: &str) -> Difference {
        let Some(from) = point::first_state(&self.outline) else { return Difference::default() };
        match self.files.diff(from, to).await {
            Ok(difference) => difference,
            Err(status) => {
                tracing::debug!("cannot read the changes of the session: {}", status.message());
                Difference::default()
            }
        }
    }

    async fn end(&self, revert: Option<Revert>, total: Difference) -> Result<Session, Failure> {
        self.files_done.store(true, Ordering::Relaxed);
        let ids = [self.state.id(EventId::make), self.state.id(EventId::make)];
        let diff = (!total.state.is_empty()).then_some(total.files);
        let ended =
            self.state.store.finish_revert(self.hold, RevertResult { revert, diff }, ids, now()).await;
        let (session, events) = ended.map_err(Failure::midway)?;
        self.state.publisher.publish_events(self.hold.tenant, &self.hold.session, &events);
        Ok(session)
    }
}
