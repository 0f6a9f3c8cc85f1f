//! The beginning of a turn: the workspace is opened and what the repository says is read, beside the loop. What needs it
//! waits here, and an abort or a drain does not.

use super::{Loop, waiting::child_of};
use crate::{
    guidance::{Above, Failure, Guidance, wrong},
    record::Stopped,
    tools::{self, Tool},
    workspace,
};
use domain::{
    event::Event,
    ids::MessageId,
    message::{Assistant, User},
    part::{self, Body},
    turn::{CallId, Input},
};
use settings::Settings;
use std::sync::Arc;
use store::log::record::Progress;
use tokio::task::JoinHandle;
use tonic::Status;

/// What waits for the guidance of a turn.
pub(super) enum Delayed {
    /// A model call, whose step has begun.
    Call(Box<(User, Assistant)>),
    /// What a prompt asks for besides a model's answer.
    Preparation,
    /// Tools that an earlier worker may have begun.
    Run(Vec<CallId>),
}

/// What was read, and what is being read.
pub(super) struct Opening {
    above: Above,
    guidance: Arc<Guidance>,
    /// The prompt that it was read for.
    read_for: Option<MessageId>,
    reading: Option<JoinHandle<(MessageId, Result<Guidance, Failure>)>>,
    delayed: Option<Delayed>,
}

impl Opening {
    /// Nothing was read but what binds the session anyway.
    pub(super) fn of(above: Above) -> Self {
        Self { above, guidance: Arc::default(), read_for: None, reading: None, delayed: None }
    }

    /// What the repository says, as it was read for this turn.
    pub(super) fn guidance(&self) -> &Arc<Guidance> {
        &self.guidance
    }

    /// Forgets what waits: the step is stopped.
    pub(super) fn stop(&mut self) {
        self.delayed = None;
    }

    /// Waits until the guidance was read, if it is being read. Cancel-safe.
    pub(super) async fn settled(&mut self) -> Result<(), Failure> {
        let Some(handle) = &mut self.reading else { return std::future::pending().await };
        let read = handle.await;
        self.reading = None;
        let (prompt, guidance) = read.map_err(|error| Failure::Files(Status::internal(error.to_string())))?;
        self.guidance = Arc::new(guidance?);
        self.read_for = Some(prompt);
        Ok(())
    }
}

impl Loop {
    /// Gives `delayed` back when this turn's guidance is known; keeps it, and has the guidance read, when it is not.
    pub(super) fn when_guided(&mut self, delayed: Delayed) -> Option<Delayed> {
        let Some(user) = self.conversation.newest_user(&self.inputs) else { return Some(delayed) };
        if self.is_guided() {
            return Some(delayed);
        }
        if self.opening.reading.is_none() {
            let (deps, identity, workspace) =
                (Arc::clone(&self.deps), self.tools.identity().clone(), self.workspace.clone());
            let (prompt, known) = (user.id.clone(), Arc::clone(&self.opening.guidance));
            let above = self.opening.above.clone();
            self.opening.reading = Some(tokio::spawn(async move {
                (prompt, Guidance::read((&deps, &above), &identity, &workspace, &known).await)
            }));
        }
        self.opening.delayed = Some(delayed);
        None
    }

    /// Goes on with what waited.
    pub(super) async fn opened(&mut self, opened: Result<(), Failure>) -> Result<Option<Input>, Stopped> {
        let delayed = self.opening.delayed.take();
        match opened {
            Ok(()) => {}
            Err(Failure::Files(status)) => return Ok(Some(Input::Broken(workspace::failure(&status)))),
            Err(Failure::Unsafe(problems)) => return Ok(Some(Input::Broken(wrong(&problems)))),
        }
        self.rights.configure(Arc::clone(&self.opening.guidance.settings));
        self.tools.configure(&self.opening.guidance.settings);
        if let Some(problems) = &self.opening.guidance.problems {
            let events = vec![Event::SessionError(wrong(problems))];
            self.record.write(&mut self.conversation, events, Progress::None).await?;
        }
        self.tools.note_shown(&self.opening.guidance.instructions, self.conversation.entries());
        match delayed {
            None => Ok(None),
            Some(Delayed::Call(step)) => {
                // The files may have been long in coming.
                self.lease_runs().await;
                self.call_model(&step.0, step.1)
            }
            Some(Delayed::Preparation) => Ok(self.expand_commands()),
            Some(Delayed::Run(calls)) => self.run_tools(calls).await.map(|()| None),
        }
    }

    /// Whether calls need what the repository says: a child is bound by the rules of its parent's agent, and so is what a
    /// person runs in the shell.
    pub(super) fn need_guidance(&self, calls: &[CallId]) -> bool {
        let is_new_task =
            |tool: &part::Tool| tools::find(&tool.tool) == Ok(Tool::Task) && child_of(&tool.state).is_none();
        let mut calls = calls.iter().filter_map(|call| self.conversation.tool_call(call));
        self.is_of_a_person() || calls.any(|(_, tool)| is_new_task(tool))
    }

    /// What settings say: with those of the repository once they were read, without them before.
    pub(super) fn settings(&self) -> &Settings {
        match &self.opening.read_for {
            Some(_) => &self.opening.guidance.settings,
            None => &self.opening.above.settings,
        }
    }

    /// Whether what the repository says now was read for this turn, as far as there is anything to read.
    pub(super) fn is_guided(&self) -> bool {
        let newest = self.conversation.newest_user(&self.inputs);
        newest.is_none_or(|user| self.opening.read_for.as_ref() == Some(&user.id)) || !self.may_have_files()
    }

    /// Whether there may be files: an empty workspace has some only after a tool was called.
    pub(super) fn may_have_files(&self) -> bool {
        let parts = || self.conversation.entries().iter().flat_map(|entry| &entry.parts);
        let is_known_to = || parts().any(|(_, part)| matches!(part.body, Body::Tool(_)));
        self.workspace.has_source() || !self.conversation.is_whole() || is_known_to()
    }
}
