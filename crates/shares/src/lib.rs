//! Permits for scarce work of one process that several tenants share. One of them cannot take all permits, and those that wait stand behind a
//! few of each other tenant, however many each of them has.

pub mod activity;

use activity::Activity;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout_at},
};

/// Permits by the key of their holder, which is a tenant.
#[derive(Debug)]
pub struct Shares<K> {
    all: Arc<Semaphore>,
    all_max: u32,
    each_max: usize,
    /// How many times `each_max` a holder gets that is alone.
    alone: Option<Alone<K>>,
    rests: Option<Rests<K>>,
    holders: Mutex<HashMap<K, Arc<Holder>>>,
}

/// How long a holder rests after it has worked. A resting holder gets no permit. A holder that is alone does not rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// How long, as times that the work took.
    pub factor: u32,
    /// The rest that a holder may owe. It rests when it owes more.
    pub credit: Duration,
    /// The longest rest. What a holder owes beyond it is forgotten.
    pub longest: Duration,
    /// A holder is alone if no other was active for this time.
    pub alone_after: Duration,
}

/// What a holder gets while no other is active.
#[derive(Debug)]
struct Alone<K> {
    /// Each of its calls takes one of `each_max * factor` permits of its own, and this many of them while others are active.
    factor: u32,
    after: Duration,
    activity: Activity<K>,
}

/// The rests of all holders.
#[derive(Debug)]
struct Rests<K> {
    rest: Rest,
    activity: Arc<Activity<K>>,
}

