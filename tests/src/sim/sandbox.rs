//! The sandbox service: the highest epoch seen and the execs, by session.

use super::{
    postgres::Session,
    rules::{Broken, Rules},
};

/// What the sandbox knows of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Inside {
    /// The highest epoch seen.
    pub epoch: u64,
    /// Ids of the execs that were started.
    pub execs: Vec<u64>,
}

/// What became of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Started {
    /// The exec runs.
    Now,
    /// It was started before; the caller attaches to it.
    Before,
    /// The caller's epoch was taken over.
    Stale,
}

/// The service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Sandbox {
    /// By session.
    pub sessions: Vec<Inside>,
}

impl Sandbox {
    /// Starts an exec, once for each id.
    pub fn start(&mut self, rules: &Rules, session: Session, epoch: u64, exec: u64) -> Started {
        let inside = &mut self.sessions[session];
        if epoch < inside.epoch && !rules.lack(Broken::SandboxUnfenced) {
            return Started::Stale;
        }
        inside.epoch = inside.epoch.max(epoch);
        if inside.execs.contains(&exec) {
            return if rules.lack(Broken::ExecsRepeat) { Started::Now } else { Started::Before };
        }
        inside.execs.push(exec);
        Started::Now
    }
}
