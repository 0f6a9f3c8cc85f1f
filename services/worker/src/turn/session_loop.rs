//! The state of a session's loop: what it knows of the session, one field for each concern. The actions in `actions` change it.

use super::{
    budget::Budget,
    calling::models::Models,
    guidance::TurnGuidance,
    prompt::{commands::Commands, files::PromptFiles},
    session::Session,
    snapshots::Snapshots,
    step::Step,
    stored::StoredSession,
    titling::Titling,
    tool_calls::ToolCalls,
    waits::{calls::Waiting, changes::CallChanges, children::ChildReports},
};
use crate::{
    process::{control::Control, deps::Deps},
    record::{Record, WriteError},
};
use domain::{conversation::message::User, event::Event, turn::signal::Signal};
use std::{sync::Arc, time::Duration};
use store::{log::change::KnownSession, session::runs::TakeOver};
use tokio::time::Instant;

/// Time between two heartbeats of a loop to its subscribers; milliseconds.
const LOOP_BEAT_MS: u64 = 5_000;

/// A session's loop on this worker.
pub(super) struct Loop {
    pub(super) session: Session,
    pub(super) control: Control,
    pub(super) guidance: TurnGuidance,
    pub(super) commands: Commands,
    pub(super) prompt_files: PromptFiles,
    pub(super) step: Step,
    pub(super) tool_calls: ToolCalls,
    pub(super) waiting: Waiting,
    pub(super) snapshots: Snapshots,
    pub(super) titling: Titling,
    pub(super) reports: ChildReports,
    pub(super) budget: Budget,
    /// When the loop next tells its subscribers that it is alive.
    beat_at: Instant,
}

impl Loop {
    pub(super) fn new(
        deps: &Arc<Deps>,
        taken: &TakeOver,
        stored: StoredSession,
        mut control: Control,
    ) -> Self {
        let StoredSession { above, session: stored, inputs, conversation } = stored;
        let titling = Titling::new(&stored.info);
        let snapshots = Snapshots::new(stored.branch.clone());
        let budget = Budget::new(stored.budget.is_some());
        let known = KnownSession { event_seq: stored.event_seq, info: Box::new(stored.info.clone()) };
        let record =
            Record::new(Arc::clone(deps), taken, conversation, Some(known), control.suspect_slot.take());
        let take_over = Event::LoopStarted { worker: deps.name.clone(), attempt: taken.attempts };
        let mut session = Session::new(record, inputs, stored, &above, take_over);
        session.configure(&above.settings);
        let mut tool_calls = ToolCalls::new(&session);
        tool_calls.running.configure(&above.settings);
        Self {
            session,
            control,
            guidance: TurnGuidance::new(above),
            commands: Commands::default(),
            prompt_files: PromptFiles::default(),
            step: Step::default(),
            tool_calls,
            waiting: Waiting::default(),
            snapshots,
            titling,
            reports: ChildReports::default(),
            budget,
            beat_at: Instant::now() + Duration::from_millis(LOOP_BEAT_MS),
        }
    }

    pub(super) fn models(&self) -> Models<'_> {
        Models::of(&self.session, self.guidance.settings())
    }

    /// Asks a model for a title during the step that answers a prompt, if the session needs one.
    pub(super) fn ask_for_title(&mut self, user: &User) {
        let models = Models::of(&self.session, self.guidance.settings());
        self.titling.ask(&self.session, models, user);
    }

    /// Checks whether the waits of calls are over.
    pub(super) async fn settle_waiting(&mut self, changes: &mut CallChanges) -> Result<(), WriteError> {
        let is_used_up = self.budget.is_used_up();
        self.waiting.settle(&mut self.session, &mut self.tool_calls, is_used_up, changes).await
    }

    /// When the loop must call [`Loop::tick`] at the latest.
    pub(super) fn wake_at(&self) -> Instant {
        let wake_at = self.step.wake_at().into_iter().chain(self.reports.wake_at());
        wake_at.fold(self.beat_at, Instant::min)
    }

    /// Does what is due at this moment.
    pub(super) async fn tick(&mut self) -> Result<Option<Signal>, WriteError> {
        let now = Instant::now();
        if now >= self.beat_at {
            self.session.record.beat();
            self.beat_at = now + Duration::from_millis(LOOP_BEAT_MS);
        }
        self.reports.tick(&self.session).await;
        self.step.tick(&mut self.session, now).await
    }
}
