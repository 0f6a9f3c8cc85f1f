//! Taking a session back, and forward again: the files now, under a hold that lets nothing of its tree begin; the messages
//! with the next prompt. A gateway that dies in between leaves an intent; whoever comes next ends it.
// Continues in store::session::reverts, for the hold, and in store::session::inputs, where the next prompt removes the messages.

mod copy;
mod files;
pub(crate) mod fork;
mod point;

use crate::{
    auth::Principal,
    grpc::{from_sandbox, from_store},
    state::{State, now},
};
use domain::{
    ids::{EventId, MessageId, PartId, SessionId, TenantId},
    limits,
    session::Revert,
};
use files::{Difference, Files};
use rpc::status::{not_found, unavailable};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use store::{
    Store,
    error::Error,
    log::messages::MessageWithParts,
    session::{
        reverts::{Hold, HoldRelease, RevertResult},
        row::Session,
    },
};
use tokio::time::Instant;
use tonic::Status;

/// What is asked of a held session.
#[derive(Debug, Clone)]
enum Asked {
    /// Take it back to before a message, or a part of one.
    Back(MessageId, Option<PartId>),
    /// Take that back.
    Forward,
    /// End what was begun, if anything was.
    Finish,
}

/// Why a held session is not as it was asked to be.
enum Failed {
    /// No file was written.
    Before(Status),
    /// Files were written, or nobody knows.
    Midway(Status),
}

/// Takes a session back to before a message, or before one of its parts. Doing it again changes nothing; another point is
/// reckoned from what the files were before the first time.
///
/// # Errors
/// `session_not_found`, `message_not_found`, `part_not_found`, `session_busy`, `session_quarantined`, `snapshot_unknown`,
/// `workspace_missing`, `sandbox_unavailable`, `store_unavailable`. After the last two: do it again.
pub(crate) async fn revert(
    state: &State,
    principal: &Principal,
    session: &SessionId,
    point: (MessageId, Option<PartId>),
) -> Result<Session, Status> {
    held(state, principal.tenant, session, Asked::Back(point.0, point.1)).await
}

/// Brings the files back to what they were before [`revert`]. Without a revert nothing happens.
///
/// # Errors
/// As those of [`revert`].
pub(crate) async fn unrevert(
    state: &State,
    principal: &Principal,
    session: &SessionId,
) -> Result<Session, Status> {
    held(state, principal.tenant, session, Asked::Forward).await
}

/// Ends a revert that was begun and not ended, so that prompts are taken again.
///
/// # Errors
/// As those of [`revert`].
pub(crate) async fn finish(state: &State, tenant: TenantId, session: &SessionId) -> Result<(), Status> {
    held(state, tenant, session, Asked::Finish).await.map(drop)
}

/// Time between two renewals of a hold; milliseconds. Two may fail before it ends.
const RENEW_MS: u64 = limits::REVERT_HOLD_MS / 4;

/// Holds the session, does it, and lets go. Goes on when the caller leaves.
async fn held(state: &State, tenant: TenantId, session: &SessionId, asked: Asked) -> Result<Session, Status> {
    let (state, session) = (state.clone(), session.clone());
    let work = async move {
        let since = Instant::now();
        let hold = state.store.hold_session(tenant, &session).await.map_err(from_store)?;
        let patience = Duration::from_millis(limits::REVERT_WAIT_MS);
        let files_done = AtomicBool::new(false);
        let done = tokio::select! {
            biased;
            done = tokio::time::timeout(patience, perform(&state, &hold, &files_done, asked)) => done,
            // Dropped midway, as at the end of the patience: the intent says so.
            lost = keep(&state.store, &hold, &files_done, since) => Ok(Err(Failed::Midway(from_store(lost)))),
        };
        let (left, status) = match done {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(Failed::Before(status))) => (HoldRelease::Unchanged, status),
            Ok(Err(Failed::Midway(status))) => (HoldRelease::Unfinished, status),
            Err(_) => {
                let text = "the files are not reverted in time; do it again";
                (HoldRelease::Unfinished, unavailable("sandbox_unavailable", text))
            }
        };
        if let Err(error) = state.store.release_hold(&hold, left).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a hold ends only by its time");
        }
        Err(status)
    };
    let lost = |_| unavailable("gateway_stopped", "the gateway stops; do it again");
    tokio::spawn(work).await.map_err(lost)?
}

/// Renews a hold that was had at `since` until the files are done. Ends when it is over before, or may be by what is known
/// here: from then on others may work with the files.
async fn keep(store: &Store, hold: &Hold, files_done: &AtomicBool, since: Instant) -> Error {
    let lasts = Duration::from_millis(limits::REVERT_HOLD_MS - limits::LEASE_MARGIN_MS);
    let mut until = since + lasts;
    loop {
        tokio::time::sleep(Duration::from_millis(RENEW_MS)).await;
        let asked = Instant::now();
        let renewed = tokio::time::timeout_at(until, store.renew_hold(hold)).await;
        if files_done.load(Ordering::Relaxed) {
            // The work itself ends the hold now, and tells how that went.
            return std::future::pending().await;
        }
        match renewed {
            Ok(Ok(())) => until = asked + lasts,
            Ok(Err(error)) if error.is_transient() && Instant::now() < until => {}
            Ok(Err(error)) => return error,
            Err(_) => return Error::timed_out(),
        }
    }
}

