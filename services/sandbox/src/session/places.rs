//! The places of sandboxes on this machine, which tenants share. While a call waits for a place, an idle sandbox is ended: one of the same
//! tenant if the tenant has all places that one may have, otherwise the one that has been idle for longest.
//!
//! The end of a sandbox takes seconds if its tenant uses the processors much, because its processes get few turns to end. So idle sandboxes are ended in
//! advance: some places are free before a call needs them.

use domain::ids::TenantId;
use shares::{Busy, Permit, Shares};
use std::{
    future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// One of so many places is kept free as long as an idle sandbox can end for it.
const RESERVE_PART: u32 = 16;

#[derive(Debug)]
pub struct Places {
    shares: Shares<TenantId>,
    /// Places that are kept free.
    reserve: usize,
    market: Mutex<Market>,
}

/// The calls that wait, and the sandboxes that could end for them.
#[derive(Debug, Default)]
struct Market {
    next: u64,
    /// Those that wait, oldest first.
    orders: Vec<Order>,
    /// The idle sandboxes that may still be chosen. The one that has been idle for longest is first.
    offers: Vec<IdleSandbox>,
    /// Sandboxes whose places will be free when they are gone.
    ending: usize,
}

#[derive(Debug)]
struct Order {
    id: u64,
    tenant: TenantId,
    reason: Busy,
    /// Whether a sandbox was chosen for it.
    is_served: bool,
}

#[derive(Debug)]
struct IdleSandbox {
    id: u64,
    tenant: TenantId,
    /// Gets what it is chosen for.
    chosen: oneshot::Sender<Choice>,
}

/// What an idle sandbox was chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The order that gets its place.
    Order(u64),
    Reserve,
}

/// An idle sandbox that may be ended. Dropped, it is not: another one is chosen if this one was.
#[derive(Debug)]
pub struct Offer<'a> {
    places: &'a Places,
    id: u64,
    chosen: oneshot::Receiver<Choice>,
    choice: Option<Choice>,
}

/// A sandbox that ends. Dropped when it is gone.
#[derive(Debug)]
pub struct Ending<'a> {
    places: &'a Places,
    /// Whether no order gets its place.
    is_for_reserve: bool,
}

/// Withdraws an order.
struct Withdrawal<'a> {
    places: &'a Places,
    order: u64,
}

impl Places {
    /// `all` places, of which one tenant gets three quarters.
    pub fn new(all: u32) -> Self {
        let reserve = usize::try_from(all / RESERVE_PART).unwrap_or(usize::MAX);
        Self { shares: Shares::three_quarters(all), reserve, market: Mutex::default() }
    }

    /// Waits for a place, at most for `wait`.
    ///
    /// # Errors
    /// `Busy`, by who has the places.
    ///
    /// Cancel-safe.
    pub async fn take(&self, tenant: TenantId, wait: Duration) -> Result<Permit, Busy> {
        // The next reason replaces the order for the one before.
        let mut _order = None;
        let permit = self.shares.acquire_after(tenant, wait, |reason| {
            metrics::counter!("flotilla_sandbox_crowded_total").increment(1);
            _order = Some(self.order(tenant, reason));
        });
        let permit = permit.await;
        self.refill(&mut self.lock());
        permit
    }

    /// Takes a place if one is free. No sandbox ends for it.
    pub fn take_free(&self, tenant: TenantId) -> Option<Permit> {
        self.shares.try_acquire_many(tenant, 1)
    }

    /// Offers the place of a sandbox that is idle from now on.
    pub fn offer(&self, tenant: TenantId) -> Offer<'_> {
        let (chosen, order) = oneshot::channel();
        let mut market = self.lock();
        let id = market.id();
        market.offers.push(IdleSandbox { id, tenant, chosen });
        market.serve();
        self.refill(&mut market);
        Offer { places: self, id, chosen: order, choice: None }
    }

    /// Chooses sandboxes that end for the reserve.
    fn refill(&self, market: &mut Market) {
        while self.shares.free() + market.ending < self.reserve && !market.offers.is_empty() {
            market.ending += 1;
            // Its offer gives the choice back if it is about to leave.
            market.offers.remove(0).chosen.send(Choice::Reserve).ok();
        }
    }

    fn note_gone(&self) {
        let mut market = self.lock();
        market.ending -= 1;
        self.refill(&mut market);
    }

    /// Waits until no sandbox has a place.
    pub async fn all_free(&self) {
        self.shares.all_free().await;
    }

    fn order(&self, tenant: TenantId, reason: Busy) -> Withdrawal<'_> {
        let mut market = self.lock();
        let id = market.id();
        market.orders.push(Order { id, tenant, reason, is_served: false });
        market.serve();
        Withdrawal { places: self, order: id }
    }

    fn lock(&self) -> MutexGuard<'_, Market> {
        self.market.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Market {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Chooses a sandbox for each order that has none.
    fn serve(&mut self) {
        for order in self.orders.iter_mut().filter(|order| !order.is_served) {
            let fits = |idle: &IdleSandbox| order.reason == Busy::All || idle.tenant == order.tenant;
            let Some(at) = self.offers.iter().position(fits) else { continue };
            order.is_served = true;
            // If the sandbox is about to leave, its offer passes the order on.
            self.offers.remove(at).chosen.send(Choice::Order(order.id)).ok();
        }
    }
}

