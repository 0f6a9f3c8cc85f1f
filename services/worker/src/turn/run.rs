//! A session's loop: the turn decides, the actions act, and this file waits for what happens next. All writes of the session go
//! through this task, one after the other; the model's stream and the tools report to it.

use super::{
    prompt::{
        commands,
        expansion::Expansion,
        files::{self, FilesRead},
    },
    session_loop::Loop,
    snapshots::Tracked,
    stored::StoredSession,
    titling, tool_calls,
    waits::changes::CallChanges,
};
use crate::{
    conversation::{kept::KeptConversation, memory::Conversation},
    model::call::ModelEvent,
    process::{
        clock::now,
        control::{Control, lease_runs},
        deps::Deps,
        regain::regain,
        store_timeout::with_store_timeout,
    },
    record::{Record, WriteError},
    repository::guidance::GuidanceError,
    tools::{
        context::{CallEvent, Report},
        outcome::ToolError,
    },
};
use domain::turn::{action::Action, signal::Signal, state::State, work::Need};
use llm::event::Event as StreamEvent;
use std::{collections::VecDeque, sync::Arc};
use store::{log::change::Title, loop_start::LoopStart, session::runs::TakeOver};
use tokio::time::{Instant, sleep_until};

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

/// An event for which a loop waits.
enum LoopEvent {
    Nudge,
    Drain,
    LeaseRuns,
    Guided(Result<(), GuidanceError>),
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
    let mut loop_ = Loop::new(&deps, &taken, stored, control);
    match loop_.drive().await {
        Ok(LoopEnd::Parked) => {
            loop_.session.record.keep_conversation(Instant::now());
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
    /// Runs the loop to its end. Rare work that needs much memory is boxed: most loops of a worker only wait for the next event
    /// of their model.
    async fn drive(&mut self) -> Result<LoopEnd, WriteError> {
        let mut state = State::default();
        let mut actions = VecDeque::from([Action::Look]);
        let mut end = LoopEnd::Parked;
        loop {
            let signal = match actions.pop_front() {
                Some(Action::HandOver) => {
                    Box::pin(self.hand_over()).await?;
                    end = LoopEnd::HandedOver;
                    None
                }
                Some(action) => Box::pin(self.perform(action)).await?,
                None if state == State::Ended => return Ok(end),
                None => self.next_signal(state.missing()).await?,
            };
            if let Some(signal) = signal {
                actions.extend(state.apply(signal, now(), rand::random()));
            }
        }
    }

    /// Waits for the next event; `missing` is what the turn waits for. Returns `None` if the turn need not know about the event.
    async fn next_signal(&mut self, missing: Option<Need>) -> Result<Option<Signal>, WriteError> {
        // What follows a step may have begun without a write. The answer of an open model call stores what the loop took during the call.
        if !self.step.is_calling() {
            self.session.record.flush().await?;
        }
        if self.session.record.abort_waits() {
            return Ok(Some(Signal::Abort));
        }
        let wake_at = self.wake_at();
        // Without a model call nothing is lost: another worker attaches to the running calls.
        let leaves_at_once = !self.step.is_calling() && self.tool_calls.running.can_be_left();
        let event = tokio::select! {
            biased;
            Ok(()) = self.control.nudges.changed() => LoopEvent::Nudge,
            () = self.control.leave.now.cancelled() => LoopEvent::Drain,
            () = self.control.leave.soon.cancelled(), if leaves_at_once => LoopEvent::Drain,
            () = lease_runs(&mut self.control.lease), if missing == Some(Need::Lease) => LoopEvent::LeaseRuns,
            guided = self.guidance.next() => LoopEvent::Guided(guided),
            read = self.prompt_files.next() => LoopEvent::FilesRead(read),
            expanded = self.commands.next() => LoopEvent::Expanded(expanded),
            tracked = self.snapshots.next() => LoopEvent::Tracked(tracked),
            title = self.titling.next() => LoopEvent::Titled(title),
            report = self.tool_calls.running.next_report() => LoopEvent::Report(report),
            event = self.step.next() => match event {
                ModelEvent::Answer(event) => LoopEvent::Model(event),
                ModelEvent::Departed => LoopEvent::Tick,
            },
            () = sleep_until(wake_at) => LoopEvent::Tick,
        };
        Box::pin(self.handle(event, missing)).await
    }

    async fn handle(
        &mut self,
        event: LoopEvent,
        missing: Option<Need>,
    ) -> Result<Option<Signal>, WriteError> {
        match event {
            LoopEvent::Nudge => self.handle_nudge().await,
            LoopEvent::Drain => Ok(Some(Signal::Drain)),
            LoopEvent::LeaseRuns => Ok(Some(Signal::Ready(Need::Lease))),
            LoopEvent::Guided(guided) => self.take_guidance(guided, missing).await,
            LoopEvent::FilesRead(read) => files::store_contents(&mut self.session, read).await.map(Some),
            LoopEvent::Expanded(expanded) => {
                commands::store_expansions(&mut self.session, expanded).await.map(Some)
            }
            LoopEvent::Tracked(tracked) => self.take_snapshot(tracked, missing).await,
            LoopEvent::Titled(title) => titling::store_title(&mut self.session, title).await.map(|()| None),
            LoopEvent::Report(report) => self.handle_report(*report).await,
            LoopEvent::Model(event) => {
                if let Ok(StreamEvent::ToolStart { name, .. }) = &event {
                    self.expect_call(name);
                }
                let signal = self.step.take(&mut self.session, event).await?;
                if let Some(Signal::Answered(calls)) = &signal {
                    self.tool_calls.begin_step(calls.iter().cloned());
                }
                Ok(signal)
            }
            LoopEvent::Tick => self.tick().await,
        }
    }

    /// Reads the mailbox in the middle of a step: for an abort, or for the answer that a call waits for.
    async fn handle_nudge(&mut self) -> Result<Option<Signal>, WriteError> {
        // An operator may have quarantined the session, or a client may have deleted it.
        let is_current = self.session.deps.store.is_current(self.session.record.fence());
        if !with_store_timeout(is_current).await.map_err(WriteError::Store)? {
            return Err(WriteError::Fenced);
        }
        self.session.read_inputs().await?;
        if self.session.is_aborted() {
            return Ok(Some(Signal::Abort));
        }
        let mut changes = CallChanges::default();
        self.settle_waiting(&mut changes).await?;
        Ok(changes.into_signal())
    }

    async fn handle_report(&mut self, report: Report) -> Result<Option<Signal>, WriteError> {
        let has_ended = matches!(report.event, CallEvent::Ended { .. });
        let signal = tool_calls::store_report(&mut self.session, report).await?;
        if has_ended {
            self.tell_opening().await?;
            self.reports.report(&self.session).await;
        }
        Ok(signal)
    }
}
