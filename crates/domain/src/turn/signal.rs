//! What can happen to a turn.

use super::{call::CallId, view::View};
use crate::{conversation::message::Error, wait::Wait};

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// The loop has read the stored state.
    Looked(View),
    /// The prompt is prepared and can be answered.
    Prepared,
    /// The model's answer is stored, with these calls to run.
    Answered(Vec<CallId>),
    /// The model call failed.
    Failed(ModelFailure),
    /// The pause before the next attempt is over.
    PauseEnded,
    /// These calls have begun and wait for a person or a child session.
    CallsWait(Vec<(CallId, Wait)>),
    /// A call that waited for a person runs now.
    CallStarted(CallId),
    /// The decision whether a model that repeats itself may continue: the wait for an answer, or `None` once the
    /// decision is stored.
    Doubted(Option<Wait>),
    /// A tool's answer is stored.
    ToolEnded(CallId),
    /// The turn cannot continue, whatever is running.
    Broken(Error),
    /// An abort was accepted.
    Abort,
    /// The worker is shutting down, and the grace period for open streams is over.
    Drain,
    /// Everything that was running has stopped.
    Stopped,
    /// The session is parked.
    Parked,
    /// The session could not be parked because a new input arrived first.
    NewInput,
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFailure {
    /// The error that the session shows.
    pub error: Error,
    /// Whether another attempt may help.
    pub retryable: bool,
    /// The pause that the provider asks for.
    pub retry_after_ms: Option<u64>,
}
