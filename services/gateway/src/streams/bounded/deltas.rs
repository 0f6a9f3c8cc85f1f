//! Deltas that wait while subscribers receive the ones before. Those that continue each other become one, so a feed that has more subscribers
//! than it can serve at once sends them fewer and longer deltas.

use bus::feed::Delta;
use domain::ids::SessionId;
use std::time::Duration;
use tokio::time::Instant;

/// How long a delta waits for subscribers that have not received the ones before. One that does not read at all delays the others no longer.
pub(crate) const DELTA_WAIT: Duration = Duration::from_millis(4);
/// The pause between two looks whether they have: subscribers that told it would take turns for a lock at each delta.
pub(crate) const DELTA_LOOK: Duration = Duration::from_millis(1);
/// Deltas that wait at once. When there are so many, the feed sends all of them.
const WAITING_MAX: usize = 64;

/// The deltas that wait, in the order in which they came.
#[derive(Debug)]
pub(crate) struct WaitingDeltas {
    deltas: Vec<(SessionId, Delta)>,
    sent_at: Instant,
    looked_at: Instant,
}

impl WaitingDeltas {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { deltas: vec![], sent_at: now, looked_at: now }
    }

    /// When the next look is due.
    pub(crate) fn look_at(&self) -> Instant {
        self.looked_at + DELTA_LOOK
    }

    /// Whether the deltas must be sent now: subscribers have received the ones before, or these have waited long enough, or they are many.
    pub(crate) fn is_due(&mut self, now: Instant, is_received: bool) -> bool {
        self.looked_at = now;
        is_received || now >= self.sent_at + DELTA_WAIT || self.deltas.len() >= WAITING_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deltas.is_empty()
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

    #[test]
    fn deltas_of_a_session_that_continue_each_other_become_one() {
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

    #[test]
    fn a_subscriber_that_does_not_read_delays_deltas_for_a_bounded_time() {
        let mut waiting = WaitingDeltas::new();
        let now = waiting.sent_at;
        assert!(waiting.is_due(now, true));
        assert!(!waiting.is_due(now, false));
        assert!(waiting.is_due(now + DELTA_WAIT, false));
        waiting.take();
        let now = waiting.sent_at;
        assert!(!waiting.is_due(now, false), "others were just sent");
    }
}