/// The right to work. Dropping it gives it back.
#[derive(Debug)]
pub struct Permit {
    // Fields are dropped in this order: the holder owes its rest before anybody gets its permit.
    _work: Option<Work>,
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Holder {
    permits: Arc<Semaphore>,
    /// The end of the rest that it owes.
    rested_at: Mutex<Instant>,
}

/// Work after which its holder owes a rest.
#[derive(Debug)]
struct Work {
    holder: Arc<Holder>,
    rest: Rest,
    began_at: Instant,
}

impl Rest {
    /// When a holder that would have been rested at `rested_at` is rested after work from `began_at` to `now`.
    fn after(self, rested_at: Instant, began_at: Instant, now: Instant) -> Instant {
        let owed = now.max(rested_at) + (now - began_at) * self.factor;
        owed.min(now + self.credit + self.longest)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut rested_at = self.holder.rested_at.lock().unwrap_or_else(PoisonError::into_inner);
        *rested_at = self.rest.after(*rested_at, self.began_at, now);
    }
}

/// Why a call waits for a permit, or why none became free in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// The holder itself has all permits that one may have.
    Own,
    /// All holders together have all permits.
    All,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// `all` permits, of which one holder gets at most `each_max`.
    pub fn new(all: u32, each_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(all as usize));
        Self { all: permits, all_max: all, each_max, alone: None, rests: None, holders: Mutex::default() }
    }

    /// The same, and a holder gets `factor` times `each_max` permits while no other has any, and none has asked for one for the time `after`. What it holds when
    /// another one comes, it keeps, so `each_max * factor` must leave permits to others.
    pub fn with_more_alone(self, factor: u32, after: Duration) -> Self {
        Self { alone: Some(Alone { factor, after, activity: Activity::default() }), ..self }
    }

    /// The same, and each holder rests after its work, unless it is alone. A call that asks for a permit notes that its holder is active.
    pub fn with_rest(self, rest: Rest, activity: Arc<Activity<K>>) -> Self {
        Self { rests: Some(Rests { rest, activity }), ..self }
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
    pub async fn acquire(&self, key: K, wait: Duration) -> Result<Permit, Busy> {
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
    ) -> Result<Permit, Busy> {
        self.take(key, 1, Instant::now() + wait, &mut note).await
    }

    /// Waits for `count` permits at once, at most for `wait`; for all that one holder may have, if `count` is more.
    ///
    /// # Errors
    /// `Busy`, by who holds the permits.
    ///
    /// Cancel-safe: a call that is dropped leaves its place to others.
    pub async fn acquire_many(&self, key: K, count: usize, wait: Duration) -> Result<Permit, Busy> {
        let count = u32::try_from(count.min(self.each_max)).unwrap_or(u32::MAX);
        self.take(key, count, Instant::now() + wait, &mut |_| {}).await
    }

    /// Takes `count` permits at once, or all that one holder may have, if they are free now.
    pub fn try_acquire_many(&self, key: K, count: usize) -> Option<Permit> {
        let count = u32::try_from(count.min(self.each_max)).unwrap_or(u32::MAX);
        self.note_active(&key);
        let holder = self.holder(&key);
        if self.rest_end(&key, &holder).is_some() {
            return None;
        }
        let own = Arc::clone(&holder.permits).try_acquire_many_owned(count * self.weight(&key)).ok()?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(count).ok()?;
        Some(self.permit(holder, own, all))
    }

    /// A call holds its own permits while it waits for some of all, so the calls of a holder wait there for at most what one may have.
    async fn take(
        &self,
        key: K,
        count: u32,
        deadline: Instant,
        note: &mut impl FnMut(Busy),
    ) -> Result<Permit, Busy> {
        self.note_active(&key);
        let holder = self.holder(&key);
        let permits = Arc::clone(&holder.permits);
        let own = loop {
            let weight = self.weight(&key);
            let own = take(Arc::clone(&permits), count * weight, deadline, || note(Busy::Own));
            let own = own.await.ok_or(Busy::Own)?;
            // Another holder may have become active while this call waited.
            if self.weight(&key) <= weight {
                break own;
            }
        };
        // The calls behind this one wait for its permit.
        while let Some(end) = self.rest_end(&key, &holder) {
            note(Busy::Own);
            timeout_at(deadline, sleep_until(end)).await.map_err(|_| Busy::Own)?;
        }
        let all = take(Arc::clone(&self.all), count, deadline, || note(Busy::All)).await.ok_or(Busy::All)?;
        Ok(self.permit(holder, own, all))
    }

    /// How many of a holder's own permits a call takes.
    fn weight(&self, key: &K) -> u32 {
        let Some(Alone { factor, after, activity }) = &self.alone else { return 1 };
        let is_alone = activity.is_alone(key, *after, Instant::now()) && !self.is_used_by_others(key);
        if is_alone { 1 } else { *factor }
    }

    /// Whether another holder has permits, or waits for some.
    fn is_used_by_others(&self, key: &K) -> bool {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.iter().any(|(other, holder)| other != key && holder.is_in_use())
    }

    fn note_active(&self, key: &K) {
        if let Some(alone) = &self.alone {
            alone.activity.note(key.clone());
        }
        if let Some(rests) = &self.rests {
            rests.activity.note(key.clone());
        }
    }

    fn permit(&self, holder: Arc<Holder>, own: OwnedSemaphorePermit, all: OwnedSemaphorePermit) -> Permit {
        let rest = self.rests.as_ref().map(|rests| rests.rest);
        let work = rest.map(|rest| Work { holder, rest, began_at: Instant::now() });
        Permit { _work: work, _own: own, _all: all }
    }

    /// When a holder may work again; `None`: now.
    fn rest_end(&self, key: &K, holder: &Holder) -> Option<Instant> {
        let (rests, now) = (self.rests.as_ref()?, Instant::now());
        let end = holder.rested_at().checked_sub(rests.rest.credit).filter(|end| *end > now)?;
        (!rests.activity.is_alone(key, rests.rest.alone_after, now)).then_some(end)
    }

    /// Counts the free permits. A holder that already has its share gets none of them.
    pub fn free(&self) -> usize {
        self.all.available_permits()
    }

    /// Waits until no permit is held.
    pub async fn all_free(&self) {
        // The semaphore is never closed.
        drop(self.all.acquire_many(self.all_max).await);
    }

    /// One holder. It is kept as long as a call holds or awaits one of its permits, and until it owes no rest.
    fn holder(&self, key: &K) -> Arc<Holder> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = holders.get(key) {
            return Arc::clone(holder);
        }
        let now = Instant::now();
        // Remove holders without calls only when the map would grow.
        if holders.len() == holders.capacity() {
            holders.retain(|_, holder| holder.is_in_use() || holder.rested_at() > now);
        }
        let factor = self.alone.as_ref().map_or(1, |alone| alone.factor as usize);
        let permits = Arc::new(Semaphore::new(self.each_max * factor));
        let holder = Arc::new(Holder { permits, rested_at: Mutex::new(now) });
        holders.insert(key.clone(), Arc::clone(&holder));
        holder
    }
}

