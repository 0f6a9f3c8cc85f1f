//! How fast the App calls: GitHub limits each installation, and takes many fast writes for abuse. While it says that the App must wait, nobody calls for that installation.

use crate::forge::error::ForgeError;
use chassis::lock;
use std::{collections::HashMap, sync::Mutex, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Longest time that a write waits here for its turn. The caller then comes again. Beyond it: `forge_busy`.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Installations whose pace is known. Beyond it, those that need not wait are forgotten.
const INSTALLATIONS_MAX: usize = 10_000;
/// Longest pause that an answer can cause. GitHub counts by the hour.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);

/// When each installation may call again.
#[derive(Debug)]
pub(super) struct Pace {
    /// Between two writes of one installation.
    gap: Duration,
    turns: Mutex<HashMap<u64, Turns>>,
}

#[derive(Debug, Clone, Copy)]
struct Turns {
    /// No call before this, because GitHub said so.
    calls_at: Instant,
    /// The turn of the next write.
    write_at: Instant,
}

impl Pace {
    pub(super) fn new(gap: Duration) -> Self {
        Self { gap, turns: Mutex::default() }
    }

    /// Refuses a call while GitHub wants none.
    ///
    /// # Errors
    /// `Busy`.
    pub(super) fn check(&self, installation: u64) -> Result<(), ForgeError> {
        self.check_at(installation, Instant::now())
    }

    fn check_at(&self, installation: u64, now: Instant) -> Result<(), ForgeError> {
        match lock(&self.turns).get(&installation) {
            Some(turns) if turns.calls_at > now => Err(ForgeError::Busy(turns.calls_at - now)),
            Some(_) | None => Ok(()),
        }
    }

    /// Waits for the turn of a write.
    ///
    /// # Errors
    /// `Busy`.
    ///
    /// Cancel-safe: the turn is used up.
    pub(super) async fn wait(&self, installation: u64) -> Result<(), ForgeError> {
        let turn = self.take_turn(installation, Instant::now())?;
        sleep_until(turn).await;
        Ok(())
    }

    /// Takes the next turn of a write, and returns when it is.
    fn take_turn(&self, installation: u64, now: Instant) -> Result<Instant, ForgeError> {
        self.check_at(installation, now)?;
        let mut turns = lock(&self.turns);
        if turns.len() >= INSTALLATIONS_MAX {
            turns.retain(|_, turns| turns.calls_at > now || turns.write_at > now);
        }
        let turns = turns.entry(installation).or_insert(Turns { calls_at: now, write_at: now });
        let at = turns.write_at.max(now);
        if at - now > WRITE_WAIT_MAX {
            return Err(ForgeError::Busy(at - now));
        }
        turns.write_at = at + self.gap;
        Ok(at)
    }

    /// Notes that GitHub wants no call for this time.
    pub(super) fn pause(&self, installation: u64, time: Duration) {
        self.pause_at(installation, time, Instant::now());
    }

    fn pause_at(&self, installation: u64, time: Duration, now: Instant) {
        let mut turns = lock(&self.turns);
        let turns = turns.entry(installation).or_insert(Turns { calls_at: now, write_at: now });
        turns.calls_at = turns.calls_at.max(now + time.min(PAUSE_MAX));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn writes_of_one_installation_take_turns_and_others_do_not_wait() {
        let (pace, now) = (Pace::new(Duration::from_secs(1)), Instant::now());
        let turns: Vec<_> = (0..3).map(|_| (pace.take_turn(1, now).unwrap() - now).as_secs()).collect();
        assert_eq!(turns, [0, 1, 2]);
        assert_eq!(pace.take_turn(2, now).unwrap(), now);
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.take_turn(1, later).unwrap(), later);
    }

    #[test]
    fn too_many_writers_come_again_later() {
        let (pace, now) = (Pace::new(Duration::from_secs(1)), Instant::now());
        let taken = (0..20).filter(|_| pace.take_turn(1, now).is_ok()).count();
        assert_eq!(taken, 6);
    }

    #[test]
    fn nobody_calls_while_github_wants_no_call() {
        let (pace, now) = (Pace::new(Duration::ZERO), Instant::now());
        pace.pause_at(1, Duration::from_secs(60), now);
        pace.pause_at(1, Duration::from_secs(5), now);
        let Err(ForgeError::Busy(left)) = pace.check_at(1, now) else { panic!("GitHub wants no call") };
        assert_eq!(left.as_secs(), 60);
        assert!(pace.take_turn(1, now).is_err() && pace.check_at(2, now).is_ok());
        assert!(pace.check_at(1, now + Duration::from_secs(60)).is_ok());
        pace.pause_at(1, Duration::from_secs(100_000), now);
        assert!(pace.check_at(1, now + PAUSE_MAX).is_ok());
    }
}
