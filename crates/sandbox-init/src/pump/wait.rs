//! The time that the pump waits for the next event.

use nix::poll::PollTimeout;
use std::time::Duration;

/// Longest wait, also without anything to do.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// Returns the timeout of a poll that ends `wait` from now, or after [`IDLE`], and then checks again.
///
/// It is rounded up to a whole millisecond: a poll that ended just before its time would repeat at once.
pub(super) fn timeout(wait: Duration) -> PollTimeout {
    let ms = wait.min(IDLE).as_millis() + 1;
    // Never an infinite timeout: a command that prints nothing would outlive its time limit.
    PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn no_wait_ends_early_and_none_is_longer_than_the_idle_one() {
        let day = Duration::from_secs(24 * 60 * 60);
        let seconds = (0..=day.as_secs()).step_by(7).map(Duration::from_secs);
        let edges = [0, 999, 1_000, 59_999, 60_000, 60_001, 65_533, 65_534, 65_535, 65_536, 120_000];
        let micros = [1, 999, 1_001].map(Duration::from_micros);
        for wait in seconds.chain(edges.map(Duration::from_millis)).chain(micros).chain([Duration::MAX]) {
            let duration = timeout(wait).duration().unwrap_or(Duration::MAX);
            let shortest = wait.min(IDLE);
            assert!(duration >= shortest, "{wait:?} ended early, after {duration:?}");
            assert!(
                duration <= shortest + Duration::from_millis(1),
                "{wait:?} ended late, after {duration:?}"
            );
        }
    }
}
