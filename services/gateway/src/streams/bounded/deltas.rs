//! Deltas that wait while subscribers receive the ones before. Those that continue each other become one, so a feed that has more subscribers
//! than it can serve at once sends them fewer and longer deltas.

use bus::feed::Delta;
use domain::ids::SessionId;
use std::time::Duration;
use tokio::time::Instant;

/// How long a delta waits for subscribers that have not received the ones before. One that does not read at all delays the others no longer.
pub(crate) const DELTA_WAIT: Duration = Duration::from_millis(4);
/// Deltas that wait at once; with more, all of them are sent.
const WAITING_MAX: usize = 64;

/// The deltas that wait, in the order in which they came.
#[derive(Debug)]
pub(crate) struct WaitingDeltas {
    deltas: Vec<(SessionId, Delta)>,
    sent_at: Instant,
}

impl WaitingDeltas {
    pub(crate) fn new() -> Self {
        Self { deltas: vec![], sent_at: Instant::now() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deltas.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.deltas.len() >= WAITING_MAX
    }

    /// When those that wait are sent at the latest.
    pub(crate) fn deadline(&self) -> Instant {
        self.sent_at + DELTA_WAIT
    }

    /// Adds a delta to the newest one of its session, or behind all others.
    pub(crate) fn add(&mut self, session: SessionId, delta: Delta) {
        let newest = self.deltas.iter_mut().rev().find(|(of, _)| *of == session);
        let left = match newest {
            Some((_, newest)) => newest.join(delta),
            None => Some(delta),
        };
        self.deltas.extend(left.map(|delta| (session, delta)));
    }

    /// Takes all deltas, to be sent now.
    pub(crate) fn take(&mut self) -> Vec<(SessionId, Delta)> {
        self.sent_at = Instant::now();
        std::mem::take(&mut self.deltas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn deltas_of_a_session_that_continue_each_other_become_one() {
        let mut waiting = WaitingDeltas::new();
        for (session, offset, text) in
            [("ses_1", 0, "a"), ("ses_2", 0, "x"), ("ses_1", 1, "b"), ("ses_1", 5, "f"), ("ses_1", 6, "g")]
        {
            let (message, part) = ("msg_1".parse().expect("id"), "prt_1".parse().expect("id"));
            let delta = Delta { epoch: 1, message, part, offset, text: text.to_owned() };
            waiting.add(session.parse().expect("id"), delta);
        }
        let taken: Vec<_> = waiting
            .take()
            .into_iter()
            .map(|(session, delta)| (session.to_string(), delta.offset, delta.text))
            .collect();
        let want = [("ses_1", 0, "ab"), ("ses_2", 0, "x"), ("ses_1", 5, "fg")];
        assert_eq!(taken, want.map(|(session, offset, text)| (session.to_owned(), offset, text.to_owned())));
        assert!(waiting.is_empty());
    }
}
