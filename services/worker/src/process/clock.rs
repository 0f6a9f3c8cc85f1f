//! The worker's clock. Each renewal of the lease takes the time from Postgres; between renewals the worker counts on with a
//! clock that cannot be set. So all workers agree on the end of a wait, even if the wall clock of a machine jumps.

use domain::ids::Timestamp;
use nix::time::{ClockId, clock_gettime};
use std::{
    ops::Range,
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// One for the process: every worker in it uses the same Postgres.
static CLOCK: Clock = Clock(AtomicI64::new(UNSET));
const UNSET: i64 = i64::MIN;

/// The difference between Postgres' clock and [`boot_ms`]; milliseconds.
struct Clock(AtomicI64);

impl Clock {
    /// Postgres read its clock at some moment of the call, so the difference lies between two bounds. A slow answer has wide bounds
    /// and changes nothing that an earlier quick answer told; if it contradicts the known difference, Postgres' clock was set.
    fn set(&self, postgres: Timestamp, call: Range<u64>) {
        let least = postgres.0.saturating_sub(signed(call.end));
        let most = postgres.0.saturating_sub(signed(call.start)).max(least);
        let ahead = match self.0.load(Ordering::Relaxed) {
            UNSET => least.midpoint(most),
            known => known.clamp(least, most),
        };
        self.0.store(ahead, Ordering::Relaxed);
    }

    fn at(&self, boot_ms: u64) -> Option<Timestamp> {
        let ahead = self.0.load(Ordering::Relaxed);
        (ahead != UNSET).then(|| Timestamp(signed(boot_ms).saturating_add(ahead)))
    }
}

/// The time in Postgres. Before the first renewal, while the worker has no session yet, the machine's time.
pub(crate) fn now() -> Timestamp {
    let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    CLOCK.at(boot_ms()).unwrap_or_else(|| Timestamp(i64::try_from(wall().as_millis()).unwrap_or(i64::MAX)))
}

/// Sets the clock by the time that Postgres had during a call, whose beginning and end are times of [`boot_ms`].
pub(crate) fn set(postgres: Timestamp, call: Range<u64>) {
    CLOCK.set(postgres, call);
}

/// Milliseconds since the machine started. Unlike `Instant`, it also counts while the machine is suspended.
pub(crate) fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_from_what_postgres_said_last() {
        let clock = Clock(AtomicI64::new(UNSET));
        assert_eq!(clock.at(5_000), None);
        clock.set(Timestamp(1_700_000_000_000), 5_000..5_000);
        assert_eq!(clock.at(5_250), Some(Timestamp(1_700_000_000_250)));
        clock.set(Timestamp(1_600_000_000_000), 6_000..6_000);
        assert_eq!(clock.at(6_001), Some(Timestamp(1_600_000_000_001)), "Postgres' clock was set back");
    }

    #[test]
    fn a_slow_answer_does_not_disturb_what_a_quick_one_told() {
        let clock = Clock(AtomicI64::new(UNSET));
        clock.set(Timestamp(1_700_000_001_000), 1_000..2_000);
        assert_eq!(clock.at(2_000), Some(Timestamp(1_700_000_001_500)), "the middle of the first answer");
        clock.set(Timestamp(1_700_000_003_000), 3_000..3_004);
        assert_eq!(clock.at(4_000), Some(Timestamp(1_700_000_003_996)), "a quick answer corrects it");
        clock.set(Timestamp(1_700_000_006_400), 5_000..6_500);
        assert_eq!(clock.at(6_500), Some(Timestamp(1_700_000_006_496)), "a slow one agrees with it");
    }
}
