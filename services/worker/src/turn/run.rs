//! A session's loop: dispatches between the turn, which decides, and the concerns, which act. All writes of the session go through
//! this task, one after the other; the model's stream and the tools report to it.

use super::{
    compaction,
    concerns::Concerns,
    prompt::{
        calls, commands,
        expansion::Expansion,
        files::{self, FilesRead},
    },
    snapshots::Tracked,
    stored::StoredSession,
    titling, tool_calls,
    waits::doubt,
};
use crate::{
    conversation::{kept::KeptConversation, memory::Conversation},
    model::call::ModelEvent,
    process::{clock::now, control::Control, deps::Deps, regain::regain, store_timeout::with_store_timeout},
    record::{Record, WriteError},
    repository::guidance::GuidanceError,
    tools::{
        context::{CallEvent, Report},
        outcome::ToolError,
    },
};
use bus::queue::{Slots, Yield};
use domain::turn::{action::Action, signal::Signal, state::State, view::View};
use llm::event::Event as StreamEvent;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use store::{log::change::Title, loop_start::LoopStart, session::runs::TakeOver};
use tokio::time::{Instant, sleep_until};

/// Time between two heartbeats of a loop to its subscribers; milliseconds.
const LOOP_BEAT_MS: u64 = 5_000;

/// How a loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    /// The session is parked.
    Parked,
    /// Another worker continues the session.
    HandedOver,
    /// A worker of a newer version must continue the session, because this version cannot read what is stored.
    Refused,
    /// Another worker owns the session, or Postgres is down. If this worker still owns the row, its sweep gives it back.
    Dropped,
}

/// A session's loop on this worker.
struct Loop {
    concerns: Concerns,
    /// When the loop next tells its subscribers that it is alive.
    beat_at: Instant,
}

/// An event for which a loop waits.
enum LoopEvent {
    Nudge,
    Drain,
    Opened(Result<(), GuidanceError>),
    FilesRead(FilesRead),
    Expanded(Result<Vec<Expansion>, ToolError>),
    Tracked(Tracked),
    Titled(Option<Box<Title>>),
    Report(Box<Report>),
    Model(Result<StreamEvent, llm::error::Error>),
    Tick,
}

/// Runs the loop of a taken session, which begins with `start` and perhaps with `kept`, until the session is parked, handed over or lost.
pub(crate) async fn run(
    deps: Arc<Deps>,
    taken: TakeOver,
    start: Result<LoopStart, store::error::Error>,
    kept: Option<KeptConversation>,
    control: Control,
) -> LoopEnd {
    let stored = match start.and_then(|start| StoredSession::new(&deps, start, kept)) {
        Ok(stored) => stored,
        Err(error @ store::error::Error::Unreadable { .. }) => {
            return Box::pin(refuse(&deps, &taken, &error)).await;
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot read a session");
            return LoopEnd::Dropped;
        }
    };
    // Borrowed by the future that drives it: a future that owned the loop would reserve memory for it twice.
    let mut loop_ = Loop::new(Concerns::new(&deps, &taken, stored, control));
    match loop_.drive().await {
        Ok(LoopEnd::Parked) => {
            loop_.concerns.session.record.keep_conversation(Instant::now());
            LoopEnd::Parked
        }
        Ok(end) => end,
        Err(WriteError::Store(error @ store::error::Error::Unreadable { .. })) => {
            Box::pin(refuse(&deps, &taken, &error)).await
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the loop stops writing");
            if matches!(error, WriteError::Fenced) && Box::pin(regain(&deps, &taken.fence)).await {
                return LoopEnd::HandedOver;
            }
            LoopEnd::Dropped
        }
    }
}

/// Leaves a session to a worker of a newer version, which wrote data that this version cannot read.
async fn refuse(deps: &Arc<Deps>, taken: &TakeOver, error: &store::error::Error) -> LoopEnd {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(error = error as &dyn std::error::Error, "leaving a session to a newer worker");
    match Record::new(Arc::clone(deps), taken, Conversation::default(), None, None)
        .refuse(&format!("{error}: {source}"))
        .await
    {
        Ok(()) => LoopEnd::Refused,
        Err(_) => LoopEnd::Dropped,
    }
}

impl Loop {
    fn new(concerns: Concerns) -> Self {
        Self { concerns, beat_at: Instant::now() + Duration::from_millis(LOOP_BEAT_MS) }
    }

