//! Which session gives up its slot at a step boundary, and to whom.

use crate::world::{World, entry};
use bus::queue::{Mode, QueueEntry, ReleaseTo, Slots, TenantShare, Yield};
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};

/// A tenant whose session of class Pr runs, with a virtual time of one quantum.
struct Running {
    world: World,
    tenant: TenantId,
    session: SessionId,
}

impl Running {
    async fn new(running_max: u32) -> Self {
        let mut world = World::new().await;
        world.live("w1").await;
        let (tenant, session) = (world.sample.tenant(), world.sample.session());
        let share = Some(TenantShare { running_max, weight: 1 });
        let entry = QueueEntry { class: Class::Pr, share, ..entry(tenant, &session) };
        world.bus.enqueue(entry, Mode::Normal).await.unwrap();
        assert_eq!(world.claim("w1", 1).await.len(), 1);
        Self { world, tenant, session }
    }

    async fn asks(&self, slots: Slots) -> Yield {
        self.world.bus.should_yield(self.tenant, &self.session, "w1", slots).await.unwrap()
    }

    async fn asks_both(&self) -> [Yield; 2] {
        [self.asks(Slots::Free).await, self.asks(Slots::Full).await]
    }
}

#[tokio::test]
async fn without_waiting_sessions_nothing_yields() {
    let running = Running::new(1).await;
    running.world.pass("w1", std::slice::from_ref(&running.session), 60_000).await;
    assert_eq!(running.asks_both().await, [Yield::Keep, Yield::Keep]);
}

#[tokio::test]
async fn a_full_worker_yields_to_a_tenant_that_used_less() {
    let mut running = Running::new(64).await;
    let other = running.world.sample.tenant();
    running.world.fill(other, 2).await;
    assert_eq!(running.asks_both().await, [Yield::Keep, Yield::ToTenant]);
    let bus = running.world.bus.clone();
    let stranger = bus.should_yield(running.tenant, &running.session, "w2", Slots::Full).await.unwrap();
    assert_eq!(stranger, Yield::Keep, "not its holder");

    running.world.bus.release(running.tenant, &running.session, "w1", ReleaseTo::Front).await.unwrap();
    let claimed = running.world.claim("w1", 1).await.remove(0);
    assert_eq!(claimed.tenant, other);
    let asks = async || bus.should_yield(other, &claimed.session, "w1", Slots::Full).await.unwrap();
    assert_eq!(asks().await, Yield::Keep, "equal tenants do not yield to each other");
    running.world.pass("w1", std::slice::from_ref(&claimed.session), 6_000).await;
    assert_eq!(asks().await, Yield::Keep, "one second more causes no yield");
    running.world.pass("w1", std::slice::from_ref(&claimed.session), 4_000).await;
    assert_eq!(asks().await, Yield::ToTenant, "after another quantum the first tenant yields");
}

#[tokio::test]
async fn a_tenant_at_its_cap_causes_no_yield() {
    let mut running = Running::new(64).await;
    let other = running.world.sample.tenant();
    running.world.share(other, 0, 1).await;
    assert_eq!(running.asks_both().await, [Yield::Keep, Yield::Keep]);
    running.world.share(other, 1, 1).await;
    assert_eq!(running.asks(Slots::Full).await, Yield::ToTenant);
}

#[tokio::test]
async fn more_sessions_of_the_same_class_wait() {
    let mut running = Running::new(1).await;
    running.world.fill_class(running.tenant, Class::Pr, 5).await;
    running.world.pass("w1", std::slice::from_ref(&running.session), 60_000).await;
    assert_eq!(running.asks_both().await, [Yield::Keep, Yield::Keep]);
}

#[tokio::test]
async fn a_class_yields_to_one_that_used_less_of_its_share() {
    let mut running = Running::new(64).await;
    running.world.fill_class(running.tenant, Class::Batch, 1).await;
    assert_eq!(running.asks_both().await, [Yield::Keep, Yield::Keep], "it has just started");
    running.world.fill(running.tenant, 1).await;
    assert_eq!(running.asks_both().await, [Yield::Keep, Yield::ToClass], "a person waits");
}

#[tokio::test]
async fn the_least_urgent_class_gets_its_turn() {
    let mut running = Running::new(64).await;
    running.world.fill_class(running.tenant, Class::Batch, 1).await;
    running.world.pass("w1", std::slice::from_ref(&running.session), 24_000).await;
    assert_eq!(running.asks(Slots::Full).await, Yield::ToClass, "four quanta of its class are one of batch");
}

#[tokio::test]
async fn a_tenant_at_its_cap_yields_to_its_own_more_urgent_class() {
    let mut running = Running::new(1).await;
    let urgent = running.world.fill(running.tenant, 1).await.remove(0);
    assert_eq!(running.world.claim("w1", 1).await, [], "it is at its cap");
    assert_eq!(running.asks_both().await, [Yield::ToClass, Yield::ToClass]);

    running.world.bus.release(running.tenant, &running.session, "w1", ReleaseTo::Front).await.unwrap();
    assert_eq!(running.world.claim_sessions("w1", 1).await, std::slice::from_ref(&urgent));
    let back = running.world.bus.should_yield(running.tenant, &urgent, "w1", Slots::Full).await.unwrap();
    assert_eq!(back, Yield::Keep, "not at once");
    running.world.bus.release(running.tenant, &urgent, "w1", ReleaseTo::Rest).await.unwrap();
    assert_eq!(running.world.claim_sessions("w1", 1).await, [running.session]);
}