async fn perform(
    state: &State,
    hold: &Hold,
    files_done: &AtomicBool,
    asked: Asked,
) -> Result<Session, Failed> {
    let before = |error| Failed::Before(from_store(error));
    let entries = state.store.load_conversation(hold.tenant, &hold.session, 0).await.map_err(before)?;
    let files = Files::new(state.sandbox.clone(), hold);
    let work = Work { state, hold, files_done, files, entries };
    match asked {
        Asked::Back(message, part) => work.back(&message, part.as_ref()).await,
        Asked::Finish => match hold.revert.clone().filter(|_| hold.is_unfinished) {
            Some(revert) => work.back(&revert.message_id, revert.part_id.as_ref()).await,
            None => work.end(hold.revert.clone(), Difference::default()).await,
        },
        Asked::Forward => work.forward().await,
    }
}

struct Work<'a> {
    state: &'a State,
    hold: &'a Hold,
    /// Set when no file will be written any more.
    files_done: &'a AtomicBool,
    files: Files,
    entries: Vec<MessageWithParts>,
}

impl Work<'_> {
    async fn back(self, message: &MessageId, part: Option<&PartId>) -> Result<Session, Failed> {
        let missing = || match part {
            Some(_) => not_found("part_not_found", "there is no such part of that message"),
            None => not_found("message_not_found", "there is no such message"),
        };
        let point = point::find(&self.entries, message, part).ok_or_else(|| Failed::Before(missing()))?;
        let until_now = self.hold.revert.as_ref().and_then(|revert| revert.snapshot.clone());
        let mut revert = Revert {
            message_id: point.message,
            part_id: point.part,
            snapshot: until_now.clone(),
            diff: None,
        };
        if point.files.is_empty() && until_now.is_none() {
            return self.end(Some(revert), Difference::default()).await;
        }
        let snapshot = match until_now.clone() {
            Some(snapshot) => snapshot,
            None => self.files.track().await.map_err(|status| Failed::Before(from_sandbox(status)))?,
        };
        revert.snapshot = Some(snapshot.clone());
        self.intend(&revert).await?;
        if until_now.is_some() {
            // Another point may leave files alone that the first one took back.
            self.restore(&snapshot).await?;
        }
        if let Err(status) = self.files.revert(point.files).await {
            return self.undo(&snapshot, from_sandbox(status)).await;
        }
        let changed = self.files.differ(&snapshot, "").await;
        let changed = changed.map_err(|status| Failed::Midway(from_sandbox(status)))?;
        revert.diff = Some(changed.files.iter().filter_map(|file| file.patch.as_deref()).collect());
        let whole = self.whole(&changed.state).await;
        self.end(Some(revert), whole).await
    }

    async fn forward(self) -> Result<Session, Failed> {
        let Some(revert) = self.hold.revert.clone() else {
            return self.end(None, Difference::default()).await;
        };
        let Some(snapshot) = revert.snapshot.clone() else {
            return self.end(None, Difference::default()).await;
        };
        self.intend(&revert).await?;
        self.restore(&snapshot).await?;
        let whole = self.whole(&snapshot).await;
        self.end(None, whole).await
    }

    async fn intend(&self, revert: &Revert) -> Result<(), Failed> {
        let intended = self.state.store.intend_revert(self.hold, revert).await;
        intended.map_err(|error| Failed::Before(from_store(error)))
    }

    async fn restore(&self, snapshot: &str) -> Result<(), Failed> {
        self.files.restore(snapshot).await.map_err(|status| {
            let is_unknown = rpc::status::code_of(&status).as_deref() == Some("snapshot_unknown");
            let status = from_sandbox(status);
            // Then no file was written.
            if is_unknown { Failed::Before(status) } else { Failed::Midway(status) }
        })
    }

    /// Gives up a revert that the sandbox refused: the files are what they were before any.
    async fn undo(self, snapshot: &str, refused: Status) -> Result<Session, Failed> {
        self.restore(snapshot).await?;
        self.end(None, Difference::default()).await?;
        Err(Failed::Midway(refused))
    }

    /// What the session changed since its first state. Not worth a failure: that state may be forgotten by now.
    async fn whole(&self, to: &str) -> Difference {
        let Some(from) = point::first_state(&self.entries) else { return Difference::default() };
        match self.files.differ(from, to).await {
            Ok(difference) => difference,
            Err(status) => {
                tracing::debug!("the session's changes are not known: {}", status.message());
                Difference::default()
            }
        }
    }

    async fn end(&self, revert: Option<Revert>, whole: Difference) -> Result<Session, Failed> {
        self.files_done.store(true, Ordering::Relaxed);
        let ids = [self.state.id(EventId::make), self.state.id(EventId::make)];
        let diff = (!whole.state.is_empty()).then_some(whole.files);
        let ended =
            self.state.store.finish_revert(self.hold, RevertResult { revert, diff }, ids, now()).await;
        let (session, events) = ended.map_err(|error| Failed::Midway(from_store(error)))?;
        self.state.publisher.publish_events(self.hold.tenant, &self.hold.session, &events);
        Ok(session)
    }
}
