//! The turn: what a loop does next. Pure: an input goes in, actions come out; the worker performs them and feeds
//! what happened back. Deciding is level-triggered: at each step boundary the loop looks at what is stored and goes
//! on from there, so a new worker and an old one decide the same.
// Continues in worker::turn, which performs the actions.

use crate::{
    ids::{MessageId, Timestamp},
    limits::{
        BACK_OFF_IN_SLOT_MS, DOOM_LOOP_CALLS, MODEL_RETRIES_MAX, RETRY_AFTER_MAX_MS, RETRY_BASE_MS,
        RETRY_CAP_MS, STEPS_PER_TURN_MAX,
    },
    message::Error,
    session::Outcome,
    wait::{Reason, Wait},
};
use std::collections::{BTreeMap, BTreeSet};

/// The provider's id of a tool call.
pub type CallId = String;

/// Where a turn is.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum State {
    /// Claimed; what is stored has not been looked at.
    #[default]
    Looking,
    /// A model call is open.
    Calling {
        /// How many attempts failed before this one.
        failed: u32,
    },
    /// The model call failed; the next attempt begins after the wait.
    BackingOff {
        /// How many attempts failed.
        failed: u32,
    },
    /// Tools are running.
    Acting {
        /// The calls that run.
        open: BTreeSet<CallId>,
        /// The calls that wait for somebody else: a child session, a person.
        waiting: BTreeMap<CallId, Wait>,
    },
    /// Everything is being stopped.
    Stopping {
        /// What follows.
        then: Stop,
    },
    /// The session is being parked.
    Parking,
    /// This worker has nothing more to do with the session.
    Ended,
}

/// Why everything is being stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Somebody aborted the turn: its processes are ended too.
    Abort,
    /// Something that the turn needs is not to be had: its processes are ended too.
    Broken(Error),
    /// The worker ends: processes go on, and another worker attaches to them.
    HandOver,
}

/// What is stored, as far as deciding needs it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    /// The newest prompt.
    pub newest_user: Option<MessageId>,
    /// The newest step.
    pub last: Option<LastStep>,
    /// Whether an abort was accepted that no loop has taken.
    pub aborted: bool,
    /// Steps since the newest prompt.
    pub steps: u32,
    /// How many of the newest tool calls are the same call with the same answer.
    pub repeated_calls: usize,
    /// Whether the session and its subtasks spent all that they may.
    pub out_of_budget: bool,
    /// Whether the loop is asked to let go at the next step boundary: the worker ends, or others have waited longer.
    pub leaving: bool,
}

/// The newest assistant message.
#[derive(Debug, Clone, PartialEq)]
pub struct LastStep {
    /// The prompt that it answers.
    pub parent: MessageId,
    /// Whether the model's answer is stored as complete.
    pub answered: bool,
    /// Whether the step is closed: all its tools have answers.
    pub closed: bool,
    /// Whether the model wants another step.
    pub continues: bool,
    /// How it failed.
    pub failed: Option<Outcome>,
    /// Whether a person refused one of its calls without a word of what to do instead.
    pub refused: bool,
    /// Tool calls without an answer.
    pub open: Vec<CallId>,
    /// Attempts at the model call that failed, of a step without an answer.
    pub retries: u32,
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What the session shows.
    pub error: Error,
    /// Whether another attempt may help.
    pub retryable: bool,
    /// How long the provider asks to wait.
    pub retry_after_ms: Option<u64>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// What is stored was read.
    Looked(View),
    /// The model's answer is stored, with these calls to run.
    Answered(Vec<CallId>),
    /// The model call failed.
    Failed(Failure),
    /// The wait is over.
    Waited,
    /// These calls were begun and wait for somebody else.
    Waits(Vec<(CallId, Wait)>),
    /// A tool's answer is stored.
    ToolEnded(CallId),
    /// The turn cannot go on, whatever is running.
    Broken(Error),
    /// An abort was accepted.
    Abort,
    /// The worker ends and the grace for streams is over.
    Drain,
    /// What was running is stopped.
    Stopped,
    /// The session is parked.
    Parked,
    /// It is not: a new input came first.
    NewInput,
    /// Another worker owns the session.
    Lost,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Read what is stored.
    Look,
    /// Call the model. `failed` attempts came before.
    Call {
        /// How many attempts failed before.
        failed: u32,
    },
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
    /// Stop the model call and the tools.
    Stop(Stop),
    /// Close the open step with an error, or make one that has it.
    Close(Error),
    /// End the loop.
    Park(End),
    /// Leave the session to another worker.
    HandOver,
    /// Forget the session without any further effect.
    Drop,
}

