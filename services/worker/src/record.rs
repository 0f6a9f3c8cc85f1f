//! The only writer of a session, with the conversation as it is stored. Each write is fenced by the epoch, numbered, retried
//! while its outcome is in doubt, and published after its commit.
// Continues in gateway::streams::subscription, which forwards the published events.

use crate::{
    conversation::{kept::KeptConversation, memory::Conversation},
    process::{
        clock::now,
        deps::Deps,
        store_timeout::{retry_while_away, with_store_timeout},
    },
};
use bus::feed::Departure;
use domain::{
    event::Event,
    ids::{EventId, MessageId, PartId, SessionId, TenantId},
    session::Info,
};
use std::{sync::Arc, time::Duration};
use store::{
    error::Error,
    log::{
        change::{Change, ChangeBody, Charge, KnownSession},
        chunks::Chunk,
        record::{Fence, Progress, WriteReceipt},
    },
    loop_start::KeptPosition,
    rows::ledger::LedgerEntry,
    session::{
        park::{Park, ParkOutcome},
        tree::children::{Dispatch, DispatchOutcome, NewChild},
    },
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

/// Time for which a loop repeats a write whose outcome is in doubt. After that it leaves the session to another worker.
const RECORD_RETRY: Duration = Duration::from_secs(60);

/// Why a loop must stop writing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Another worker owns the session.
    #[error("another worker took over the session")]
    Fenced,
    /// Postgres refused the write, or did not answer for too long. Another worker continues the session.
    #[error("write to Postgres")]
    Store(#[source] Error),
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        match error {
            Error::Fenced => Self::Fenced,
            error => Self::Store(error),
        }
    }
}

/// What a loop stores in one transaction.
pub(crate) struct Write {
    changes: Vec<ChangeBody>,
    progress: Progress,
    when: When,
}

/// When a write happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Now,
    /// With the next write, which stores it before its own changes. The conversation has it at once. The loop flushes before it waits for anything but an
    /// open model call.
    WithNext,
}

impl Write {
    /// Events that clients see.
    pub(crate) fn of(events: Vec<Event>) -> Self {
        let changes = events.into_iter().map(ChangeBody::Event).collect();
        Self { changes, progress: Progress::None, when: When::Now }
    }

    /// One change of another kind.
    pub(crate) fn change(change: ChangeBody) -> Self {
        Self { changes: vec![change], ..Self::of(vec![]) }
    }

    /// Adds a change.
    pub(crate) fn and(mut self, change: ChangeBody) -> Self {
        self.changes.push(change);
        self
    }

    /// Adds the cost of model calls to that of the session.
    pub(crate) fn and_cost(self, entries: Vec<LedgerEntry>) -> Self {
        self.and(ChangeBody::Spend(Charge::new(entries)))
    }

    /// The write may count as progress of the loop.
    pub(crate) fn with_progress(self, progress: Progress) -> Self {
        Self { progress, ..self }
    }

