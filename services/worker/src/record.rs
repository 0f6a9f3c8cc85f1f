//! The only writer of a session: each write is fenced by the epoch, numbered, retried while its outcome is in doubt,
//! and published after its commit.
// Continues in gateway::streams::subscription, which forwards what is published here.

use crate::{clock::now, conversation::Conversation, deps::Deps};
use domain::{
    event::Event,
    ids::{EventId, MessageId, PartId, SessionId, TenantId},
    limits,
    money::{Tokens, UsdPicos},
    session::Changes,
};
use std::{sync::Arc, time::Duration};
use store::{
    error::Error,
    log::{
        change::{Change, ChangeBody, Spend, Title},
        chunks::Chunk,
        record::{Fence, Progress, WriteReceipt},
    },
    session::{
        park::{Park, ParkOutcome},
        tree::children::{Dispatch, DispatchOutcome, NewChild},
    },
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

/// Why a loop must stop writing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    /// Another worker owns the session.
    #[error("another worker took the session over")]
    Fenced,
    /// Postgres refused the write, or was away for too long; the session is left to whoever comes next.
    #[error("write to Postgres")]
    Store(#[source] Error),
}

/// How the end of a loop was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Yes,
    /// An input came first: nothing was written.
    NewInput,
}

/// The right to write one session, and what was written last.
pub(crate) struct Record {
    deps: Arc<Deps>,
    fence: Fence,
    /// The newest input that the loop has looked at.
    seen_input: u64,
    /// The newest input that is stored as taken.
    input_ack: u64,
    /// The newest input that a write has seen in the row.
    newest_input: u64,
    /// The newest abort that a write has seen in the row.
    newest_cancel: u64,
    newest_event: u64,
    /// The worker's place for one suspect, until this session is none any more.
    lane: Option<OwnedSemaphorePermit>,
}

