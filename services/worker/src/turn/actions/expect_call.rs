//! Makes ready what a call needs that the model begins to write. No action of the turn: it only saves time.

use crate::{tools::registry, turn::session_loop::Loop};

impl Loop {
    /// Begins the snapshot before the call; else the sandbox.
    pub(in crate::turn) fn expect_call(&mut self, name: &str) {
        let is_summary = self.session.conversation().last_step().is_none_or(|(step, _)| step.is_summary());
        let found = registry::find(name).ok().filter(|tool| tool.uses_sandbox() && !is_summary);
        let Some(tool) = found else { return };
        if tool.changes_files() {
            self.snapshots.track_before_call(&self.session, self.guidance.settings());
        }
        // The snapshot comes first: before a sandbox starts, no program can have changed the files, so the snapshot needs no comparison.
        if !self.snapshots.is_tracking() {
            self.session.start_sandbox();
        }
    }
}