    /// Runs the loop to its end. Rare work that needs much memory is boxed: most loops of a worker only wait for the next event
    /// of their model.
    async fn drive(&mut self) -> Result<LoopEnd, WriteError> {
        let mut state = State::default();
        let mut actions = VecDeque::from([Action::Look]);
        let mut end = LoopEnd::Parked;
        loop {
            let signal = match actions.pop_front() {
                Some(Action::HandOver) => {
                    Box::pin(self.concerns.hand_over()).await?;
                    end = LoopEnd::HandedOver;
                    None
                }
                Some(action) => Box::pin(self.perform(action)).await?,
                None if state == State::Ended => return Ok(end),
                None => match self.concerns.signals.pop_front() {
                    Some(signal) => Some(signal),
                    None => self.next_signal().await?,
                },
            };
            if let Some(signal) = signal {
                actions.extend(state.apply(signal, now(), rand::random()));
            }
        }
    }

    async fn perform(&mut self, action: Action) -> Result<Option<Signal>, WriteError> {
        match action {
            Action::Look => self.look().await.map(Some),
            Action::Call { failed } => self.concerns.call(failed).await,
            Action::BackOff { attempt, until, error } => self
                .concerns
                .step
                .back_off(&mut self.concerns.session, attempt, until, &error)
                .await
                .map(|()| None),
            Action::Compact { overflow } => {
                compaction::request_summary(&mut self.concerns.session, overflow).await.map(|()| None)
            }
            Action::Summarize { failed } => self.concerns.summarize(failed).await,
            Action::Resume => compaction::resume(&mut self.concerns.session).await.map(|()| None),
            Action::Prepare => self.concerns.prepare().await,
            Action::BeginCalls => {
                let calls = calls::begin(&mut self.concerns.session).await?;
                self.concerns.tool_calls.begin_step(calls);
                Ok(None)
            }
            Action::Run(calls) => self.concerns.run_tools(calls).await.map(|()| None),
            Action::Finish => self.concerns.finish().await.map(|()| None),
            Action::Doubt => doubt::doubt(&mut self.concerns.session).await.map(Some),
            Action::Stop(stop) => self.concerns.stop(&stop).await.map(Some),
            Action::Close(error) => self.concerns.close(error).await.map(|()| None),
            Action::Park(reason) => self.concerns.park(reason).await.map(Some),
            Action::HandOver => Ok(None),
        }
    }

    /// Reads everything new since the last look. Right after a write that found no new input there is nothing to read; at the
    /// latest, parking the session finds an input that arrives afterwards.
    async fn look(&mut self) -> Result<Signal, WriteError> {
        if !self.concerns.session.record.has_read_all() {
            self.concerns.session.record.flush().await?;
            self.concerns.session.read_inputs().await?;
        }
        self.concerns.step.end_pause();
        self.concerns.budget.look(&mut self.concerns.session).await?;
        let leaving = self.concerns.control.leave.soon.is_cancelled() || self.must_yield().await;
        let view = self.concerns.session.conversation().view(&self.concerns.session.inputs, leaving);
        let view = compaction::with_context_room(
            view,
            &self.concerns.session,
            &self.concerns.opening,
            self.concerns.models(),
        );
        Ok(Signal::Looked(View { out_of_budget: self.concerns.budget.is_used_up(), ..view }))
    }

    /// Whether this session must give up its slot at a step boundary because others have waited longer. It always gets its first
    /// step.
    async fn must_yield(&mut self) -> bool {
        if !self.concerns.step.has_closed_one() {
            return false;
        }
        let slots =
            if self.concerns.control.slots.available_permits() == 0 { Slots::Full } else { Slots::Free };
        if !self.concerns.control.contention.may_concern(self.concerns.session.record.tenant(), slots) {
            return false;
        }
        let session = &self.concerns.session;
        let (tenant, worker) = (session.record.tenant(), session.deps.incarnation.to_string());
        match session.deps.bus.should_yield(tenant, session.record.session(), &worker, slots).await {
            Ok(Yield::Keep) => false,
            Ok(Yield::ToTenant | Yield::ToClass) => {
                metrics::counter!("flotilla_yields_total").increment(1);
                true
            }
            // Redis holds the fairness clock. While Redis is down, workers claim in Postgres order, which is close enough to fair.
            Err(_) => false,
        }
    }

