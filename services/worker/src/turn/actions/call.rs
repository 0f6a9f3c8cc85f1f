//! Begins a step, and calls the model for it.

use crate::{
    conversation::entries,
    model::call::ModelCall,
    record::WriteError,
    turn::{
        calling::step_call::{self, BegunStep, StepCall},
        session_loop::Loop,
        step,
    },
};
use domain::{conversation::message::Error, turn::signal::Signal};

impl Loop {
    /// Begins a step, or another attempt at it: clients see that the prompt is being answered.
    pub(super) async fn begin_step(&mut self, failed: u32) -> Result<(), WriteError> {
        let Some(user) = self.session.newest_user().cloned() else { return Ok(()) };
        let snapshot = self.snapshots.known_before_step(&self.session);
        step::begin(&mut self.session, &user, failed, None, snapshot).await.map(drop)
    }

    /// Calls the model for the step that has begun. Returns a signal if it cannot be called.
    pub(super) fn call(&mut self) -> Option<Signal> {
        let Some(begun) = self.begun_step() else {
            return Some(Signal::Broken(Error::new("UnknownError", "The step that began is gone")));
        };
        let guidance = self.guidance.guidance();
        let planned = match step_call::plan(&self.session, self.models(), guidance, begun) {
            Ok(planned) => planned,
            Err(signal) => return Some(signal),
        };
        let StepCall { plan, message, terms, attempt, user } = planned;
        self.snapshots.track_during_call(&self.session, self.guidance.settings());
        self.step.open(ModelCall::start(&self.session.deps, plan, message, attempt), terms);
        self.ask_for_title(&user);
        None
    }

    /// The newest step, which has no answer, with its prompt.
    fn begun_step(&self) -> Option<BegunStep> {
        let (message, _) = self.session.open_step()?;
        let entries = self.session.conversation().entries();
        let prompt = entries::position(entries, &message.parent_id).map(|at| &entries[at]);
        let user = prompt.and_then(entries::as_user)?;
        Some(BegunStep { user: user.clone(), message: message.clone() })
    }
}
