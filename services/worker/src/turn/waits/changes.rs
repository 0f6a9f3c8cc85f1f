//! What changes when calls begin, or when their waits are settled. The turn learns it all at once: the end of one call must not park a
//! session in which another has just started.

use domain::{
    conversation::message::Error,
    turn::{
        call::CallId,
        signal::{CallState, Signal},
    },
    wait::Wait,
};

/// The changes of calls, and the error of one that ends the turn.
#[derive(Default)]
pub(in crate::turn) struct CallChanges {
    calls: Vec<(CallId, CallState)>,
    broken: Option<Error>,
}

impl CallChanges {
    /// A call that waited for a person runs now.
    pub(super) fn start(&mut self, call: CallId) {
        self.calls.push((call, CallState::Runs));
    }

    /// A call waits for a person or a child session.
    pub(super) fn wait(&mut self, call: CallId, wait: Wait) {
        self.calls.push((call, CallState::Waits(wait)));
    }

    /// The answer of a call is stored.
    pub(in crate::turn) fn end(&mut self, call: CallId) {
        self.calls.push((call, CallState::Ended));
    }

    /// The turn cannot continue.
    pub(super) fn break_turn(&mut self, error: Error) {
        self.broken = Some(error);
    }

    /// The signal for the turn, if anything changed.
    pub(in crate::turn) fn into_signal(self) -> Option<Signal> {
        match self.broken {
            Some(error) => Some(Signal::Broken(error)),
            None => (!self.calls.is_empty()).then_some(Signal::Calls(self.calls)),
        }
    }
}
