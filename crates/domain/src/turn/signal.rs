//! What can happen to a turn.

use super::{call::CallId, view::View, work::Need};
use crate::{conversation::message::Error, wait::Wait};

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// The loop has read the stored state.
    Looked(View),
    /// The turn has what it waited for.
    Ready(Need),
    /// The model's answer is stored, with these calls to run.
    Answered(Vec<CallId>),
    /// The model call failed, or cannot be made.
    Failed(ModelFailure),
    /// The pause before the next attempt is over.
    PauseEnded,
    /// These calls changed, all at once.
    Calls(Vec<(CallId, CallState)>),
    /// The decision whether a model that repeats itself may continue: the wait for an answer, or `None` once the
    /// decision is stored.
    Doubted(Option<Wait>),
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

/// The new state of a call whose intent is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// A person allowed it, and it runs.
    Runs,
    /// It waits for a person or a child session.
    Waits(Wait),
    /// Its answer is stored.
    Ended,
}

impl Signal {
    /// The answer of one call is stored.
    pub fn ended(call: CallId) -> Self {
        Self::Calls(vec![(call, CallState::Ended)])
    }
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
