//! Begins the calls of a step, whose intents are stored.

use crate::{
    record::WriteError,
    tools::{registry, tool::Performer},
    turn::{prompt_calls, session_loop::Loop, tool_calls::LoopCall, waits::changes::CallChanges},
};
use domain::{
    conversation::part::ToolState,
    turn::{call::CallId, signal::Signal},
};

impl Loop {
    /// Begins the calls, or attaches to those that an earlier worker may have begun. Returns what changed at once.
    pub(super) async fn run_calls(&mut self, calls: Vec<CallId>) -> Result<Option<Signal>, WriteError> {
        self.waiting.clear();
        let mut changes = CallChanges::default();
        for call_id in &calls {
            self.begin(call_id, &mut changes).await?;
        }
        self.settle_waiting(&mut changes).await?;
        self.reports.report(&self.session).await;
        Ok(changes.into_signal())
    }

    /// Starts a call, or records what it waits for.
    async fn begin(&mut self, call_id: &CallId, changes: &mut CallChanges) -> Result<(), WriteError> {
        let Some(call) = LoopCall::find(&self.session, call_id) else { return Ok(()) };
        if matches!(call.tool.state, ToolState::Pending { .. }) {
            self.waiting.await_permission(call.call_id);
            return Ok(());
        }
        let found = registry::find(&call.tool.tool);
        if found.is_ok_and(|tool| tool.performer() == Performer::Loop) {
            return self.waiting.begin(&mut self.session, call, changes).await;
        }
        let is_shell = prompt_calls::is_shell_step(&self.session);
        if is_shell && prompt_calls::is_shell_denied(&self.session, call.tool.state.input()).await {
            let text = "The rules of the session or the repository deny this command.";
            call.end(&mut self.session, Err(text.to_owned())).await?;
            changes.end(call.call_id);
            return Ok(());
        }
        self.tool_calls.start(&call);
        Ok(())
    }
}
