//! The turn: what a loop does next. Pure: an input goes in, actions come out; the worker performs them and feeds
//! what happened back. Deciding is level-triggered: at each step boundary the loop looks at what is stored and goes
//! on from there, so a new worker and an old one decide the same.
// Continues in worker::turn, which performs the actions.

use crate::{
    ids::{MessageId, Timestamp},
    limits::{
        BACK_OFF_IN_SLOT_MS, DOOM_LOOP_CALLS, MODEL_RETRIES_MAX, RETRY_AFTER_MAX_MS, STEPS_PER_TURN_MAX,
    },
    message::Error,
    session::Outcome,
    wait::{Reason, Wait},
};
use std::collections::{BTreeMap, BTreeSet};

/// First back-off of a model call, doubled each time; milliseconds.
const RETRY_BASE_MS: u64 = 2_000;
/// Longest back-off if the provider gives none; milliseconds.
const RETRY_CAP_MS: u64 = 30_000;

/// The provider's id of a tool call.
pub type CallId = String;

/// Where a turn is.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum State {
    /// Claimed; what is stored has not been looked at.
    #[default]
    Looking,
    /// The prompt is being made ready: what the repository says is read, and commands are expanded.
    Preparing,
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
    /// The model repeats itself, and whether it may go on so is being found out.
    Doubting,
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
    /// How many of the newest tool calls are the same call with the same answer, since a person let it go on so.
    pub repeated_calls: usize,
    /// What must be done before the prompt is answered.
    pub due: Due,
    /// Whether the newest finished step, if it is no summary, left no room for another one.
    pub is_full: bool,
    /// Steps that were finished since the newest summary; `None`: there is none.
    pub steps_since_summary: Option<u32>,
    /// Whether the session and its subtasks spent all that they may.
    pub out_of_budget: bool,
    /// Whether the loop is asked to let go at the next step boundary: the worker ends, or others have waited longer.
    pub leaving: bool,
}

/// What must be done before a prompt is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Due {
    /// Nothing.
    #[default]
    Nothing,
    /// What deciding needs of the repository: the words of its commands, its rules for summaries.
    Preparation,
    /// Calls that the prompt itself asks for: tasks for subagents, a command of the shell.
    Calls,
    /// The summary that was asked for.
    Summary,
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
    /// Whether the model wants another step; of a summary, whether the turn goes on after it.
    pub continues: bool,
    /// Whether it sums up what came before it.
    pub is_summary: bool,
    /// Whether it failed because the conversation is too long.
    pub overflowed: bool,
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
    /// The prompt is ready.
    Prepared,
    /// The model's answer is stored, with these calls to run.
    Answered(Vec<CallId>),
    /// The model call failed.
    Failed(Failure),
    /// The wait is over.
    Waited,
    /// These calls were begun and wait for somebody else.
    Waits(Vec<(CallId, Wait)>),
    /// Whether a model that repeats itself may go on so: what is waited for, or nothing when what was decided is stored.
    Doubted(Option<Wait>),
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
    /// Ask for a summary, which will take the place of what came before.
    Compact {
        /// Whether the conversation is too long already, so that a model refused it.
        overflow: bool,
    },
    /// Call the model for the summary.
    Summarize {
        /// How many attempts failed before.
        failed: u32,
    },
    /// Ask for what the summary interrupted.
    Resume,
    /// Read what the repository says, and put what its commands say into the prompt.
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
    /// Find out whether a model that repeats itself may go on so: by the rules, or by asking a person.
    Doubt,
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

impl View {
    /// Whether the newest summary, if there is one, made room: where the first step after it is full again, another one
    /// would not help either.
    fn gained_room(&self) -> bool {
        self.steps_since_summary.is_none_or(|steps| steps > 1)
    }
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
            (Self::Preparing, Input::Prepared) => self.go(Self::Looking, vec![Action::Look]),
            (
                Self::Preparing | Self::Calling { .. } | Self::BackingOff { .. } | Self::Acting { .. },
                input,
            ) => match input {
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
            (Self::Doubting, Input::Doubted(None)) => self.go(Self::Looking, vec![Action::Look]),
            (Self::Doubting, Input::Doubted(Some(wait))) => self.park(End::Wait(wait)),
            (Self::Doubting, Input::Broken(error)) => self.close(error),
            (Self::Parking, Input::Parked) => self.go(Self::Ended, vec![]),
            (Self::Parking, Input::NewInput) => self.go(Self::Looking, vec![Action::Look]),
            // Looking, Doubting and Parking are short and read the control row themselves: they find an abort or a drain there.
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
        let mut compact = view.is_full && view.gained_room();
        let (mut failed, mut resumes, mut overflow) = (0, false, false);
        if let Some(last) = &view.last {
            if last.answered && !last.open.is_empty() {
                return if view.leaving { self.hand_over() } else { self.act(last.open.clone()) };
            }
            if last.answered && !last.closed {
                return self.finish();
            }
            let answers_newest = &last.parent == newest;
            if let (Some(outcome), true) = (last.failed, answers_newest) {
                // A prompt that a model refused as too long is tried again after a summary, but a summary is not.
                if !last.overflowed || last.is_summary || view.steps_since_summary == Some(0) {
                    return self.park(End::Idle(outcome));
                }
                (compact, overflow) = (true, true);
            } else if answers_newest && last.closed && !last.continues {
                // What is over needs no summary at any price: the next prompt may have one.
                if !compact || view.out_of_budget || view.steps >= STEPS_PER_TURN_MAX {
                    return self.park(End::Idle(Outcome::Done));
                }
            }
            if answers_newest && last.closed && last.refused {
                return self.park(End::Idle(Outcome::NeedsHuman));
            }
            resumes = answers_newest && last.is_summary && last.closed && last.failed.is_none();
            if !last.answered && (answers_newest || last.is_summary) {
                failed = last.retries;
            }
        }
        if let Some(end) = self.must_end(view) {
            return end;
        }
        match view.due {
            Due::Preparation => self.go(Self::Preparing, vec![Action::Prepare]),
            Due::Calls => self.go(Self::Looking, vec![Action::BeginCalls, Action::Look]),
            Due::Summary => self.go(Self::Calling { failed }, vec![Action::Summarize { failed }]),
            Due::Nothing if resumes => self.go(Self::Looking, vec![Action::Resume, Action::Look]),
            Due::Nothing if compact => {
                self.go(Self::Looking, vec![Action::Compact { overflow }, Action::Look])
            }
            Due::Nothing => self.go(Self::Calling { failed }, vec![Action::Call { failed }]),
        }
    }

    /// Ends the turn, or leaves it, at a step boundary.
    fn must_end(&mut self, view: &View) -> Option<Vec<Action>> {
        if view.repeated_calls >= DOOM_LOOP_CALLS {
            return Some(self.go(Self::Doubting, vec![Action::Doubt]));
        }
        if view.steps >= STEPS_PER_TURN_MAX {
            return Some(self.give_up(format!("The turn reached its limit of {STEPS_PER_TURN_MAX} steps")));
        }
        if view.out_of_budget {
            return Some(self.park(End::Wait(Wait { reason: Reason::Budget, until: None })));
        }
        view.leaving.then(|| self.hand_over())
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
