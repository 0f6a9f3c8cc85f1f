//! The concerns of a loop, and the actions that need more than one of them.

use super::{
    budget::Budget,
    calling::{
        models::Models,
        step_call::{self, StepCall},
    },
    compaction,
    finish::{self, Parking},
    opening::{BegunStep, Delayed, Opening},
    prompt::{calls as prompt_calls, commands::Commands, files::PromptFiles},
    session::Session,
    snapshots::{self, PATIENCE, STOP_PATIENCE, Snapshots, StepFiles, Tracked},
    step::{self, Remains, Step},
    stored::StoredSession,
    titling::{self, Titling},
    tool_calls::{self, LoopCall, ToolCalls, child_of},
    waits::{
        calls::Waiting,
        children::{self, ChildReports},
    },
};
use crate::{
    model::call::ModelCall,
    process::{
        control::Control,
        deps::Deps,
        sandbox::{is_lost, is_stale},
    },
    record::{ParkResult, Record, WriteError},
    repository::guidance::{GuidanceError, configuration_error},
    tools::{
        outcome::failure,
        registry,
        tool::{Performer, Tool},
    },
};
use domain::{
    conversation::{
        message::{Error, User},
        part::{Body, Text, ToolState},
    },
    event::{Event, Status},
    session::{Outcome, restart_note},
    turn::{
        action::{ParkReason, Stop},
        call::CallId,
        signal::Signal,
    },
};
use settings::LostWorkspace;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use store::{
    log::{change::KnownSession, record::Progress},
    session::runs::TakeOver,
};

/// Who decided that a session continues without its lost files, in the note that tells the model.
const DECISION: &str = "The settings of the project let the session continue";

/// The concerns of a loop.
pub(super) struct Concerns {
    pub(super) session: Session,
    pub(super) control: Control,
    pub(super) opening: Opening,
    pub(super) commands: Commands,
    pub(super) prompt_files: PromptFiles,
    pub(super) step: Step,
    pub(super) tool_calls: ToolCalls,
    pub(super) waiting: Waiting,
    pub(super) snapshots: Snapshots,
    pub(super) titling: Titling,
    pub(super) reports: ChildReports,
    pub(super) budget: Budget,
    /// Signals that the turn has not processed yet.
    pub(super) signals: VecDeque<Signal>,
}

