//! Gets what the work of a turn needs, each in a task of its own, and takes what comes. An abort or a drain does not wait for it.

use crate::{
    process::sandbox::{is_lost, is_stale},
    record::WriteError,
    repository::guidance::{GuidanceError, configuration_error},
    tools::{outcome::failure, registry, tool::Tool},
    turn::{
        guidance::note_of_opening,
        prompt_calls,
        session::Session,
        session_loop::Loop,
        snapshots::Tracked,
        tool_calls::{LoopCall, child_of},
    },
};
use domain::{
    conversation::part::{Body, Text},
    event::Event,
    session::restart_note,
    turn::{
        call::CallId,
        signal::Signal,
        work::{Need, Work},
    },
};
use settings::LostWorkspace;
use std::sync::Arc;
use store::log::record::Progress;

/// Who decided that a session continues without its lost files, in the note that tells the model.
const DECISION: &str = "The settings of the project let the session continue";

impl Loop {
    /// Gets what `work` needs. Returns a signal at once if there is nothing to get, or if the work cannot be done.
    pub(super) fn fetch(&mut self, need: Need, work: &Work) -> Option<Signal> {
        let is_coming = match need {
            Need::Lease => !*self.control.lease.borrow(),
            Need::PromptFiles => {
                // A prompt without a model needs no files.
                let user = self.session.newest_user();
                if let Some(Err(unknown)) = user.map(|user| self.models().get(&user.model.model)) {
                    return Some(unknown);
                }
                self.prompt_files.read(&self.session)
            }
            Need::Guidance => needs_guidance(&self.session, work) && self.guidance.read(&self.session),
            Need::Commands => {
                let silent_calls = self.tool_calls.running.silent_calls();
                self.commands.expand(&self.session, self.guidance.guidance(), silent_calls)
            }
            Need::Snapshot => {
                let settings = self.guidance.settings();
                self.session.allow_hosts(settings);
                let calls = calls_of(work);
                self.snapshots.track_before_calls(&self.session, settings, &self.tool_calls, calls)
            }
        };
        (!is_coming).then_some(Signal::Ready(need))
    }

    /// Applies the guidance. `missing` is what the turn waits for.
    pub(in crate::turn) async fn take_guidance(
        &mut self,
        read: Result<(), GuidanceError>,
        missing: Option<Need>,
    ) -> Result<Option<Signal>, WriteError> {
        match read {
            Ok(()) => {}
            Err(GuidanceError::Files(status)) if is_stale(&status) => {
                return Err(WriteError::Fenced);
            }
            Err(GuidanceError::Files(status)) if self.continues_without_files(&status) => {
                self.restart_workspace().await?;
                let is_coming = missing == Some(Need::Guidance) && self.guidance.read(&self.session);
                return Ok((!is_coming).then_some(Signal::Ready(Need::Guidance)));
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
        let guidance = Arc::clone(self.guidance.guidance());
        self.session.configure(&guidance.settings);
        self.session.allow_hosts(&guidance.settings);
        self.tool_calls.running.configure(&guidance.settings);
        self.tell_opening().await?;
        let events = self.guidance.notices();
        if !events.is_empty() {
            self.session.write(events, Progress::None).await?;
        }
        let entries = self.session.conversation().entries();
        self.tool_calls.running.note_instructions(&guidance.instructions, entries);
        Ok(Some(Signal::Ready(Need::Guidance)))
    }

    /// Stores what people must know of the files that this loop has opened, once: their branch, and that they have another environment.
    pub(in crate::turn) async fn tell_opening(&mut self) -> Result<(), WriteError> {
        let found = self.session.workspace.found().filter(|_| self.session.workspace.has_source());
        let Some(found) = found else { return Ok(()) };
        let branch = self.snapshots.opened(found);
        let events: Vec<Event> = branch.into_iter().chain(note_of_opening(&self.session)).collect();
        if events.is_empty() {
            return Ok(());
        }
        self.session.write(events, Progress::None).await
    }

    /// Whether the settings let the session continue with the files of its source. Only the turn of the session that owns the workspace
    /// decides: subtasks below it may use the same files.
    fn continues_without_files(&self, status: &tonic::Status) -> bool {
        is_lost(status)
            && self.session.identity.workspace == self.session.identity.session
            && self.guidance.settings().lost_workspace == Some(LostWorkspace::Restart)
    }

    /// Forgets the lost files, and tells clients and the model.
    async fn restart_workspace(&mut self) -> Result<(), WriteError> {
        let mut events = vec![Event::WorkspaceRestarted];
        if let Some(user) = self.session.newest_user() {
            let note = Body::Text(Text::synthetic(restart_note(DECISION)));
            events.push(self.session.new_part(&user.id, note));
        }
        self.session.write(events, Progress::None).await?;
        self.session.identity.note_restart();
        Ok(())
    }

    /// Stores what a look at the files found. `missing` is what the turn waits for.
    pub(in crate::turn) async fn take_snapshot(
        &mut self,
        tracked: Tracked,
        missing: Option<Need>,
    ) -> Result<Option<Signal>, WriteError> {
        // It starts while the loop stores what the look has found.
        if self.tool_calls.is_sandbox_expected(&self.session) {
            self.session.start_sandbox();
        }
        self.snapshots.store_start(&mut self.session, tracked, missing).await?;
        Ok(Some(Signal::Ready(Need::Snapshot)))
    }
}

fn calls_of(work: &Work) -> &[CallId] {
    match work {
        Work::Calls(calls) => calls,
        Work::Step { .. } | Work::Call { .. } | Work::Summary { .. } | Work::Decide => &[],
    }
}

/// Whether work needs the guidance of the repository. Of calls only these do: the rules of the parent's agent bind a child and a person's
/// shell command, and a repository narrows what its sessions reach.
fn needs_guidance(session: &Session, work: &Work) -> bool {
    let calls = match work {
        Work::Calls(calls) => calls,
        Work::Step { .. } | Work::Call { .. } | Work::Summary { .. } | Work::Decide => return true,
    };
    let is_new_task = |call: &LoopCall| {
        registry::find(&call.tool.tool) == Ok(Tool::Task) && child_of(&call.tool.state).is_none()
    };
    let is_narrowed =
        |call: &LoopCall| session.workspace.has_source() && registry::uses_network(&call.tool.tool);
    let mut calls = calls.iter().filter_map(|call| LoopCall::find(session, call));
    prompt_calls::is_shell_step(session) || calls.any(|call| is_narrowed(&call) || is_new_task(&call))
}