/// How a loop ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The turn is over.
    Idle(Outcome),
    /// It is not: something else must happen first.
    Wait(Wait),
}

impl State {
    /// Takes an input and gives what to do. An input that does not fit (late, repeated) gives nothing.
    pub fn apply(&mut self, input: Input, now: Timestamp, jitter: f64) -> Vec<Action> {
        match (&mut *self, input) {
            (Self::Ended, _) => vec![],
            (_, Input::Lost) => self.go(Self::Ended, vec![Action::Drop]),
            (Self::Looking, Input::Looked(view)) => self.decide(&view),
            (Self::Calling { .. }, Input::Answered(calls)) if calls.is_empty() => self.finish(),
            (Self::Calling { .. }, Input::Answered(calls)) => self.act(calls),
            (Self::Calling { failed }, Input::Failed(failure)) => {
                let failed = *failed + 1;
                self.failed(failed, failure, now, jitter)
            }
            (Self::BackingOff { failed }, Input::Waited) => {
                let failed = *failed;
                self.go(Self::Calling { failed }, vec![Action::Call { failed }])
            }
            (Self::Acting { open, waiting }, Input::ToolEnded(call)) => {
                open.remove(&call);
                waiting.remove(&call);
                self.acted()
            }
            (Self::Acting { open, waiting }, Input::Waits(calls)) => {
                for (call, wait) in calls {
                    open.remove(&call);
                    waiting.insert(call, wait);
                }
                self.acted()
            }
            (Self::Calling { .. } | Self::BackingOff { .. } | Self::Acting { .. }, input) => match input {
                Input::Abort => self.stop(Stop::Abort),
                Input::Drain => self.stop(Stop::HandOver),
                Input::Broken(error) => self.stop(Stop::Broken(error)),
                _ => vec![],
            },
            (Self::Stopping { then: Stop::Abort }, Input::Stopped) => self.close(Error::aborted()),
            (Self::Stopping { then: Stop::Broken(error) }, Input::Stopped) => {
                let error = error.clone();
                self.close(error)
            }
            (Self::Stopping { then: Stop::HandOver }, Input::Stopped) => {
                self.go(Self::Ended, vec![Action::HandOver])
            }
            (Self::Parking, Input::Parked) => self.go(Self::Ended, vec![]),
            (Self::Parking, Input::NewInput) => self.go(Self::Looking, vec![Action::Look]),
            // Looking and Parking are short and read the control row themselves: they find an abort or a drain there.
            (_, _) => vec![],
        }
    }

    fn go(&mut self, state: Self, actions: Vec<Action>) -> Vec<Action> {
        *self = state;
        actions
    }

    fn decide(&mut self, view: &View) -> Vec<Action> {
        if view.aborted {
            return self.go(Self::Stopping { then: Stop::Abort }, vec![Action::Stop(Stop::Abort)]);
        }
        let Some(newest) = &view.newest_user else { return self.park(End::Idle(Outcome::Done)) };
        let mut failed = 0;
        if let Some(last) = &view.last {
            if last.answered && !last.open.is_empty() {
                return if view.leaving { self.hand_over() } else { self.act(last.open.clone()) };
            }
            if last.answered && !last.closed {
                return self.finish();
            }
            let answers_newest = &last.parent == newest;
            if let (Some(outcome), true) = (last.failed, answers_newest) {
                return self.park(End::Idle(outcome));
            }
            if answers_newest && last.closed && last.refused {
                return self.park(End::Idle(Outcome::NeedsHuman));
            }
            if answers_newest && last.closed && !last.continues {
                return self.park(End::Idle(Outcome::Done));
            }
            if answers_newest && !last.answered {
                failed = last.retries;
            }
        }
        if view.repeated_calls >= DOOM_LOOP_CALLS {
            return self.give_up(format!(
                "The model made the same tool call {DOOM_LOOP_CALLS} times in a row with the same answer"
            ));
        }
        if view.steps >= STEPS_PER_TURN_MAX {
            return self.give_up(format!("The turn reached its limit of {STEPS_PER_TURN_MAX} steps"));
        }
        if view.out_of_budget {
            return self.park(End::Wait(Wait { reason: Reason::Budget, until: None }));
        }
        if view.leaving {
            return self.hand_over();
        }
        self.go(Self::Calling { failed }, vec![Action::Call { failed }])
    }

