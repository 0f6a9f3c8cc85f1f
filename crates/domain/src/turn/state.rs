//! The states of a turn, and what each signal does in each of them.

use super::{
    action::{Action, ParkReason, Stop},
    back_off::back_off_ms,
    call::CallId,
    outcome::NEEDS_HUMAN,
    signal::{CallState, ModelFailure, Signal},
    view::{Due, View},
    work::{Need, Work},
};
use crate::{
    conversation::message::Error,
    ids::Timestamp,
    limits::{
        BACK_OFF_IN_SLOT_MS, BUDGET_WAIT_MS, DOOM_LOOP_CALLS, MODEL_RETRIES_MAX, RETRY_AFTER_MAX_MS,
        STEPS_PER_TURN_MAX,
    },
    session::Outcome,
    wait::{Reason, Wait},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Code of the error of a turn whose budget was not raised in time.
const BUDGET_SPENT: &str = "budget_spent";

/// What a turn is doing.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum State {
    /// Claimed; the loop has not read the stored state yet.
    #[default]
    Looking,
    /// Something that the work needs is missing.
    Waiting {
        /// What follows once nothing is missing.
        work: Work,
        /// What is missing. The worker gets the first; the others follow in this order.
        missing: VecDeque<Need>,
    },
    /// A model call is open.
    Calling {
        /// How many attempts failed before this one.
        failed: u32,
    },
    /// The model call failed; the next attempt begins after a pause.
    BackingOff,
    /// Tools are running.
    Acting {
        /// The calls that run.
        open: BTreeSet<CallId>,
        /// The calls that wait for a child session or a person.
        waiting: BTreeMap<CallId, Wait>,
    },
    /// Everything is being stopped.
    Stopping {
        /// Why everything stops. It decides what follows.
        then: Stop,
    },
    /// The model repeats itself, and the loop finds out whether it may continue.
    Doubting,
    /// The session is being parked.
    Parking,
    /// This worker is finished with the session.
    Ended,
}

/// The inputs of a pause's length other than the failure.
#[derive(Debug, Clone, Copy)]
struct Timing {
    now: Timestamp,
    /// From 0 to 1.
    jitter: f64,
}

impl State {
    /// Applies a signal and returns the actions that follow. A late or repeated signal returns no action.
    pub fn apply(&mut self, signal: Signal, now: Timestamp, jitter: f64) -> Vec<Action> {
        let timing = Timing { now, jitter };
        match self {
            Self::Looking => self.on_looking(signal, now),
            Self::Waiting { .. } => self.on_waiting(signal, timing),
            Self::Calling { failed } => {
                let failed = *failed;
                self.on_calling(failed, signal, timing)
            }
            Self::BackingOff => self.on_backing_off(signal),
            Self::Acting { .. } => self.on_acting(signal),
            Self::Stopping { .. } => self.on_stopping(signal),
            Self::Doubting => self.on_doubting(signal),
            Self::Parking => self.on_parking(signal),
            Self::Ended => vec![],
        }
    }

    /// `Looking` is short and reads the control row itself, where it finds an abort or a drain.
    fn on_looking(&mut self, signal: Signal, now: Timestamp) -> Vec<Action> {
        match signal {
            Signal::Looked(view) => self.decide(&view, now),
            Signal::Ready(_)
            | Signal::Answered(_)
            | Signal::Failed(_)
            | Signal::PauseEnded
            | Signal::Doubted(_)
            | Signal::Calls(_)
            | Signal::Broken(_)
            | Signal::Abort
            | Signal::Drain
            | Signal::Stopped
            | Signal::Parked
            | Signal::NewInput => vec![],
        }
    }

    fn on_waiting(&mut self, signal: Signal, timing: Timing) -> Vec<Action> {
        let Self::Waiting { work, missing } = self else { return vec![] };
        match signal {
            Signal::Ready(need) if missing.front() == Some(&need) => {
                missing.pop_front();
                self.fetch_next()
            }
            Signal::Failed(failure) => match work.failed() {
                Some(failed) => self.fail(failed + 1, failure, timing),
                None => vec![],
            },
            Signal::Abort => self.stop(Stop::Abort),
            Signal::Drain => self.stop(Stop::HandOver),
            Signal::Broken(error) => self.stop(Stop::Broken(error)),
            Signal::Looked(_)
            | Signal::Ready(_)
            | Signal::Answered(_)
            | Signal::PauseEnded
            | Signal::Calls(_)
            | Signal::Doubted(_)
            | Signal::Stopped
            | Signal::Parked
            | Signal::NewInput => vec![],
        }
    }