impl Holder {
    fn rested_at(&self) -> Instant {
        *self.rested_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call has this holder or one of its permits.
    fn is_in_use(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || Arc::strong_count(&self.permits) > 1
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
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use futures::{FutureExt as _, future::join_all};

    const LONG: Duration = Duration::from_secs(3_600);
    /// A holder rests after any work.
    const REST: Rest = Rest { factor: u32::MAX, credit: LONG, longest: LONG, alone_after: LONG };

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
    async fn a_holder_that_is_alone_gets_more_until_another_one_comes() {
        let shares = Shares::new(10, 3).with_more_alone(2, LONG);
        let lone = join_all((0..6).map(|_| shares.acquire("greedy", LONG))).await;
        assert!(lone.iter().all(Result::is_ok));
        let mut queued: Vec<_> = (0..6).map(|_| Box::pin(shares.acquire("greedy", LONG))).collect();
        assert!(queued.iter_mut().all(|call| call.as_mut().now_or_never().is_none()));
        let others = join_all((0..3).map(|_| shares.acquire("other", LONG))).await;
        assert!(others.iter().all(Result::is_ok));
        let third = shares.acquire("third", Duration::ZERO).await;
        assert!(third.is_ok(), "one place is left");
        drop(lone);
        // The calls that waited get what each holder gets, although they began to wait while their holder was alone. First each returns the one
        // permit that it was given, and waits for two.
        let waits = queued
            .iter_mut()
            .filter_map(|call| call.as_mut().now_or_never().is_none().then_some(call))
            .collect::<Vec<_>>();
        let got = waits.into_iter().filter_map(|call| call.as_mut().now_or_never()).collect::<Vec<_>>();
        assert_eq!(got.len(), 3);
        drop((got, others, third));
    }

    #[tokio::test]
    async fn a_holder_is_not_alone_while_another_one_works_however_long() {
        let shares = Shares::new(10, 3).with_more_alone(2, Duration::ZERO);
        let working = shares.acquire("other", LONG).await.unwrap();
        let held = join_all((0..3).map(|_| shares.acquire("greedy", LONG))).await;
        assert_eq!(shares.acquire("greedy", Duration::ZERO).await.map(drop), Err(Busy::Own));
        drop(working);
        assert!(shares.acquire("greedy", Duration::ZERO).await.is_err(), "its own permits are taken");
        drop(held);
        assert_eq!(join_all((0..6).map(|_| shares.acquire("greedy", Duration::ZERO))).await.len(), 6);
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

    /// The permit of the first call that gets one.
    fn join_first(crowd: &mut [std::pin::Pin<Box<impl Future<Output = Result<Permit, Busy>>>>]) -> Permit {
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
        let in_use = shares.holders.lock().unwrap().values().filter(|holder| holder.is_in_use()).count();
        assert_eq!(in_use, 0);
    }

    #[test]
    fn a_rest_is_as_long_as_the_work_times_its_factor() {
        let (credit, longest) = (Duration::from_secs(10), Duration::from_secs(5));
        let rest = Rest { factor: 3, credit, longest, ..REST };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (rested_at, began_at, now, want) in [
            (0, 5, 6, 9),
            (9, 6, 8, 15),
            // What it owed is over.
            (9, 20, 21, 24),
            // It rests five seconds at most, which begin when it owes fifteen.
            (24, 21, 1_000, 1_015),
        ] {
            assert_eq!(rest.after(at(rested_at), at(began_at), at(now)), at(want), "{began_at} to {now}");
        }
    }

    #[tokio::test]
    async fn a_holder_that_worked_much_rests_unless_it_is_alone() {
        let shares = |credit| {
            let activity = Arc::new(Activity::default());
            activity.note("other");
            Shares::new(2, 1).with_rest(Rest { credit, longest: credit, ..REST }, activity)
        };
        let work = async |shares: &Shares<&'static str>| {
            let permit = shares.acquire("greedy", LONG).await.unwrap();
            let began_at = Instant::now();
            while began_at.elapsed() < Duration::from_micros(10) {}
            drop(permit);
        };
        let long = shares(LONG);
        work(&long).await;
        assert_eq!(long.acquire("greedy", Duration::ZERO).await.map(drop), Err(Busy::Own));
        assert!(long.try_acquire_many("greedy", 1).is_none());
        assert!(long.try_acquire_many("other", 1).is_some());
        let activity = Arc::new(Activity::default());
        let alone = Shares::new(2, 1).with_rest(REST, Arc::clone(&activity));
        work(&alone).await;
        work(&alone).await;
        activity.note("other");
        assert!(alone.try_acquire_many("greedy", 1).is_none(), "it has worked all the same");
        let short = shares(Duration::from_millis(20));
        work(&short).await;
        let began_at = Instant::now();
        work(&short).await;
        assert!(began_at.elapsed() >= Duration::from_millis(10), "it waited until the rest was over");
    }

    #[tokio::test]
    async fn holders_that_rested_are_forgotten() {
        let none = Duration::ZERO;
        let rest = Rest { credit: none, longest: none, ..REST };
        let shares = Shares::new(1, 1).with_rest(rest, Arc::default());
        for key in 0..100 {
            drop(shares.acquire(key, LONG).await.unwrap());
        }
        assert!(shares.holders.lock().unwrap().capacity() < 10);
    }
}