impl Record {
    pub(crate) fn new(
        deps: Arc<Deps>,
        taken: &store::session::runs::TakeOver,
        lane: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            deps,
            fence: taken.fence.clone(),
            seen_input: taken.input_ack,
            input_ack: taken.input_ack,
            newest_input: 0,
            newest_cancel: 0,
            newest_event: 0,
            lane,
        }
    }

    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.fence.tenant
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.fence.session
    }

    pub(crate) fn input_ack(&self) -> u64 {
        self.input_ack
    }

    /// Says that the loop has looked at the inputs up to `seq`.
    pub(crate) fn saw_input(&mut self, seq: u64) {
        self.seen_input = self.seen_input.max(seq);
    }

    /// Whether the newest write found no input that the loop has not looked at.
    pub(crate) fn has_seen_all(&self) -> bool {
        self.newest_input > 0 && self.newest_input <= self.seen_input
    }

    /// Whether a write found an abort that the loop has not looked at.
    pub(crate) fn abort_waits(&self) -> bool {
        self.newest_cancel > self.seen_input
    }

    /// Writes events. `ack` takes the inputs that the loop has looked at.
    pub(crate) async fn write(
        &mut self,
        conversation: &mut Conversation,
        events: Vec<Event>,
        progress: Progress,
    ) -> Result<(), Stopped> {
        self.commit(conversation, events.into_iter().map(ChangeBody::Event), progress).await
    }

    /// As [`Record::write`], and adds to what the session spent.
    pub(crate) async fn write_spending(
        &mut self,
        conversation: &mut Conversation,
        events: Vec<Event>,
        spent: (Tokens, UsdPicos),
    ) -> Result<(), Stopped> {
        let spent = ChangeBody::Spend(Spend { tokens: spent.0, cost: spent.1 });
        let all = events.into_iter().map(ChangeBody::Event).chain([spent]);
        self.commit(conversation, all, Progress::Made).await
    }

    /// Writes how much the session's files changed, and then events.
    pub(crate) async fn write_changes(
        &mut self,
        conversation: &mut Conversation,
        changes: Changes,
        events: Vec<Event>,
    ) -> Result<(), Stopped> {
        let all = std::iter::once(ChangeBody::FileSummary(changes))
            .chain(events.into_iter().map(ChangeBody::Event));
        self.commit(conversation, all, Progress::None).await
    }

    /// Names the session unless somebody else did.
    pub(crate) async fn write_title(
        &mut self,
        conversation: &mut Conversation,
        title: Title,
    ) -> Result<(), Stopped> {
        self.commit(conversation, std::iter::once(ChangeBody::Title(title)), Progress::None).await
    }

    async fn commit(
        &mut self,
        conversation: &mut Conversation,
        all: impl Iterator<Item = ChangeBody>,
        progress: Progress,
    ) -> Result<(), Stopped> {
        let changes: Vec<Change> = all.map(|what| self.change(what)).collect();
        let fence = self.next_fence();
        if domain::mutant::on(domain::mutant::Mutant::AckAhead) {
            self.seen_input = self.seen_input.max(self.newest_input);
        }
        let (ack, at) = (self.seen_input, now());
        let store = self.deps.store.clone();
        let written = settled(|| store.append(&fence, &changes, ack, progress, at)).await?;
        self.input_ack = self.input_ack.max(ack);
        if progress == Progress::Made {
            self.lane = None;
        }
        self.committed(conversation, &changes, &written);
        Ok(())
    }

    /// Ends the loop, unless an input came that it has not looked at.
    pub(crate) async fn park(
        &mut self,
        conversation: &mut Conversation,
        events: Vec<Event>,
        park: &Park,
    ) -> Result<Ended, Stopped> {
        let changes: Vec<Change> =
            events.into_iter().map(|event| self.change(ChangeBody::Event(event))).collect();
        let fence = Fence { write_seq: self.fence.write_seq + 1, ..self.fence.clone() };
        let (seen, at) = (self.seen_input, now());
        let store = self.deps.store.clone();
        let ParkOutcome::Parked(written) = settled(|| store.park(&fence, &changes, seen, park, at)).await?
        else {
            // What the row says now is not known: the next look reads it.
            self.newest_input = 0;
            return Ok(Ended::NewInput);
        };
        self.fence = fence;
        self.committed(conversation, &changes, &written);
        Ok(Ended::Yes)
    }

    /// Makes a child together with `events` of this session. Gives whether it was made, or why not.
    pub(crate) async fn dispatch(
        &mut self,
        conversation: &mut Conversation,
        events: Vec<Event>,
        child: &NewChild,
        dispatch: Dispatch,
    ) -> Result<DispatchOutcome, Stopped> {
        let changes: Vec<Change> =
            events.into_iter().map(|event| self.change(ChangeBody::Event(event))).collect();
        let fence = Fence { write_seq: self.fence.write_seq + 1, ..self.fence.clone() };
        let (store, at) = (self.deps.store.clone(), now());
        let dispatched = settled(|| store.dispatch_child(&fence, &changes, child, dispatch, at)).await?;
        if let DispatchOutcome::Dispatched { parent, child: events } = &dispatched {
            self.fence = fence;
            self.committed(conversation, &changes, parent);
            self.deps.publisher.publish_events(self.fence.tenant, &child.prompt.user.session_id, events);
        }
        Ok(dispatched)
    }

    /// Leaves the session to a worker of another version.
    pub(crate) async fn refuse(&self, why: &str) -> Result<(), Stopped> {
        let store = self.deps.store.clone();
        settled(|| store.refuse(&self.fence, why)).await
    }

    /// Leaves the session to the next worker.
    pub(crate) async fn hand_over(&self) -> Result<(), Stopped> {
        let store = self.deps.store.clone();
        settled(|| store.hand_over(&self.fence)).await
    }

    /// Keeps a piece of an open part against a crash. Best effort: the whole part follows.
    pub(crate) async fn chunk(&self, part_id: &PartId, offset_bytes: u64, text: &str) -> Result<(), Stopped> {
        let chunk = Chunk { part_id: part_id.clone(), offset_bytes, text: text.to_owned() };
        let (tenant, session, epoch) = (self.fence.tenant, &self.fence.session, self.fence.epoch);
        match answered(self.deps.store.append_chunk(tenant, session, epoch, &chunk)).await {
            Err(Error::Fenced) => Err(Stopped::Fenced),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "a chunk was not stored");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Sends a fragment to whoever watches.
    pub(crate) fn delta(&self, message: &MessageId, part: &PartId, offset: u64, text: String) {
        let delta = bus::feed::Delta {
            epoch: self.fence.epoch,
            message: message.clone(),
            part: part.clone(),
            offset,
            text,
        };
        self.publish(&bus::feed::News::Delta(delta));
    }

    /// Tells whoever watches that the loop is alive.
    pub(crate) fn beat(&self) {
        self.publish(&bus::feed::News::Beat { epoch: self.fence.epoch, seq: self.newest_event });
    }

    fn publish(&self, news: &bus::feed::News) {
        self.deps.publisher.publish(self.fence.tenant, &self.fence.session, news);
    }

    fn change(&self, body: ChangeBody) -> Change {
        Change { id: self.deps.id(EventId::make), body }
    }

    fn next_fence(&mut self) -> Fence {
        self.fence.write_seq += 1;
        self.fence.clone()
    }

    fn committed(&mut self, conversation: &mut Conversation, changes: &[Change], written: &WriteReceipt) {
        for (change, stored) in changes.iter().zip(&written.events) {
            if let ChangeBody::Event(event) = &change.body {
                conversation.apply(event, stored.seq);
            }
            self.newest_event = stored.seq;
        }
        self.deps.publisher.publish_events(self.fence.tenant, &self.fence.session, &written.events);
        self.newest_input = self.newest_input.max(written.input_seq);
        self.newest_cancel = self.newest_cancel.max(written.cancel_seq);
    }
}

/// Waits for an answer of Postgres for a bounded time: a connection that lost its other end says nothing for ever, while the
/// lease, on a connection of its own, goes on.
pub(crate) async fn answered<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let patience = Duration::from_millis(limits::STORE_ANSWER_MS);
    tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| Err(Error::timed_out()))
}

/// Repeats a write whose outcome is in doubt: with the same number it is the same write.
async fn settled<T, F>(mut write: impl FnMut() -> F) -> Result<T, Stopped>
where
    F: Future<Output = Result<T, Error>>,
{
    let until = Instant::now() + Duration::from_millis(limits::RECORD_RETRY_MS);
    let mut wait = Duration::from_millis(50);
    loop {
        match answered(write()).await {
            Ok(value) => return Ok(value),
            Err(Error::Fenced) => return Err(Stopped::Fenced),
            Err(error) if error.is_transient() && Instant::now() < until => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a write is in doubt and is repeated"
                );
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(1));
            }
            Err(error) => return Err(Stopped::Store(error)),
        }
    }
}
