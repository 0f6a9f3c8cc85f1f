//! When holders were active. Several [`Shares`](crate::Shares) with the same holders may have one activity: a note of it then counts in all of them.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// The activity of all holders.
#[derive(Debug)]
pub struct Activity<K>(Mutex<LastActive<K>>);

/// When the newest active holder was active last, and when any other one was. These two answer for each holder, however many there are.
#[derive(Debug)]
struct LastActive<K> {
    newest: Option<ActiveHolder<K>>,
    others_at: Option<Instant>,
}

#[derive(Debug)]
struct ActiveHolder<K> {
    key: K,
    at: Instant,
}

impl<K> Default for Activity<K> {
    fn default() -> Self {
        Self(Mutex::new(LastActive { newest: None, others_at: None }))
    }
}

impl<K: Eq> Activity<K> {
    /// Notes that a holder is active now, so that others are not alone.
    pub fn note(&self, key: K) {
        self.note_at(key, Instant::now());
    }

    fn note_at(&self, key: K, at: Instant) {
        let mut last = self.last();
        if let Some(earlier) = last.newest.take_if(|newest| newest.key != key) {
            last.others_at = Some(earlier.at);
        }
        last.newest = Some(ActiveHolder { key, at });
    }

    /// Whether no holder other than this one was active in the time `alone_after` before `now`.
    pub(crate) fn is_alone(&self, key: &K, alone_after: Duration, now: Instant) -> bool {
        let others_at = self.last().of_others(key);
        others_at.is_none_or(|at| now.saturating_duration_since(at) > alone_after)
    }

    fn last(&self) -> MutexGuard<'_, LastActive<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq> LastActive<K> {
    /// When a holder other than this one was active last.
    fn of_others(&self, key: &K) -> Option<Instant> {
        let newest = self.newest.as_ref()?;
        if newest.key == *key { self.others_at } else { Some(newest.at) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_holder_is_alone_when_no_other_was_active_lately() {
        let (start, alone_after) = (Instant::now(), Duration::from_secs(10));
        let activity = Activity::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        let are_alone = |now| ["a", "b", "c"].map(|key| activity.is_alone(&key, alone_after, at(now)));
        assert_eq!(are_alone(0), [true; 3], "nobody was active");
        for (key, now, want) in [
            ("a", 0, [true, false, false]),
            ("a", 5, [true, false, false]),
            ("b", 8, [false; 3]),
            ("b", 15, [false; 3]),
            // The last activity of `a` is eleven seconds ago, and that of `b` is newer for all others.
            ("b", 16, [false, true, false]),
            ("c", 40, [false, false, true]),
            ("a", 41, [false; 3]),
            ("a", 51, [true, false, false]),
        ] {
            activity.note_at(key, at(now));
            assert_eq!(are_alone(now), want, "{key} at {now}");
        }
        assert_eq!(are_alone(62), [true; 3], "all have been away");
    }
}
