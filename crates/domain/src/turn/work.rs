//! Work of a turn that needs something before it begins, and what it needs.

use super::call::CallId;

/// Something that a turn waits for before it goes on. The worker gets it; the turn can be stopped meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The worker's lease is certainly valid. A frozen worker that wakes up starts nothing before its renewal.
    Lease,
    /// The files that prompts name are read, and stored with the prompts.
    PromptFiles,
    /// The guidance is read: of the files, or of the commit of a session without files.
    Guidance,
    /// The commands of prompts are expanded, and stored with the prompts.
    Commands,
    /// The snapshot of the files before the calls is stored, or there will be none.
    Snapshot,
}

/// Work that begins when the turn has everything that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Begin a step. Its model call comes next.
    Step {
        /// The number of failed attempts before this one.
        failed: u32,
    },
    /// Call the model for the step that has begun.
    Call {
        /// The number of failed attempts before this one.
        failed: u32,
    },
    /// Call the model for a summary.
    Summary {
        /// The number of failed attempts before this one.
        failed: u32,
    },
    /// Decide again, now that the prompt is prepared.
    Decide,
    /// Run these calls, or attach to them.
    Calls(Vec<CallId>),
}

impl Work {
    /// What it needs, in the order in which the worker gets it. To get something may take long, and only a worker with a
    /// lease begins anything.
    pub(super) fn needs(&self) -> &'static [Need] {
        match self {
            Self::Step { .. } => &[Need::Lease, Need::PromptFiles],
            Self::Call { .. } => &[Need::Guidance, Need::Lease],
            Self::Summary { .. } => &[Need::Lease],
            Self::Decide => &[Need::Lease, Need::Guidance, Need::Commands],
            Self::Calls(_) => &[Need::Lease, Need::Guidance, Need::Lease, Need::Snapshot, Need::Lease],
        }
    }

    /// The failed attempts at the model call that it leads to.
    pub(super) fn failed(&self) -> Option<u32> {
        match self {
            Self::Step { failed } | Self::Call { failed } | Self::Summary { failed } => Some(*failed),
            Self::Decide | Self::Calls(_) => None,
        }
    }
}