    fn on_calling(&mut self, failed: u32, signal: Signal, timing: Timing) -> Vec<Action> {
        match signal {
            Signal::Answered(calls) if calls.is_empty() => self.finish(),
            Signal::Answered(calls) => self.wait(Work::Calls(calls)),
            Signal::Failed(failure) => self.fail(failed + 1, failure, timing),
            Signal::Abort => self.stop(Stop::Abort),
            Signal::Drain => self.stop(Stop::HandOver),
            Signal::Broken(error) => self.stop(Stop::Broken(error)),
            Signal::Looked(_)
            | Signal::Ready(_)
            | Signal::PauseEnded
            | Signal::Doubted(_)
            | Signal::Calls(_)
            | Signal::Stopped
            | Signal::Parked
            | Signal::NewInput => vec![],
        }
    }

    /// Looks again after the pause: the failed attempt may have used up the budget. The failed attempts are stored.
    fn on_backing_off(&mut self, signal: Signal) -> Vec<Action> {
        match signal {
            Signal::PauseEnded => self.go(Self::Looking, vec![Action::Look]),
            Signal::Abort => self.stop(Stop::Abort),
            Signal::Drain => self.stop(Stop::HandOver),
            Signal::Broken(error) => self.stop(Stop::Broken(error)),
            Signal::Looked(_)
            | Signal::Ready(_)
            | Signal::Answered(_)
            | Signal::Failed(_)
            | Signal::Doubted(_)
            | Signal::Calls(_)
            | Signal::Stopped
            | Signal::Parked
            | Signal::NewInput => vec![],
        }
    }

    fn on_acting(&mut self, signal: Signal) -> Vec<Action> {
        let Self::Acting { open, waiting } = self else { return vec![] };
        match signal {
            Signal::Calls(calls) => {
                for (call, now) in calls {
                    match now {
                        CallState::Runs => {
                            waiting.remove(&call);
                            open.insert(call);
                        }
                        CallState::Waits(wait) => {
                            open.remove(&call);
                            waiting.insert(call, wait);
                        }
                        CallState::Ended => {
                            open.remove(&call);
                            waiting.remove(&call);
                        }
                    }
                }
                self.go_on_acting()
            }
            Signal::Abort => self.stop(Stop::Abort),
            Signal::Drain => self.stop(Stop::HandOver),
            Signal::Broken(error) => self.stop(Stop::Broken(error)),
            Signal::Looked(_)
            | Signal::Ready(_)
            | Signal::Answered(_)
            | Signal::Failed(_)
            | Signal::PauseEnded
            | Signal::Doubted(_)
            | Signal::Stopped
            | Signal::Parked
            | Signal::NewInput => vec![],
        }
    }

    fn on_stopping(&mut self, signal: Signal) -> Vec<Action> {
        let Self::Stopping { then } = self else { return vec![] };
        match (signal, then) {
            (Signal::Stopped, Stop::Abort) => self.close(Error::aborted()),
            (Signal::Stopped, Stop::Broken(error)) => {
                let error = error.clone();
                self.close(error)
            }
            (Signal::Stopped, Stop::HandOver) => self.hand_over(),
            (
                Signal::Looked(_)
                | Signal::Ready(_)
                | Signal::Answered(_)
                | Signal::Failed(_)
                | Signal::PauseEnded
                | Signal::Doubted(_)
                | Signal::Calls(_)
                | Signal::Broken(_)
                | Signal::Abort
                | Signal::Drain
                | Signal::Parked
                | Signal::NewInput,
                Stop::Abort | Stop::Broken(_) | Stop::HandOver,
            ) => vec![],
        }
    }

    /// `Doubting` is short. The look or the park that follows it finds an abort or a drain.
    fn on_doubting(&mut self, signal: Signal) -> Vec<Action> {
        match signal {
            Signal::Doubted(None) => self.go(Self::Looking, vec![Action::Look]),
            Signal::Doubted(Some(wait)) => self.park(ParkReason::Wait(wait)),
            Signal::Broken(error) => self.close(error),
            Signal::Looked(_)
            | Signal::Ready(_)
            | Signal::Answered(_)
            | Signal::Failed(_)
            | Signal::PauseEnded
            | Signal::Calls(_)
            | Signal::Abort
            | Signal::Drain
            | Signal::Stopped
            | Signal::Parked
            | Signal::NewInput => vec![],
        }
    }

