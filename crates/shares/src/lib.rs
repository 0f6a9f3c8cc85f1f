//! Permits for scarce work of one process that several tenants share. One of them cannot take all permits, and those that wait stand behind a
//! few of each other tenant, however many each of them has.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// Permits by the key of their holder, which is a tenant.
#[derive(Debug)]
pub struct Shares<K> {
    all: Arc<Semaphore>,
    all_max: u32,
    each_max: usize,
    holders: Mutex<HashMap<K, Weak<Semaphore>>>,
}

/// The right to work. Dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// Why a call waits for a permit, or why none became free in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// The holder itself has all permits that one may have.
    Own,
    /// All holders together have all permits.
    All,
}

impl<K: Eq + Hash> Shares<K> {
    /// `all` permits, of which one holder gets at most `each_max`.
    pub fn new(all: u32, each_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(all as usize));
        Self { all: permits, all_max: all, each_max, holders: Mutex::default() }
    }

    /// `all` permits, of which one holder gets three quarters: enough for a tenant alone, and others find room.
    pub fn three_quarters(all: u32) -> Self {
        Self::new(all, three_quarters(all) as usize)
    }

    /// Waits for a permit, at most for `wait`.
    ///
    /// # Errors
    /// `Busy`, by who holds the permits.
    ///
    /// Cancel-safe: a call that is dropped leaves its place to others.
    pub async fn acquire(&self, key: K, wait: Duration) -> Result<Share, Busy> {
        self.acquire_after(key, wait, |_| {}).await
    }

    /// The same; `note` is called before each wait, with its reason, so that the caller can make somebody give a permit back.
    ///
    /// # Errors
    /// Those of [`Shares::acquire`].
    ///
    /// Cancel-safe.
    pub async fn acquire_after(
        &self,
        key: K,
        wait: Duration,
        mut note: impl FnMut(Busy),
    ) -> Result<Share, Busy> {
        self.take(key, 1, Instant::now() + wait, &mut note).await
    }

    /// Waits for `count` permits at once, at most for `wait`; for all that one holder may have, if `count` is more.
    ///
    /// # Errors
    /// `Busy`, by who holds the permits.
    ///
    /// Cancel-safe: a call that is dropped leaves its place to others.
    pub async fn acquire_many(&self, key: K, count: usize, wait: Duration) -> Result<Share, Busy> {
        let count = u32::try_from(count.min(self.each_max)).unwrap_or(u32::MAX);
        self.take(key, count, Instant::now() + wait, &mut |_| {}).await
    }

    /// Takes `count` permits at once, or all that one holder may have, if they are free now.
    pub fn try_acquire_many(&self, key: K, count: usize) -> Option<Share> {
        let count = u32::try_from(count.min(self.each_max)).unwrap_or(u32::MAX);
        let own = self.holder(key).try_acquire_many_owned(count).ok()?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(count).ok()?;
        Some(Share { _own: own, _all: all })
    }

    /// A call holds its own permits while it waits for some of all, so the calls of a holder wait for at most `each_max` permits there.
    async fn take(
        &self,
        key: K,
        count: u32,
        deadline: Instant,
        note: &mut impl FnMut(Busy),
    ) -> Result<Share, Busy> {
        let own = take(self.holder(key), count, deadline, || note(Busy::Own)).await.ok_or(Busy::Own)?;
        let all = take(Arc::clone(&self.all), count, deadline, || note(Busy::All)).await.ok_or(Busy::All)?;
        Ok(Share { _own: own, _all: all })
    }

    /// Waits until no permit is held.
    pub async fn all_free(&self) {
        // The semaphore is never closed.
        drop(self.all.acquire_many(self.all_max).await);
    }

    /// The permits of one holder. They live as long as a call holds one or waits for one.
    fn holder(&self, key: K) -> Arc<Semaphore> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = holders.get(&key).and_then(Weak::upgrade) {
            return permits;
        }
        // Remove holders without calls only when the map would grow.
        if holders.len() == holders.capacity() {
            holders.retain(|_, permits| permits.strong_count() > 0);
        }
        let permits = Arc::new(Semaphore::new(self.each_max));
        holders.insert(key, Arc::downgrade(&permits));
        permits
    }
}

/// Takes permits, at the latest at the deadline; `note` is called if it must wait.
async fn take(
    permits: Arc<Semaphore>,
    count: u32,
    deadline: Instant,
    note: impl FnOnce(),
) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(&permits).try_acquire_many_owned(count) {
        return Some(permit);
    }
    note();
    timeout_at(deadline, permits.acquire_many_owned(count)).await.ok()?.ok()
}

