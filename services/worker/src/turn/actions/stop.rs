//! Stops the model call, the tools, and everything that is being fetched.

use crate::{
    record::WriteError,
    turn::{session_loop::Loop, tool_calls, waits::children},
};
use domain::turn::{action::Stop, signal::Signal};

impl Loop {
    /// The write that closes the step stores the streamed text, because that write also acknowledges the abort.
    pub(super) async fn stop(&mut self, stop: &Stop) -> Result<Signal, WriteError> {
        self.step.end_pause();
        self.snapshots.stop();
        self.prompt_files.stop();
        self.commands.stop();
        self.waiting.clear();
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
}
