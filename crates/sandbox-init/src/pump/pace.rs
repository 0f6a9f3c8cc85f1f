//! How fast the output of a terminal is read. A program that prints without end would cost the service as much of the processors as it takes itself, and
//! the service has a larger share of them.

use std::time::{Duration, Instant};

/// Bytes of the output of one terminal in each second, after a first second's worth at once. Beyond it the program waits, as it does at any terminal. A
/// screen shows far less.
const TERMINAL_OUTPUT_BYTES_PER_SECOND_MAX: u64 = 4 * 1024 * 1024;
/// What may come at once, as the time in which it would come at this rate.
const BURST: Duration = Duration::from_secs(1);

/// The pace of one output.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When all bytes so far would have come at the rate; `None`: there were none.
    due: Option<Instant>,
}

impl Pace {
    /// Counts bytes that were read.
    pub(super) fn note(&mut self, bytes: usize, now: Instant) {
        let took = Duration::from_micros(bytes as u64 * 1_000_000 / TERMINAL_OUTPUT_BYTES_PER_SECOND_MAX);
        self.due = Some(self.due.map_or(now, |due| due.max(now)) + took);
    }

    /// The time before which nothing more is read; `None`: it may be read now.
    pub(super) fn resumes_at(&self, now: Instant) -> Option<Instant> {
        self.due.and_then(|due| due.checked_sub(BURST)).filter(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SECOND: u64 = TERMINAL_OUTPUT_BYTES_PER_SECOND_MAX;
    /// Far from the beginning of the clock.
    const LONG: Duration = Duration::from_secs(1_000);

    #[test]
    fn a_burst_comes_at_once_and_the_rest_at_the_rate() {
        let (mut pace, now) = (Pace::default(), Instant::now() + LONG);
        assert_eq!(pace.resumes_at(now), None);
        pace.note(usize::try_from(SECOND).unwrap(), now);
        assert_eq!(pace.resumes_at(now), None, "the burst");
        pace.note(usize::try_from(SECOND / 2).unwrap(), now);
        let resumes = now + Duration::from_millis(500);
        assert_eq!(pace.resumes_at(now), Some(resumes));
        assert_eq!(pace.resumes_at(resumes), None);
        // Silence gives no more than a burst.
        let later = now + LONG;
        pace.note(usize::try_from(2 * SECOND).unwrap(), later);
        assert_eq!(pace.resumes_at(later), Some(later + Duration::from_secs(1)));
    }
}
