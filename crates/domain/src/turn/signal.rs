//! What can happen to a turn.

use super::{call::CallId, view::View};
use crate::{message::Error, wait::Wait};

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// The loop read what is stored.
    Looked(View),
    /// The prompt is ready to be answered.
    Prepared,
    /// The model's answer is stored, with these calls to run.
    Answered(Vec<CallId>),
    /// The model call failed.
    Failed(ModelFailure),
    /// The pause before the next attempt is over.
    PauseEnded,
    /// These calls were begun and wait for a person or a child session.
    CallsWait(Vec<(CallId, Wait)>),
    /// Whether a model that repeats itself may continue: the wait for an answer, or `None` once the decision is stored.
    Doubted(Option<Wait>),
    /// A tool's answer is stored.
    ToolEnded(CallId),
    /// The turn cannot go on, whatever is running.
    Broken(Error),
    /// An abort was accepted.
    Abort,
    /// The worker ends, and the grace period for open streams is over.
    Drain,
    /// Everything that ran is stopped.
    Stopped,
    /// The session is parked.
    Parked,
    /// The session is not parked: a new input came first.
    NewInput,
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFailure {
    /// The error that the session shows.
    pub error: Error,
    /// Whether another attempt may help.
    pub retryable: bool,
    /// How long the provider asks the client to wait.
    pub retry_after_ms: Option<u64>,
}