impl Concerns {
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
            opening: Opening::new(above),
            commands: Commands::default(),
            prompt_files: PromptFiles::default(),
            step: Step::default(),
            tool_calls,
            waiting: Waiting::default(),
            snapshots,
            titling,
            reports: ChildReports::default(),
            budget,
            signals: VecDeque::new(),
        }
    }

    pub(super) fn models(&self) -> Models<'_> {
        Models {
            providers: &self.session.deps.providers,
            settings: self.opening.settings(),
            permissions: &self.session.permissions,
            profile: &self.session.profile,
        }
    }

    pub(super) async fn settle_waiting(&mut self) -> Result<(), WriteError> {
        let is_used_up = self.budget.is_used_up();
        let signals = self.waiting.settle(&mut self.session, &mut self.tool_calls, is_used_up).await?;
        self.signals.extend(signals);
        Ok(())
    }

    /// Begins a step, or another attempt at it, and calls the model.
    pub(super) async fn call(&mut self, failed: u32) -> Result<Option<Signal>, WriteError> {
        self.control.lease_runs().await;
        let Some(user) = self.session.newest_user().cloned() else { return Ok(None) };
        if let Err(unknown) = self.models().get(&user.model.model) {
            return Ok(Some(unknown));
        }
        if self.prompt_files.read(&self.session, failed) {
            return Ok(None);
        }
        let snapshot = self.snapshots.known_before_step(&self.session);
        let message = step::begin(&mut self.session, &user, failed, None, snapshot).await?;
        let delayed = Delayed::Call(Box::new(BegunStep { user, message }));
        match self.opening.when_guided(&self.session, delayed) {
            Some(Delayed::Call(begun)) => Ok(self.call_model(*begun)),
            Some(Delayed::Preparation | Delayed::Run(_)) | None => Ok(None),
        }
    }

    /// Calls the model for a step that has begun. Returns a signal if it cannot be called.
    fn call_model(&mut self, begun: BegunStep) -> Option<Signal> {
        let guidance = self.opening.guidance();
        let planned = match step_call::plan(&self.session, self.models(), guidance, begun) {
            Ok(planned) => planned,
            Err(signal) => return Some(signal),
        };
        let StepCall { plan, message, terms, user } = planned;
        self.snapshots.track_during_call(&self.session, self.opening.settings());
        self.step.open(ModelCall::start(&self.session.deps, plan, message, terms));
        self.ask_for_title(&user);
        None
    }

    fn ask_for_title(&mut self, user: &User) {
        let models = Models {
            providers: &self.session.deps.providers,
            settings: self.opening.settings(),
            permissions: &self.session.permissions,
            profile: &self.session.profile,
        };
        self.titling.ask(&self.session, models, user);
    }

    /// Begins the step of a summary and calls the model for it.
    pub(super) async fn summarize(&mut self, failed: u32) -> Result<Option<Signal>, WriteError> {
        self.control.lease_runs().await;
        let call = match compaction::summary_call(&self.session, self.models()) {
            Ok(Some(call)) => call,
            Ok(None) => return Ok(None),
            Err(signal) => return Ok(Some(signal)),
        };
        let snapshot = self.snapshots.known_before_step(&self.session);
        let message = step::begin(&mut self.session, &call.user, failed, call.tail, snapshot).await?;
        self.step.open(ModelCall::start(&self.session.deps, call.plan, message, call.terms));
        Ok(None)
    }

    /// Reads the guidance of the repository, unless this turn has done so, and expands the commands of prompts.
    pub(super) async fn prepare(&mut self) -> Result<Option<Signal>, WriteError> {
        self.control.lease_runs().await;
        if Commands::are_due(&self.session) {
            let events = vec![Event::SessionStatus(Status::Busy)];
            self.session.write_announced(events, Progress::None).await?;
        }
        match self.opening.when_guided(&self.session, Delayed::Preparation) {
            Some(_) => Ok(self.expand_commands()),
            None => Ok(None),
        }
    }

    /// Expands the commands of prompts, now that the guidance is known.
    fn expand_commands(&mut self) -> Option<Signal> {
        let silent_calls = self.tool_calls.running.silent_calls();
        let is_expanding = self.commands.expand(&self.session, self.opening.guidance(), silent_calls);
        (!is_expanding).then_some(Signal::Prepared)
    }

    /// Applies the guidance, and continues everything that waited for it.
    pub(super) async fn handle_opened(
        &mut self,
        opened: Result<(), GuidanceError>,
    ) -> Result<Option<Signal>, WriteError> {
        let delayed = self.opening.take_delayed();
        match opened {
            Ok(()) => {}
            Err(GuidanceError::Files(status)) if is_stale(&status) => {
                return Err(WriteError::Fenced);
            }
            Err(GuidanceError::Files(status)) if self.continues_without_files(&status) => {
                return self.restart_workspace(delayed).await.map(|()| None);
            }
            Err(GuidanceError::Files(status)) => {
                if let Some(notice) = self.session.workspace.take_environment_notice() {
                    // What failed may be an environment that the repository no longer has.
                    self.session.write(vec![Event::SessionError(notice.error())], Progress::None).await?;
                }
                return Ok(Some(Signal::Broken(failure(&status))));
            }
            Err(GuidanceError::Unsafe(problems)) => {
                return Ok(Some(Signal::Broken(configuration_error(&problems))));
            }
        }
        let guidance = Arc::clone(self.opening.guidance());
        self.session.configure(&guidance.settings);
        self.session.allow_hosts(&guidance.settings);
        self.tool_calls.running.configure(&guidance.settings);
        let found = self.session.workspace.found().filter(|_| self.session.workspace.has_source());
        let branch = found.and_then(|found| self.snapshots.opened(found));
        let events: Vec<Event> = branch.into_iter().chain(self.opening.notices(&self.session)).collect();
        if !events.is_empty() {
            self.session.write(events, Progress::None).await?;
        }
        let entries = self.session.conversation().entries();
        self.tool_calls.running.note_instructions(&guidance.instructions, entries);
        match delayed {
            None => Ok(None),
            Some(Delayed::Call(begun)) => {
                // Opening the workspace may have taken long.
                self.control.lease_runs().await;
                Ok(self.call_model(*begun))
            }
            Some(Delayed::Preparation) => Ok(self.expand_commands()),
            Some(Delayed::Run(calls)) => self.run_tools(calls).await.map(|()| None),
        }
    }

    /// Whether the settings let the session continue with the files of its source. Only the turn of the session that owns the workspace
    /// decides: subtasks below it may use the same files.
    fn continues_without_files(&self, status: &tonic::Status) -> bool {
        is_lost(status)
            && self.session.identity.workspace == self.session.identity.session
            && self.opening.settings().lost_workspace == Some(LostWorkspace::Restart)
    }

    /// Forgets the lost files, tells clients and the model, and opens the source again for the action that waits.
    async fn restart_workspace(&mut self, delayed: Option<Delayed>) -> Result<(), WriteError> {
        let mut events = vec![Event::WorkspaceRestarted];
        if let Some(user) = self.session.newest_user() {
            let note = Body::Text(Text::synthetic(restart_note(DECISION)));
            events.push(self.session.new_part(&user.id, note));
        }
        self.session.write(events, Progress::None).await?;
        self.session.identity.note_restart();
        if let Some(delayed) = delayed {
            // The action waits again, until the files are open.
            drop(self.opening.when_guided(&self.session, delayed));
        }
        Ok(())
    }

    /// Makes ready what a call needs that the model begins to write: the snapshot before it, then the sandbox.
    pub(super) fn expect_call(&mut self, name: &str) {
        let is_summary = self.session.conversation().last_step().is_none_or(|(step, _)| step.is_summary());
        let found = registry::find(name).ok().filter(|tool| tool.uses_sandbox() && !is_summary);
        let Some(tool) = found else { return };
        if tool.changes_files() {
            self.snapshots.track_before_call(&self.session, self.opening.settings());
        }
        // The snapshot comes first: before a sandbox starts, no program can have changed the files, so the snapshot needs no comparison.
        if !self.snapshots.is_tracking() {
            self.session.start_sandbox();
        }
    }

    /// Begins the calls whose intent is stored. Attaches to a call that an earlier worker may have begun.
    pub(super) async fn run_tools(&mut self, calls: Vec<CallId>) -> Result<(), WriteError> {
        self.control.lease_runs().await;
        if self.session.announcement().is_some() {
            // Clients learn at once that another worker continues.
            self.session.write_announced(vec![], Progress::None).await?;
        }
        let calls = if need_guidance(&self.session, &calls) {
            match self.opening.when_guided(&self.session, Delayed::Run(calls)) {
                Some(Delayed::Run(calls)) => calls,
                Some(Delayed::Call(_) | Delayed::Preparation) | None => return Ok(()),
            }
        } else {
            calls
        };
        let settings = self.opening.settings();
        self.session.allow_hosts(settings);
        match self.snapshots.when_tracked(&self.session, settings, &self.tool_calls, calls) {
            Some(calls) => self.begin_all(calls).await,
            None => Ok(()),
        }
    }

    pub(super) async fn handle_tracked(&mut self, tracked: Tracked) -> Result<(), WriteError> {
        // It starts while the loop stores what the look has found.
        if self.tool_calls.is_sandbox_expected(&self.session) {
            self.session.start_sandbox();
        }
        match self.snapshots.store_start(&mut self.session, tracked).await? {
            Some(calls) => {
                // The snapshot may have taken long.
                self.control.lease_runs().await;
                self.begin_all(calls).await
            }
            None => Ok(()),
        }
    }

    /// Begins the calls, now that they have everything that they need.
    async fn begin_all(&mut self, calls: Vec<CallId>) -> Result<(), WriteError> {
        self.waiting.clear();
        for call_id in calls {
            self.begin(&call_id).await?;
        }
        self.settle_waiting().await?;
        self.reports.report(&self.session).await;
        Ok(())
    }

    /// Starts a call, or records what it waits for.
    async fn begin(&mut self, call_id: &CallId) -> Result<(), WriteError> {
        let Some(call) = LoopCall::find(&self.session, call_id) else { return Ok(()) };
        if matches!(call.tool.state, ToolState::Pending { .. }) {
            self.waiting.await_permission(call.call_id);
            return Ok(());
        }
        let found = registry::find(&call.tool.tool);
        if found.is_ok_and(|tool| tool.performer() == Performer::Loop) {
            let signal = self.waiting.begin(&mut self.session, call).await?;
            self.signals.extend(signal);
            return Ok(());
        }
        let is_shell = prompt_calls::is_shell_step(&self.session);
        if is_shell && prompt_calls::is_shell_denied(&self.session, call.tool.state.input()).await {
            let text = "The rules of the session or the repository deny this command.";
            let signal = call.end(&mut self.session, Err(text.to_owned())).await?;
            self.signals.push_back(signal);
            return Ok(());
        }
        self.tool_calls.start(&call);
        Ok(())
    }

    pub(super) async fn finish(&mut self) -> Result<(), WriteError> {
        let files = if self.session.conversation().goes_on_after_step() {
            self.snapshots.leave_to_next_step(&self.session)
        } else {
            if self.snapshots.may_wait(&self.session) {
                self.step.store_answer(&mut self.session).await?;
            }
            self.files_at_end(PATIENCE).await
        };
        self.step.finish(&mut self.session, files);
        self.reports.report(&self.session).await;
        Ok(())
    }

    pub(super) async fn close(&mut self, error: Error) -> Result<(), WriteError> {
        let files = self.files_at_end(STOP_PATIENCE).await;
        let titles = if error.is_abort() { self.titling.stop() } else { vec![] };
        let commands = std::mem::take(&mut self.tool_calls.ended_commands);
        self.step.close(&mut self.session, error, Remains { files, titles, commands }).await
    }

    async fn files_at_end(&mut self, patience: Duration) -> StepFiles {
        let settings = self.opening.settings();
        self.snapshots.end_of_step(&self.session, settings, &self.control.leave, patience).await
    }

    /// Stops the model call and the tools. The write that closes the step stores the streamed text, because that write also
    /// acknowledges the abort.
    pub(super) async fn stop(&mut self, stop: &Stop) -> Result<Signal, WriteError> {
        self.step.end_pause();
        self.opening.stop();
        self.snapshots.stop();
        self.prompt_files.stop();
        self.commands.stop();
        self.waiting.clear();
        self.signals.clear();
        match stop {
            Stop::Abort | Stop::Broken(_) => {
                let begun = tool_calls::begun_execs(&self.session);
                self.tool_calls.ended_commands = self.tool_calls.running.kill_all(begun).await;
                // The abort and everything before it has now been read. A later prompt begins a new turn.
                if *stop == Stop::Abort {
                    self.session.read_inputs().await?;
                }
                children::abort_below(&self.session).await?;
            }
            // Commands keep running: the next worker attaches to them.
            Stop::HandOver => {
                self.tool_calls.running.leave_all().await;
                let titles = self.titling.stop();
                self.step.leave(&mut self.session, titles).await?;
            }
        }
        Ok(Signal::Stopped)
    }

    pub(super) async fn hand_over(&mut self) -> Result<(), WriteError> {
        let worker = self.session.deps.name.clone();
        let titles = self.titling.stop();
        if !titles.is_empty() {
            self.session.record.write_with_cost(vec![], titles, Progress::None).await?;
        }
        self.session.write(vec![Event::LoopHandedOver { worker }], Progress::None).await?;
        self.session.record.hand_over().await
    }

    /// Parks the session, unless an input arrived first.
    pub(super) async fn park(&mut self, reason: ParkReason) -> Result<Signal, WriteError> {
        let (settings, leave) = (self.opening.settings(), &self.control.leave);
        let settled = self.snapshots.settle_rest(&self.session, settings, leave, PATIENCE).await;
        if !settled.is_empty() {
            self.session.write(settled, Progress::None).await?;
        }
        let pruned = match reason {
            ParkReason::Idle(outcome) => {
                if outcome == Outcome::Done {
                    self.ask_again_for_title().await;
                }
                snapshots::summarize_changes(&mut self.session).await?;
                compaction::prune(&self.session, self.opening.settings())
            }
            ParkReason::Wait(_) => vec![],
        };
        if self.titling.is_asking() {
            self.session.record.flush().await?;
        }
        let title = self.titling.wait(&mut self.control).await;
        titling::store_title(&mut self.session, title).await?;
        let Parking { park, events } = Parking::new(&self.session, reason, pruned);
        // If the session is parked, the loop ends, and with it an open call for a title.
        let entries = self.titling.open_entries();
        match self.session.record.park(events, entries, &park).await? {
            ParkResult::NewInput => Ok(Signal::NewInput),
            ParkResult::Parked => {
                finish::after_park(&mut self.session, reason).await;
                Ok(Signal::Parked)
            }
        }
    }

    /// Asks for a title at the end of a turn whose last step another worker ran.
    async fn ask_again_for_title(&mut self) {
        if !self.titling.is_open() {
            return;
        }
        let user = self.session.newest_user().and_then(|user| self.models().choose(user));
        if let Some(user) = user {
            self.control.lease_runs().await;
            self.ask_for_title(&user);
        }
    }
}

/// Whether calls need the guidance of the repository: the rules of the parent's agent bind a child, and also a person's shell
/// command.
fn need_guidance(session: &Session, calls: &[CallId]) -> bool {
    let is_new_task = |call: LoopCall| {
        registry::find(&call.tool.tool) == Ok(Tool::Task) && child_of(&call.tool.state).is_none()
    };
    // A repository narrows what its sessions reach.
    let is_narrowed =
        |call: &LoopCall| session.workspace.has_source() && registry::uses_network(&call.tool.tool);
    let needs = |call: LoopCall| is_narrowed(&call) || is_new_task(call);
    let mut calls = calls.iter().filter_map(|call| LoopCall::find(session, call));
    prompt_calls::is_shell_step(session) || calls.any(needs)
}