    /// `Parking` is short and fails if an input arrives first; an abort is such an input.
    fn on_parking(&mut self, signal: Signal) -> Vec<Action> {
        match signal {
            Signal::Parked => self.go(Self::Ended, vec![]),
            Signal::NewInput => self.go(Self::Looking, vec![Action::Look]),
            Signal::Looked(_)
            | Signal::Ready(_)
            | Signal::Answered(_)
            | Signal::Failed(_)
            | Signal::PauseEnded
            | Signal::Doubted(_)
            | Signal::Calls(_)
            | Signal::Broken(_)
            | Signal::Abort
            | Signal::Drain
            | Signal::Stopped => vec![],
        }
    }

    /// What the turn waits for: the worker is getting it.
    pub fn missing(&self) -> Option<Need> {
        match self {
            Self::Waiting { missing, .. } => missing.front().copied(),
            Self::Looking
            | Self::Calling { .. }
            | Self::BackingOff
            | Self::Acting { .. }
            | Self::Stopping { .. }
            | Self::Doubting
            | Self::Parking
            | Self::Ended => None,
        }
    }

    /// Waits for everything that the work needs, and begins it then.
    fn wait(&mut self, work: Work) -> Vec<Action> {
        let mut actions = match &work {
            Work::Decide => vec![Action::Prepare],
            Work::Calls(_) => vec![Action::Announce],
            Work::Step { .. } | Work::Call { .. } | Work::Summary { .. } => vec![],
        };
        let missing = work.needs().iter().copied().collect();
        *self = Self::Waiting { work, missing };
        actions.extend(self.fetch_next());
        actions
    }

    /// Lets the worker get what is missing next, or begins the work.
    fn fetch_next(&mut self) -> Vec<Action> {
        let Self::Waiting { work, missing } = self else { return vec![] };
        if let Some(need) = missing.front() {
            return vec![Action::Fetch(*need, work.clone())];
        }
        match work.clone() {
            Work::Step { failed } => {
                let mut actions = vec![Action::BeginStep { failed }];
                actions.extend(self.wait(Work::Call { failed }));
                actions
            }
            Work::Call { failed } => self.go(Self::Calling { failed }, vec![Action::Call]),
            Work::Summary { failed } => self.go(Self::Calling { failed }, vec![Action::Summarize { failed }]),
            Work::Decide => self.go(Self::Looking, vec![Action::Look]),
            Work::Calls(calls) => {
                let open = calls.iter().cloned().collect();
                self.go(Self::Acting { open, waiting: BTreeMap::new() }, vec![Action::Run(calls)])
            }
        }
    }

    fn go(&mut self, state: Self, actions: Vec<Action>) -> Vec<Action> {
        *self = state;
        actions
    }

    fn decide(&mut self, view: &View, now: Timestamp) -> Vec<Action> {
        if view.aborted {
            return self.stop(Stop::Abort);
        }
        let Some(newest) = &view.newest_user else { return self.park(ParkReason::Idle(Outcome::Done)) };
        let mut compact = view.is_full && view.gained_room();
        let (mut failed, mut resumes, mut overflow) = (0, false, false);
        if let Some(last) = &view.last {
            if last.answered && !last.open.is_empty() {
                return if view.leaving {
                    self.hand_over()
                } else {
                    self.wait(Work::Calls(last.open.clone()))
                };
            }
            if last.answered && !last.closed {
                return self.finish();
            }
            let answers_newest = &last.parent == newest;
            if let (Some(outcome), true) = (last.failed, answers_newest) {
                // A prompt that a model refused as too long is retried after a summary. A summary request is not
                // retried.
                if !last.overflowed || last.is_summary || view.steps_since_summary == Some(0) {
                    return self.park(ParkReason::Idle(outcome));
                }
                (compact, overflow) = (true, true);
            } else if answers_newest && last.closed && !last.continues {
                // Summarize after a finished turn only if the budget allows it. Otherwise the next prompt can do so.
                if !compact || view.out_of_budget || view.steps >= STEPS_PER_TURN_MAX {
                    return self.park(ParkReason::Idle(Outcome::Done));
                }
            }
            if answers_newest && last.closed && last.rejected {
                return self.park(ParkReason::Idle(Outcome::NeedsHuman));
            }
            resumes = answers_newest && last.is_summary && last.closed && last.failed.is_none();
            if !last.answered && (answers_newest || last.is_summary) {
                failed = last.retries;
            }
        }
        if let Some(end) = self.end_at_boundary(view, now) {
            return end;
        }
        match view.due {
            Due::Preparation => self.wait(Work::Decide),
            Due::Calls => self.go(Self::Looking, vec![Action::BeginCalls, Action::Look]),
            Due::Summary => self.wait(Work::Summary { failed }),
            Due::Nothing if resumes => self.go(Self::Looking, vec![Action::Resume, Action::Look]),
            Due::Nothing if compact => {
                self.go(Self::Looking, vec![Action::Compact { overflow }, Action::Look])
            }
            Due::Nothing => self.wait(Work::Step { failed }),
        }
    }

