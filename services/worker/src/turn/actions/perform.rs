//! Performs an action, whichever it is.

use crate::{
    record::WriteError,
    turn::{compaction, prompt::commands::Commands, prompt_calls, session_loop::Loop, waits::doubt},
};
use domain::{
    event::{Event, Status},
    turn::{action::Action, signal::Signal},
};
use store::log::record::Progress;

impl Loop {
    /// Returns a signal if something has happened at once. A handover is the caller's: it ends the loop.
    pub(in crate::turn) async fn perform(&mut self, action: Action) -> Result<Option<Signal>, WriteError> {
        match action {
            Action::Look => return self.look().await.map(Some),
            Action::Fetch(need, work) => return Ok(self.fetch(need, &work)),
            Action::BeginStep { failed } => self.begin_step(failed).await?,
            Action::Call => return Ok(self.call()),
            Action::BackOff { attempt, until, error } => {
                self.step.back_off(&mut self.session, attempt, until, &error).await?;
            }
            Action::Compact { overflow } => compaction::request_summary(&mut self.session, overflow).await?,
            Action::Summarize { failed } => return self.summarize(failed).await,
            Action::Resume => compaction::resume(&mut self.session).await?,
            Action::Prepare => {
                if Commands::are_due(&self.session) {
                    let events = vec![Event::SessionStatus(Status::Busy)];
                    self.session.write_announced(events, Progress::None).await?;
                }
            }
            Action::Announce => {
                if self.session.announcement().is_some() {
                    self.session.write_announced(vec![], Progress::None).await?;
                }
            }
            Action::BeginCalls => {
                let calls = prompt_calls::begin(&mut self.session).await?;
                self.tool_calls.begin_step(calls);
            }
            Action::Run(calls) => return self.run_calls(calls).await,
            Action::Finish => self.finish().await?,
            Action::Doubt => return doubt::doubt(&mut self.session).await.map(Some),
            Action::Stop(stop) => return self.stop(&stop).await.map(Some),
            Action::Close(error) => self.close(error).await?,
            Action::Park(reason) => return self.park(reason).await.map(Some),
            Action::HandOver => {}
        }
        Ok(None)
    }
}
