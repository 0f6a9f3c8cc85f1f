//! Closes a step whose calls have answers.

use crate::{
    record::WriteError,
    turn::{
        session_loop::Loop,
        snapshots::{PATIENCE, StepFiles},
    },
};
use std::time::Duration;

impl Loop {
    pub(super) async fn finish(&mut self) -> Result<(), WriteError> {
        let files = if self.session.conversation().goes_on_after_step() {
            self.snapshots.leave_to_next_step(&self.session)
        } else {
            if self.snapshots.may_wait(&self.session) {
                self.step.store_answer(&mut self.session).await?;
            }
            self.files_at_end(PATIENCE).await
        };
        self.step.finish(&mut self.session, files).await?;
        self.reports.report(&self.session).await;
        Ok(())
    }

    /// The changes of the files by the newest step.
    pub(super) async fn files_at_end(&mut self, patience: Duration) -> StepFiles {
        let settings = self.guidance.settings();
        self.snapshots.end_of_step(&self.session, settings, &self.control.leave, patience).await
    }
}
