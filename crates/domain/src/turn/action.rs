//! What a turn can ask its worker to do.

use super::{
    call::CallId,
    work::{Need, Work},
};
use crate::{conversation::message::Error, ids::Timestamp, session::Outcome, wait::Wait};

/// An action of the worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Read the stored state.
    Look,
    /// Get what this work waits for. [`super::signal::Signal::Ready`] follows, at once if there is nothing to get.
    Fetch(Need, Work),
    /// Begin a step, or another attempt at it.
    BeginStep {
        /// The number of failed attempts before this one.
        failed: u32,
    },
    /// Call the model for the step that has begun.
    Call,
    /// Request a summary that will replace the conversation before it.
    Compact {
        /// Whether a model already refused the conversation as too long.
        overflow: bool,
    },
    /// Call the model for the summary.
    Summarize {
        /// The number of failed attempts before this one.
        failed: u32,
    },
    /// Write the message that continues the work that the summary interrupted.
    Resume,
    /// Tell clients that the commands of prompts will be expanded, if there are any.
    Prepare,
    /// Tell clients that this worker continues the session, if they do not know it.
    Announce,
    /// Begin the calls that the prompt itself requests, as a step.
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
    /// Decide whether a model that repeats itself may continue: by the rules, or by asking a person.
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

/// Why everything stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A client aborted the turn. The worker ends its processes too.
    Abort,
    /// The turn cannot get something that it needs. The worker ends its processes too.
    Broken(Error),
    /// The worker is shutting down. Processes keep running, and another worker attaches to them.
    HandOver,
}

/// Why a loop parks its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkReason {
    /// The turn is over.
    Idle(Outcome),
    /// The turn continues after this wait.
    Wait(Wait),
}
