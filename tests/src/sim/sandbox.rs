//! The sandbox service: the highest epoch and the execs of each session.

use super::{
    postgres::Session,
    rules::{BrokenRule, Rules},
};

/// The state of a session in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SandboxSession {
    /// The highest epoch of its calls.
    pub epoch: u64,
    /// Ids of the execs that were started.
    pub execs: Vec<u64>,
}

/// The result of starting an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StartResult {
    Now,
    /// The exec was started earlier; the caller attaches to it.
    Before,
    /// The epoch of the caller is stale.
    Stale,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Sandbox {
    pub sessions: Vec<SandboxSession>,
}

impl Sandbox {
    /// Starts an exec, once for each id.
    pub fn start(&mut self, rules: &Rules, session: Session, epoch: u64, exec: u64) -> StartResult {
        let state = &mut self.sessions[session];
        if epoch < state.epoch && !rules.is_broken(BrokenRule::SandboxUnfenced) {
            return StartResult::Stale;
        }
        state.epoch = state.epoch.max(epoch);
        if state.execs.contains(&exec) {
            return if rules.is_broken(BrokenRule::ExecsRepeat) {
                StartResult::Now
            } else {
                StartResult::Before
            };
        }
        state.execs.push(exec);
        StartResult::Now
    }
}