    /// Ends the turn, or leaves it, at a step boundary.
    fn end_at_boundary(&mut self, view: &View, now: Timestamp) -> Option<Vec<Action>> {
        if view.repeated_calls >= DOOM_LOOP_CALLS {
            return Some(self.go(Self::Doubting, vec![Action::Doubt]));
        }
        if view.steps >= STEPS_PER_TURN_MAX {
            let text = format!("The turn reached its limit of {STEPS_PER_TURN_MAX} steps");
            return Some(self.close(Error::coded(NEEDS_HUMAN, text)));
        }
        if view.out_of_budget {
            let until = Timestamp(view.active_at.0.saturating_add(BUDGET_WAIT_MS));
            if now >= until {
                let text = "The budget is spent, and it was not raised in time";
                return Some(self.close(Error::coded(BUDGET_SPENT, text)));
            }
            return Some(self.park(ParkReason::Wait(Wait { reason: Reason::Budget, until: Some(until) })));
        }
        view.leaving.then(|| self.hand_over())
    }

    fn hand_over(&mut self) -> Vec<Action> {
        self.go(Self::Ended, vec![Action::HandOver])
    }

    /// Continues once no tool is running. Calls that wait for a person or a child need no loop.
    fn go_on_acting(&mut self) -> Vec<Action> {
        let Self::Acting { open, waiting } = self else { return vec![] };
        if !open.is_empty() {
            return vec![];
        }
        match Wait::all(waiting.values().copied()) {
            Some(wait) => self.park(ParkReason::Wait(wait)),
            None => self.finish(),
        }
    }

    fn finish(&mut self) -> Vec<Action> {
        self.go(Self::Looking, vec![Action::Finish, Action::Look])
    }

    fn park(&mut self, reason: ParkReason) -> Vec<Action> {
        self.go(Self::Parking, vec![Action::Park(reason)])
    }

    fn stop(&mut self, then: Stop) -> Vec<Action> {
        self.go(Self::Stopping { then: then.clone() }, vec![Action::Stop(then)])
    }

    /// Closes the step with an error and reads the stored state again. The error ends the turn unless a newer prompt
    /// arrived.
    fn close(&mut self, error: Error) -> Vec<Action> {
        self.go(Self::Looking, vec![Action::Close(error), Action::Look])
    }

    fn fail(&mut self, failed: u32, failure: ModelFailure, timing: Timing) -> Vec<Action> {
        let wait_ms = back_off_ms(failed, failure.retry_after_ms, timing.jitter);
        let asks_too_much =
            failure.retry_after_ms.is_some_and(|retry_after_ms| retry_after_ms > RETRY_AFTER_MAX_MS);
        if !failure.retryable || failed > MODEL_RETRIES_MAX || asks_too_much {
            return self.close(failure.error);
        }
        let until = Timestamp(timing.now.0.saturating_add(i64::try_from(wait_ms).unwrap_or(i64::MAX)));
        let action = Action::BackOff { attempt: failed, until, error: failure.error };
        if wait_ms > BACK_OFF_IN_SLOT_MS {
            let wait = Wait { reason: Reason::BackOff, until: Some(until) };
            return self.go(Self::Parking, vec![action, Action::Park(ParkReason::Wait(wait))]);
        }
        self.go(Self::BackingOff, vec![action])
    }
}

#[cfg(test)]
mod tests;
