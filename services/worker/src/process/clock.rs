//! The worker's clock. Each renewal of the lease takes the time from Postgres; between renewals the worker counts on with a
//! clock that cannot be set. So all workers agree on the end of a wait, even if the wall clock of a machine jumps.

use domain::ids::Timestamp;
use nix::time::{ClockId, clock_gettime};
use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// One for the process: every worker in it uses the same Postgres.
static CLOCK: Clock = Clock(AtomicI64::new(UNSET));
const UNSET: i64 = i64::MIN;

/// The difference between Postgres' clock and [`boot_ms`]; milliseconds.
struct Clock(AtomicI64);

impl Clock {
    fn set(&self, postgres: Timestamp, boot_ms: u64) {
        self.0.store(postgres.0.saturating_sub(signed(boot_ms)), Ordering::Relaxed);
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

/// Sets the clock to the time that Postgres had at the moment `boot_ms`.
pub(crate) fn set(postgres: Timestamp, boot_ms: u64) {
    CLOCK.set(postgres, boot_ms);
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
        clock.set(Timestamp(1_700_000_000_000), 5_000);
        assert_eq!(clock.at(5_250), Some(Timestamp(1_700_000_000_250)));
        clock.set(Timestamp(1_600_000_000_000), 6_000);
        assert_eq!(clock.at(6_001), Some(Timestamp(1_600_000_000_001)), "Postgres' clock was set back");
    }
}