    /// Waits for the next event. Returns `None` if the turn need not know about it.
    async fn next_signal(&mut self) -> Result<Option<Signal>, WriteError> {
        // What follows a step may have begun without a write. The answer of an open model call stores what the loop took during the call.
        if !self.concerns.step.is_calling() {
            self.concerns.session.record.flush().await?;
        }
        if self.concerns.session.record.abort_waits() {
            return Ok(Some(Signal::Abort));
        }
        let wake_at = self.concerns.step.wake_at().into_iter().chain(self.concerns.reports.wake_at());
        let wake_at = wake_at.fold(self.beat_at, Instant::min);
        // Without a model call nothing is lost: another worker attaches to the running calls.
        let leaves_at_once =
            !self.concerns.step.is_calling() && self.concerns.tool_calls.running.can_be_left();
        let event = tokio::select! {
            biased;
            Ok(()) = self.concerns.control.nudges.changed() => LoopEvent::Nudge,
            () = self.concerns.control.leave.now.cancelled() => LoopEvent::Drain,
            () = self.concerns.control.leave.soon.cancelled(), if leaves_at_once => LoopEvent::Drain,
            opened = self.concerns.opening.next() => LoopEvent::Opened(opened),
            read = self.concerns.prompt_files.next() => LoopEvent::FilesRead(read),
            expanded = self.concerns.commands.next() => LoopEvent::Expanded(expanded),
            tracked = self.concerns.snapshots.next() => LoopEvent::Tracked(tracked),
            title = self.concerns.titling.next() => LoopEvent::Titled(title),
            report = self.concerns.tool_calls.running.next_report() => LoopEvent::Report(report),
            event = self.concerns.step.next() => match event {
                ModelEvent::Answer(event) => LoopEvent::Model(event),
                ModelEvent::Departed => LoopEvent::Tick,
            },
            () = sleep_until(wake_at) => LoopEvent::Tick,
        };
        Box::pin(self.handle(event)).await
    }

    async fn handle(&mut self, event: LoopEvent) -> Result<Option<Signal>, WriteError> {
        match event {
            LoopEvent::Nudge => self.handle_nudge().await,
            LoopEvent::Drain => Ok(Some(Signal::Drain)),
            LoopEvent::Opened(opened) => self.concerns.handle_opened(opened).await,
            LoopEvent::FilesRead(FilesRead { failed, contents }) => {
                match files::store_contents(&mut self.concerns.session, contents).await? {
                    Some(signal) => Ok(Some(signal)),
                    None => self.concerns.call(failed).await,
                }
            }
            LoopEvent::Expanded(expanded) => {
                commands::store_expansions(&mut self.concerns.session, expanded).await.map(Some)
            }
            LoopEvent::Tracked(tracked) => self.concerns.handle_tracked(tracked).await.map(|()| None),
            LoopEvent::Titled(title) => {
                titling::store_title(&mut self.concerns.session, title).await.map(|()| None)
            }
            LoopEvent::Report(report) => self.handle_report(*report).await,
            LoopEvent::Model(event) => {
                if let Ok(StreamEvent::ToolStart { name, .. }) = &event {
                    self.concerns.expect_call(name);
                }
                let signal = self.concerns.step.take(&mut self.concerns.session, event).await?;
                if let Some(Signal::Answered(calls)) = &signal {
                    self.concerns.tool_calls.begin_step(calls.iter().cloned());
                }
                Ok(signal)
            }
            LoopEvent::Tick => self.tick().await,
        }
    }

    /// Reads the mailbox in the middle of a step: for an abort, or for the answer that a call waits for.
    async fn handle_nudge(&mut self) -> Result<Option<Signal>, WriteError> {
        // An operator may have quarantined the session, or a client may have deleted it.
        let is_current = self.concerns.session.deps.store.is_current(self.concerns.session.record.fence());
        if !with_store_timeout(is_current).await.map_err(WriteError::Store)? {
            return Err(WriteError::Fenced);
        }
        self.concerns.session.read_inputs().await?;
        if self.concerns.session.is_aborted() {
            return Ok(Some(Signal::Abort));
        }
        self.concerns.settle_waiting().await.map(|()| None)
    }

    async fn handle_report(&mut self, report: Report) -> Result<Option<Signal>, WriteError> {
        let has_ended = matches!(report.event, CallEvent::Ended { .. });
        let signal = tool_calls::store_report(&mut self.concerns.session, report).await?;
        if has_ended {
            self.concerns.reports.report(&self.concerns.session).await;
        }
        Ok(signal)
    }

    async fn tick(&mut self) -> Result<Option<Signal>, WriteError> {
        let now = Instant::now();
        if now >= self.beat_at {
            self.concerns.session.record.beat();
            self.beat_at = now + Duration::from_millis(LOOP_BEAT_MS);
        }
        self.concerns.reports.tick(&self.concerns.session).await;
        self.concerns.step.tick(&mut self.concerns.session, now).await
    }
}
