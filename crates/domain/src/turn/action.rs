//! What a turn can ask its worker to do.

use super::call::CallId;
use crate::{ids::Timestamp, message::Error, session::Outcome, wait::Wait};

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Read what is stored.
    Look,
    /// Call the model.
    Call {
        /// How many attempts failed before.
        failed: u32,
    },
    /// Request a summary, which will replace what came before it.
    Compact {
        /// Whether a model already refused the conversation as too long.
        overflow: bool,
    },
    /// Call the model for the summary.
    Summarize {
        /// How many attempts failed before.
        failed: u32,
    },
    /// Write the message that continues what the summary interrupted.
    Resume,
    /// Read the guidance of the repository, and expand the commands of the prompt.
    Prepare,
    /// Begin the calls that the prompt itself asks for, as a step.
    BeginCalls,
    /// Show the failure and wait.
    BackOff {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// When the next one begins.
        until: Timestamp,
        /// Why it failed.
        error: Error,
    },
    /// Run these tools, or attach to them if they are already running.
    Run(Vec<CallId>),
    /// Close the step: all its tools have answers.
    Finish,
    /// Find out whether a model that repeats itself may continue: by the rules, or by asking a person.
    Doubt,
    /// Stop the model call and the tools.
    Stop(Stop),
    /// Close the open step with an error, or write a step that carries the error.
    Close(Error),
    /// End the loop.
    Park(ParkReason),
    /// Leave the session to another worker.
    HandOver,
}

/// Why everything is being stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A client aborted the turn. Its processes are ended too.
    Abort,
    /// The turn cannot get something that it needs. Its processes are ended too.
    Broken(Error),
    /// The worker ends. Processes keep running, and another worker attaches to them.
    HandOver,
}

/// Why a loop parks its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkReason {
    /// The turn is over.
    Idle(Outcome),
    /// The turn goes on after this wait.
    Wait(Wait),
}