impl<'a> Offer<'a> {
    /// Waits until the sandbox must end.
    pub async fn chosen(&mut self) {
        match (&mut self.chosen).await {
            Ok(choice) => self.choice = Some(choice),
            // The market keeps the other end as long as this one.
            Err(_) => future::pending().await,
        }
    }

    /// Gives the place: the sandbox ends. An order that has just chosen it gets its place.
    pub fn accept(mut self) -> Ending<'a> {
        let places = self.places;
        let mut market = places.lock();
        let choice = self.take_choice();
        // From here on, neither an order nor the reserve can choose it.
        market.offers.retain(|idle| idle.id != self.id);
        if choice.is_none() {
            market.ending += 1;
        }
        drop(market);
        Ending { places, is_for_reserve: !matches!(choice, Some(Choice::Order(_))) }
    }

    fn take_choice(&mut self) -> Option<Choice> {
        self.choice.take().or_else(|| self.chosen.try_recv().ok())
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        let places = self.places;
        let mut market = places.lock();
        let choice = self.take_choice();
        market.offers.retain(|idle| idle.id != self.id);
        match choice {
            Some(Choice::Order(id)) => {
                if let Some(order) = market.orders.iter_mut().find(|order| order.id == id) {
                    order.is_served = false;
                    market.serve();
                }
            }
            Some(Choice::Reserve) => {
                drop(market);
                places.note_gone();
            }
            None => {}
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.is_for_reserve {
            self.places.note_gone();
        }
    }
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        self.places.lock().orders.retain(|order| order.id != self.order);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use futures::FutureExt as _;

    const LONG: Duration = Duration::from_secs(3_600);

    fn tenant() -> TenantId {
        TenantId(uuid::Uuid::now_v7())
    }

    #[tokio::test]
    async fn a_tenant_with_all_its_places_ends_its_own_idle_sandbox() {
        let (places, greedy, other) = (Places::new(4), tenant(), tenant());
        let mut held: Vec<_> =
            (0..3).map(|_| places.take(greedy, LONG).now_or_never().unwrap().unwrap()).collect();
        assert_eq!(places.take(greedy, Duration::ZERO).await.map(drop), Err(Busy::Own));
        let (mut longest, mut own) = (places.offer(other), places.offer(greedy));
        assert!(own.chosen().now_or_never().is_none(), "the call before has given up");
        let mut waiting = Box::pin(places.take(greedy, LONG));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(longest.chosen().now_or_never().is_none());
        own.chosen().await;
        own.accept();
        held.pop();
        assert!(waiting.now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_machine_without_places_ends_the_sandbox_that_is_idle_for_longest() {
        let (places, first, second) = (Places::new(2), tenant(), tenant());
        let held = [first, second].map(|tenant| places.take(tenant, LONG).now_or_never().unwrap().unwrap());
        let mut waiting = Box::pin(places.take(tenant(), LONG));
        assert!(waiting.as_mut().now_or_never().is_none());
        // It waits for the next sandbox that becomes idle. A call that enters that one in this moment passes the order on.
        let longest = places.offer(second);
        let mut next = places.offer(first);
        assert!(next.chosen().now_or_never().is_none());
        drop(longest);
        next.chosen().now_or_never().expect("the order was passed on");
        next.accept();
        drop(held);
        assert!(waiting.now_or_never().unwrap().is_ok());
        assert!(places.lock().orders.is_empty() && places.lock().offers.is_empty());
    }

    #[tokio::test]
    async fn idle_sandboxes_end_before_a_call_needs_their_places() {
        let (places, greedy, other) = (Places::new(2 * RESERVE_PART), tenant(), tenant());
        let take = |tenant| places.take(tenant, LONG).now_or_never().unwrap().unwrap();
        let mut held: Vec<_> = (0..24).map(|_| take(greedy)).collect();
        let (mut first, mut second, mut third) =
            (places.offer(greedy), places.offer(greedy), places.offer(greedy));
        held.extend((0..6).map(|_| take(other)));
        assert!(first.chosen().now_or_never().is_none(), "two places are free");
        held.push(take(other));
        first.chosen().now_or_never().expect("it ends for the reserve");
        assert!(second.chosen().now_or_never().is_none());
        // A call enters it in this moment, so another one ends.
        drop(first);
        second.chosen().now_or_never().expect("it ends for the reserve");
        let ending = second.accept();
        assert!(third.chosen().now_or_never().is_none(), "the place of the second one will be free");
        held.push(take(other));
        third.chosen().now_or_never().expect("it ends for the reserve");
        let also_ending = third.accept();
        held.truncate(30);
        drop((ending, also_ending));
        assert_eq!(places.lock().ending, 0);
    }
}