    fn hand_over(&mut self) -> Vec<Action> {
        self.go(Self::Ended, vec![Action::HandOver])
    }

    fn act(&mut self, calls: Vec<CallId>) -> Vec<Action> {
        let open = calls.iter().cloned().collect();
        self.go(Self::Acting { open, waiting: BTreeMap::new() }, vec![Action::Run(calls)])
    }

    /// Goes on when nothing runs any more: what waits for somebody else needs no loop.
    fn acted(&mut self) -> Vec<Action> {
        match self {
            Self::Acting { open, waiting } if open.is_empty() => match Wait::all(waiting.values().copied()) {
                Some(wait) => self.park(End::Wait(wait)),
                None => self.finish(),
            },
            _ => vec![],
        }
    }

    fn finish(&mut self) -> Vec<Action> {
        self.go(Self::Looking, vec![Action::Finish, Action::Look])
    }

    fn park(&mut self, end: End) -> Vec<Action> {
        self.go(Self::Parking, vec![Action::Park(end)])
    }

    fn stop(&mut self, then: Stop) -> Vec<Action> {
        self.go(Self::Stopping { then: then.clone() }, vec![Action::Stop(then)])
    }

    fn give_up(&mut self, sentence: String) -> Vec<Action> {
        self.close(Error::new(NEEDS_HUMAN, sentence))
    }

    /// Closes the step with an error and looks again: the error ends the turn unless a newer prompt came.
    fn close(&mut self, error: Error) -> Vec<Action> {
        self.go(Self::Looking, vec![Action::Close(error), Action::Look])
    }

    fn failed(&mut self, failed: u32, failure: Failure, now: Timestamp, jitter: f64) -> Vec<Action> {
        let wait_ms = back_off_ms(failed, failure.retry_after_ms, jitter);
        let asks_too_much = failure.retry_after_ms.is_some_and(|asked| asked > RETRY_AFTER_MAX_MS);
        if !failure.retryable || failed > MODEL_RETRIES_MAX || asks_too_much {
            return self.close(failure.error);
        }
        let until = Timestamp(now.0.saturating_add(i64::try_from(wait_ms).unwrap_or(i64::MAX)));
        let action = Action::BackOff { attempt: failed, until, error: failure.error };
        if wait_ms > BACK_OFF_IN_SLOT_MS {
            let wait = Wait { reason: Reason::BackOff, until: Some(until) };
            return self.go(Self::Parking, vec![action, Action::Park(End::Wait(wait))]);
        }
        self.go(Self::BackingOff { failed }, vec![action])
    }
}

/// The outcome of a turn whose last step has this error.
pub fn outcome_of(error: &Error) -> Outcome {
    if error.is_abort() {
        Outcome::Aborted
    } else if error.name == NEEDS_HUMAN {
        Outcome::NeedsHuman
    } else {
        Outcome::Failed
    }
}

/// Name of the error of a turn that needs a person.
pub const NEEDS_HUMAN: &str = "NeedsHumanError";

/// Milliseconds to wait after the `failed`-th attempt: what the provider asks for with up to a tenth on top, so that many
/// sessions do not come back at once, else doubling from 2 s to 30 s with up to a quarter on top. `jitter` is from 0 to 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small numbers"
)]
fn back_off_ms(failed: u32, retry_after_ms: Option<u64>, jitter: f64) -> u64 {
    let (wait, share) = match retry_after_ms {
        Some(asked) => (asked, 0.1),
        None => {
            let doublings = failed.saturating_sub(1).min(16);
            (RETRY_BASE_MS.saturating_mul(1 << doublings).min(RETRY_CAP_MS), 0.25)
        }
    };
    wait.saturating_add((wait as f64 * share * jitter.clamp(0.0, 1.0)) as u64)
}

#[cfg(test)]
mod tests;
