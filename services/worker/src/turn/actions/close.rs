//! Closes a step with an error.

use crate::{
    record::WriteError,
    turn::{session_loop::Loop, snapshots::STOP_PATIENCE, step::Remains},
};
use domain::conversation::message::Error;

impl Loop {
    pub(super) async fn close(&mut self, error: Error) -> Result<(), WriteError> {
        let files = self.files_at_end(STOP_PATIENCE).await;
        let titles = if error.is_abort() { self.titling.stop() } else { vec![] };
        let commands = std::mem::take(&mut self.tool_calls.ended_commands);
        self.step.close(&mut self.session, error, Remains { files, titles, commands }).await
    }
}