/// Three quarters of what all have, and at least one.
pub fn three_quarters(all: u32) -> u32 {
    (all / 4 * 3 + all % 4 * 3 / 4).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use futures::{FutureExt as _, future::join_all};

    const LONG: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn one_holder_leaves_permits_to_others() {
        let shares = Shares::new(4, 3);
        let held = join_all((0..3).map(|_| shares.acquire("greedy", LONG))).await;
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(shares.acquire("greedy", Duration::ZERO).await.map(drop), Err(Busy::Own));
        let other = shares.acquire("other", LONG).await.unwrap();
        assert_eq!(shares.acquire("third", Duration::ZERO).await.map(drop), Err(Busy::All));
        drop((held, other));
        assert!(shares.acquire("third", LONG).now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn heavy_calls_take_several_permits() {
        let shares = Shares::new(10, 6);
        let held = shares.acquire_many("greedy", 4, LONG).await.unwrap();
        assert_eq!(shares.acquire_many("greedy", 3, Duration::ZERO).await.map(drop), Err(Busy::Own));
        let rest = shares.acquire_many("greedy", 2, LONG).await.unwrap();
        assert_eq!(shares.acquire_many("other", 5, Duration::ZERO).await.map(drop), Err(Busy::All));
        let other = shares.acquire_many("other", 4, LONG).await.unwrap();
        drop((held, rest));
        // A call for more permits than a holder can have gets all that it can have.
        assert!(shares.acquire_many("greedy", 1_000, LONG).now_or_never().unwrap().is_ok());
        drop(other);
    }

    #[test]
    fn permits_are_taken_at_once_or_not_at_all() {
        let shares = Shares::new(10, 6);
        let held = shares.try_acquire_many("greedy", 1_000).unwrap();
        assert!(shares.try_acquire_many("greedy", 1).is_none(), "it has all that it can have");
        assert!(shares.try_acquire_many("other", 5).is_none(), "only four are left");
        let other = shares.try_acquire_many("other", 4).unwrap();
        drop(held);
        assert!(shares.try_acquire_many("greedy", 6).is_some());
        drop(other);
    }

    #[tokio::test]
    async fn a_call_says_why_it_waits() {
        let shares = Shares::three_quarters(4);
        let held = join_all((0..2).map(|_| shares.acquire("greedy", LONG))).await;
        let mut notes = vec![];
        let third = shares.acquire_after("greedy", LONG, |reason| notes.push(reason)).await;
        let fourth = shares.acquire_after("greedy", Duration::ZERO, |reason| notes.push(reason)).await;
        let other = shares.acquire("other", LONG).await;
        let last = shares.acquire_after("third", Duration::ZERO, |reason| notes.push(reason)).await;
        assert_eq!((fourth.map(drop), last.map(drop)), (Err(Busy::Own), Err(Busy::All)));
        assert_eq!(notes, [Busy::Own, Busy::All]);
        assert!(shares.all_free().now_or_never().is_none());
        drop((held, third, other));
        assert!(shares.all_free().now_or_never().is_some());
        assert_eq!([1, 2, 3, 4, 7, 256, u32::MAX].map(three_quarters), [1, 1, 2, 3, 5, 192, 3_221_225_471]);
    }

    #[tokio::test]
    async fn a_newcomer_waits_behind_a_few_of_each_other() {
        let shares = Shares::new(1, 2);
        let running = shares.acquire("greedy", LONG).await.unwrap();
        let mut crowd: Vec<_> = (0..100).map(|_| Box::pin(shares.acquire("greedy", LONG))).collect();
        assert!(crowd.iter_mut().all(|call| call.as_mut().now_or_never().is_none()));
        let mut newcomer = Box::pin(shares.acquire("newcomer", LONG));
        assert!(newcomer.as_mut().now_or_never().is_none());
        drop(running);
        // One call of the crowd was in front of it.
        let second = join_first(&mut crowd);
        assert!(newcomer.as_mut().now_or_never().is_none());
        drop(second);
        assert!(newcomer.now_or_never().unwrap().is_ok());
    }

    /// The share of the first call that gets one.
    fn join_first(crowd: &mut [std::pin::Pin<Box<impl Future<Output = Result<Share, Busy>>>>]) -> Share {
        let got = crowd.iter_mut().filter_map(|call| call.as_mut().now_or_never());
        let mut got: Vec<_> = got.map(Result::unwrap).collect();
        assert_eq!(got.len(), 1);
        got.remove(0)
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_leaves_nothing() {
        let shares = Shares::new(1, 1);
        let held = shares.acquire("a", LONG).await.unwrap();
        let mut dropped = Box::pin(shares.acquire("b", LONG));
        assert!(dropped.as_mut().now_or_never().is_none());
        drop((dropped, held));
        assert!(shares.acquire("b", LONG).now_or_never().unwrap().is_ok());
        let living = || shares.holders.lock().unwrap().values().filter(|it| it.strong_count() > 0).count();
        assert_eq!(living(), 0);
    }
}
