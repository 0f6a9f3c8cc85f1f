//! What a parked session waits for. A waiting session holds no slot and no process; its row says what ends the wait.

use crate::ids::Timestamp;

/// Why a session is parked before its turn is over. If there are several reasons, clients see the first in this order:
/// waits that a person can end come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A person must allow a tool call.
    Permission,
    /// A person must answer a question of the agent.
    Question,
    /// The session and its subtasks have used up their budget.
    Budget,
    /// Child sessions must finish.
    Children,
    /// The provider asked for a pause, or the model call failed and will be retried.
    BackOff,
    /// The loop failed more than once without progress; the next attempt begins after a pause.
    FailedAttempt,
    /// A newer version of Flotilla wrote the stored state, so a worker of that version must continue.
    NewerWorker,
}

impl Reason {
    pub const ALL: [Self; 7] = [
        Self::Permission,
        Self::Question,
        Self::Budget,
        Self::Children,
        Self::BackOff,
        Self::FailedAttempt,
        Self::NewerWorker,
    ];

    /// The value of `session_run.waiting_reason`, in events and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Question => "question",
            Self::Budget => "budget",
            Self::Children => "children",
            Self::BackOff => "back_off",
            Self::FailedAttempt => "failed_attempt",
            Self::NewerWorker => "newer_worker",
        }
    }

    /// Reads [`Reason::as_str`]; `None` for a reason that this version does not know.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// A wait: its reason, and when it ends at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// What the session waits for.
    pub reason: Reason,
    /// When the session wakes at the latest; `None`: only an input ends the wait.
    pub until: Option<Timestamp>,
}

impl Wait {
    /// Combines several waits: the reason that a person should see first, and the earliest end. `None` for no wait.
    pub fn all(waits: impl IntoIterator<Item = Self>) -> Option<Self> {
        waits.into_iter().reduce(|one, other| Self {
            reason: one.reason.min(other.reason),
            until: one.until.into_iter().chain(other.until).min(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_waits_are_one() {
        let wait = |reason, until: Option<i64>| Wait { reason, until: until.map(Timestamp) };
        assert_eq!(Wait::all([]), None);
        assert_eq!(
            Wait::all([
                wait(Reason::Children, None),
                wait(Reason::Permission, Some(9)),
                wait(Reason::Question, Some(7))
            ]),
            Some(wait(Reason::Permission, Some(7)))
        );
    }

    #[test]
    fn reasons_are_read_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(Reason::parse("moon"), None);
    }
}