    /// Lets the write wait for the next one. A worker that dies before stores none of it.
    pub(crate) fn with_next(self) -> Self {
        Self { when: When::WithNext, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParkResult {
    Parked,
    /// An input arrived first; nothing was written.
    NewInput,
}

/// The right to write one session, the stored conversation, and the state that the last write found.
pub(crate) struct Record {
    deps: Arc<Deps>,
    fence: Fence,
    conversation: Conversation,
    /// The newest input that the loop has read.
    read_input: u64,
    /// The newest input that is stored as acknowledged.
    input_ack: u64,
    /// The newest input that a write found in the control row.
    newest_input: u64,
    /// The newest abort that a write found in the control row.
    newest_cancel: u64,
    newest_event: u64,
    /// Its id; empty before the first write.
    newest_event_id: String,
    /// Whether all events since the loop began are its own: the conversation then has everything.
    is_alone: bool,
    /// The session as clients see it after the newest event; `None`: unknown, because others have written too.
    info: Option<Box<Info>>,
    /// Changes that the next write stores before its own. The conversation has them already.
    later: Vec<Change>,
    /// Whether one of them shows progress of the loop.
    later_progress: Progress,
    /// The worker's slot for suspects, until this session makes progress.
    suspect_slot: Option<OwnedSemaphorePermit>,
}

impl Record {
    /// The record of a session that was read before its conversation; `None`: it cannot be read.
    pub(crate) fn new(
        deps: Arc<Deps>,
        taken: &store::session::runs::TakeOver,
        conversation: Conversation,
        known: Option<KnownSession>,
        suspect_slot: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let (newest_event, info) = known.map_or((0, None), |known| (known.event_seq, Some(known.info)));
        Self {
            deps,
            fence: taken.fence.clone(),
            conversation,
            read_input: taken.input_ack,
            input_ack: taken.input_ack,
            newest_input: 0,
            newest_cancel: 0,
            newest_event,
            newest_event_id: String::new(),
            is_alone: true,
            info,
            later: vec![],
            later_progress: Progress::None,
            suspect_slot,
        }
    }

    pub(crate) fn deps(&self) -> Arc<Deps> {
        Arc::clone(&self.deps)
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

    /// The conversation, with everything that this record has written.
    pub(crate) fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Reads the new part of the conversation.
    ///
    /// # Errors
    /// `Unreadable` for data of a newer version; `Db`.
    pub(crate) async fn read_conversation(&mut self) -> Result<(), Error> {
        let store = self.deps.store.clone();
        let read = self.conversation.read(&store, self.fence.tenant, &self.fence.session);
        with_store_timeout(read).await
    }

    /// Reads the whole conversation if the beginning of the turn is not in memory.
    ///
    /// # Errors
    /// As [`Record::read_conversation`].
    pub(crate) async fn complete_conversation(&mut self) -> Result<(), Error> {
        let store = self.deps.store.clone();
        let read = self.conversation.complete(&store, self.fence.tenant, &self.fence.session);
        with_store_timeout(read).await
    }

    pub(crate) fn input_ack(&self) -> u64 {
        self.input_ack
    }

    /// Records that the loop has read the inputs up to `seq`.
    pub(crate) fn note_read(&mut self, seq: u64) {
        self.read_input = self.read_input.max(seq);
    }

    /// Whether the newest write found no input that the loop has not read.
    pub(crate) fn has_read_all(&self) -> bool {
        self.newest_input > 0 && self.newest_input <= self.read_input
    }

    /// Whether a write found an abort that the loop has not read.
    pub(crate) fn abort_waits(&self) -> bool {
        self.newest_cancel > self.read_input
    }

    /// Stores changes, and acknowledges the inputs that the loop has read.
    pub(crate) async fn write(&mut self, write: Write) -> Result<(), WriteError> {
        let Write { changes, progress, when } = write;
        match when {
            When::Now => self.commit(changes, progress).await,
            When::WithNext => {
                self.take_later(changes);
                if progress == Progress::Made {
                    self.later_progress = Progress::Made;
                }
                Ok(())
            }
        }
    }

    fn take_later(&mut self, all: Vec<ChangeBody>) {
        let changes: Vec<Change> = all.into_iter().map(|what| self.change(what)).collect();
        // The changes get their positions with the write. Until then those that they would get now order them after everything else.
        for (change, seq) in changes.iter().zip(self.newest_event + 1..) {
            if let ChangeBody::Event(event) = &change.body {
                self.conversation.apply(event, seq);
            }
        }
        self.later.extend(changes);
    }

    /// Stores what waits for the next write, if there is anything.
    pub(crate) async fn flush(&mut self) -> Result<(), WriteError> {
        if self.later.is_empty() {
            return Ok(());
        }
        self.commit(vec![], Progress::None).await
    }

    async fn commit(&mut self, all: Vec<ChangeBody>, progress: Progress) -> Result<(), WriteError> {
        let progress = match std::mem::replace(&mut self.later_progress, Progress::None) {
            Progress::Made => Progress::Made,
            Progress::None => progress,
        };
        let later = std::mem::take(&mut self.later);
        let applied = later.len();
        let changes =
            self.with_known_session(later.into_iter().chain(all.into_iter().map(|what| self.change(what))));
        let fence = self.next_fence();
        let (ack, at) = (self.read_input, now());
        let store = self.deps.store.clone();
        let written = retry_in_doubt(|| store.append(&fence, &changes, ack, progress, at)).await?;
        self.input_ack = self.input_ack.max(ack);
        if progress == Progress::Made {
            self.suspect_slot = None;
        }
        self.note_written(&changes, applied, &written);
        Ok(())
    }

    /// Parks the session with these changes, unless an input arrived that the loop has not read.
    pub(crate) async fn park(
        &mut self,
        changes: Vec<ChangeBody>,
        park: &Park,
    ) -> Result<ParkResult, WriteError> {
        let new = changes.into_iter().map(|what| self.change(what));
        let changes = self.with_known_session(self.later.iter().cloned().chain(new));
        let fence = Fence { write_seq: self.fence.write_seq + 1, ..self.fence.clone() };
        let (read_input, at) = (self.read_input, now());
        let store = self.deps.store.clone();
        let ParkOutcome::Parked(written) =
            retry_in_doubt(|| store.park(&fence, &changes, read_input, park, at)).await?
        else {
            // The state of the control row is unknown after this: the next look reads it.
            self.newest_input = 0;
            return Ok(ParkResult::NewInput);
        };
        self.fence = fence;
        let applied = std::mem::take(&mut self.later).len();
        self.later_progress = Progress::None;
        self.note_written(&changes, applied, &written);
        Ok(ParkResult::Parked)
    }

    /// Creates a child together with `events` of this session. Returns whether it was created, or why not.
    pub(crate) async fn dispatch(
        &mut self,
        events: Vec<Event>,
        child: &NewChild,
        dispatch: Dispatch,
    ) -> Result<DispatchOutcome, WriteError> {
        self.flush().await?;
        let changes: Vec<Change> =
            events.into_iter().map(|event| self.change(ChangeBody::Event(event))).collect();
        let fence = Fence { write_seq: self.fence.write_seq + 1, ..self.fence.clone() };
        let (store, at) = (self.deps.store.clone(), now());
        let dispatched =
            retry_in_doubt(|| store.dispatch_child(&fence, &changes, child, dispatch, at)).await?;
        if let DispatchOutcome::Dispatched { parent, child: events } = &dispatched {
            self.fence = fence;
            self.note_written(&changes, 0, parent);
            self.deps.publisher.publish_events(self.fence.tenant, &child.prompt.session_id, events);
        }
        Ok(dispatched)
    }

    /// Leaves the session to a worker of another version.
    pub(crate) async fn refuse(&self, why: &str) -> Result<(), WriteError> {
        let store = self.deps.store.clone();
        retry_in_doubt(|| store.refuse(&self.fence, why)).await
    }

    /// Leaves the session to the next worker.
    pub(crate) async fn hand_over(&self) -> Result<(), WriteError> {
        let store = self.deps.store.clone();
        retry_in_doubt(|| store.hand_over(&self.fence)).await
    }

    /// Stores a chunk of an open part, in case the worker dies. Best effort: the whole part follows.
    pub(crate) async fn chunk(
        &self,
        part_id: &PartId,
        offset_bytes: u64,
        text: &str,
    ) -> Result<(), WriteError> {
        let chunk = Chunk { part_id: part_id.clone(), offset_bytes, text: text.to_owned() };
        let (tenant, session, epoch) = (self.fence.tenant, &self.fence.session, self.fence.epoch);
        match with_store_timeout(self.deps.store.append_chunk(tenant, session, epoch, &chunk)).await {
            Err(Error::Fenced) => Err(WriteError::Fenced),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot store a chunk");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Sends a fragment of text to the subscribers, and returns its way out of this process.
    pub(crate) fn delta(&self, message: &MessageId, part: &PartId, offset: u64, text: String) -> Departure {
        let delta = bus::feed::Delta {
            epoch: self.fence.epoch,
            message: message.clone(),
            part: part.clone(),
            offset,
            text,
        };
        self.deps.publisher.publish_delta(self.fence.tenant, &self.fence.session, delta)
    }

    /// Tells the subscribers that the loop is alive.
    pub(crate) fn beat(&self) {
        self.publish(&bus::feed::News::Beat { epoch: self.fence.epoch, seq: self.newest_event });
    }

    /// Keeps the conversation of the session, which is parked, for its next turn, unless something other than this loop wrote to the session: the conversation
    /// may lack that.
    pub(crate) fn keep_conversation(&mut self, kept_at: Instant) {
        if !self.is_alone || self.newest_event_id.is_empty() {
            return;
        }
        let conversation = std::mem::take(&mut self.conversation);
        let position = KeptPosition {
            event_seq: self.newest_event,
            event_id: std::mem::take(&mut self.newest_event_id),
            read_after: conversation.read_after(),
        };
        let (tenant, session) = (self.fence.tenant, self.fence.session.clone());
        self.deps.kept.put(KeptConversation { tenant, session, position, conversation, kept_at });
    }

    fn publish(&self, news: &bus::feed::News) {
        self.deps.publisher.publish(self.fence.tenant, &self.fence.session, news);
    }

    fn change(&self, body: ChangeBody) -> Change {
        Change { id: self.deps.id(EventId::make), body }
    }

    /// Adds the session, as the loop knows it, to the changes that charge it.
    fn with_known_session(&self, changes: impl Iterator<Item = Change>) -> Vec<Change> {
        let known =
            self.info.as_ref().map(|info| KnownSession { event_seq: self.newest_event, info: info.clone() });
        let mut changes: Vec<Change> = changes.collect();
        for change in &mut changes {
            if let ChangeBody::Spend(charge) = &mut change.body {
                charge.known.clone_from(&known);
            }
        }
        changes
    }

    fn next_fence(&mut self) -> Fence {
        self.fence.write_seq += 1;
        self.fence.clone()
    }

    /// Takes over what a write stored. The conversation has the first `applied` changes already.
    fn note_written(&mut self, changes: &[Change], applied: usize, written: &WriteReceipt) {
        for (change, stored) in changes.iter().zip(&written.events).skip(applied) {
            match &change.body {
                ChangeBody::Event(event) => self.conversation.apply(event, stored.seq),
                ChangeBody::Answer { message, .. } => {
                    self.conversation.apply(&Event::MessageUpdated(message.clone()), stored.seq);
                }
                ChangeBody::Spend(_) | ChangeBody::FileSummary(_) | ChangeBody::Title(_) => {}
            }
        }
        let follows = written.events.first().is_none_or(|first| first.seq == self.newest_event + 1);
        self.is_alone &= follows;
        self.info = written.session.clone().or_else(|| self.info.take().filter(|_| follows));
        if let Some(newest) = written.events.last() {
            self.newest_event = newest.seq;
            self.newest_event_id.clone_from(&newest.id);
        }
        self.deps.publisher.publish_events(self.fence.tenant, &self.fence.session, &written.events);
        self.newest_input = self.newest_input.max(written.input_seq);
        self.newest_cancel = self.newest_cancel.max(written.cancel_seq);
    }
}

/// Repeats a write while its outcome is in doubt. A repetition with the same number is the same write.
async fn retry_in_doubt<T, F>(write: impl FnMut() -> F) -> Result<T, WriteError>
where
    F: Future<Output = Result<T, Error>>,
{
    retry_while_away(RECORD_RETRY, write).await.map_err(|error| match error {
        Error::Fenced => WriteError::Fenced,
        error => WriteError::Store(error),
    })
}
