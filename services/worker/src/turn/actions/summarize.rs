//! Begins the step of a summary, and calls the model for it.

use crate::{
    model::call::{Attempt, ModelCall},
    record::WriteError,
    turn::{compaction, intents::AnswerTerms, session_loop::Loop, step},
};
use domain::turn::signal::Signal;

impl Loop {
    pub(super) async fn summarize(&mut self, failed: u32) -> Result<Option<Signal>, WriteError> {
        let call = match compaction::summary_call(&self.session, self.models()) {
            Ok(Some(call)) => call,
            Ok(None) => return Ok(None),
            Err(signal) => return Ok(Some(signal)),
        };
        let snapshot = self.snapshots.known_before_step(&self.session);
        let message = step::begin(&mut self.session, &call.user, failed, call.tail, snapshot).await?;
        let model_call = ModelCall::start(&self.session.deps, call.plan, message, Attempt::default());
        self.step.open(model_call, AnswerTerms::default());
        Ok(None)
    }
}
