//! Fairness: between tenants by weight and below their caps, inside a tenant between the classes, by slot time.

use crate::world::{World, entry};
use bus::queue::{Mode, QueueEntry, ReleaseTo, TenantShare};
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};
use std::collections::{BTreeMap, HashMap};

async fn claim_tenants(world: &World, count: usize) -> Vec<TenantId> {
    world.claim("w1", count).await.into_iter().map(|claimed| claimed.tenant).collect()
}

fn count<const N: usize>(tenants: &[TenantId], of: [TenantId; N]) -> [usize; N] {
    of.map(|tenant| tenants.iter().filter(|other| **other == tenant).count())
}

#[tokio::test]
async fn ten_thousand_queued_sessions_of_one_tenant_do_not_delay_the_first_of_another() {
    let mut world = World::new().await;
    // Both name orders are tested, because names break ties.
    let (first, heavy, last) = (world.sample.tenant(), world.sample.tenant(), world.sample.tenant());
    world.live("w1").await;
    world.fill_class(heavy, Class::Interactive, 10_000).await;
    assert_eq!(world.claim("w1", 20).await.len(), 20, "a tenant alone gets every claim");
    for light in [first, last] {
        world.fill(light, 1).await;
        assert_eq!(claim_tenants(&world, 1).await, [light]);
    }
}

#[tokio::test]
async fn busy_tenants_take_turns() {
    let mut world = World::new().await;
    world.live("w1").await;
    let tenants = [world.sample.tenant(), world.sample.tenant(), world.sample.tenant()];
    for (tenant, count) in tenants.into_iter().zip([30, 10, 10]) {
        world.fill(tenant, count).await;
    }
    assert_eq!(count(&claim_tenants(&world, 30).await, tenants), [10, 10, 10]);
}

#[tokio::test]
async fn claims_are_shared_by_weight() {
    let mut world = World::new().await;
    world.live("w1").await;
    let tenants = [world.sample.tenant(), world.sample.tenant(), world.sample.tenant()];
    for (tenant, weight) in tenants.into_iter().zip([4, 2, 1]) {
        world.share(tenant, 64, weight).await;
        world.fill(tenant, 40).await;
    }
    assert_eq!(count(&claim_tenants(&world, 42).await, tenants), [24, 12, 6]);
}

/// One worker with a few slots, whose sessions run for a given time.
struct Slots {
    world: World,
    held: BTreeMap<SessionId, (TenantId, u64)>,
    /// How long the sessions of a tenant run; milliseconds.
    lengths_ms: HashMap<TenantId, u64>,
    used_ms: HashMap<TenantId, u64>,
}

impl Slots {
    /// Fills the slots, and lets a step pass.
    async fn step(&mut self, slots: usize) {
        const STEP_MS: u64 = 4_000;
        for claimed in self.world.claim("w1", slots - self.held.len()).await {
            self.held.insert(claimed.session, (claimed.tenant, 0));
            self.world.fill(claimed.tenant, 1).await;
        }
        let sessions: Vec<_> = self.held.keys().cloned().collect();
        self.world.pass("w1", &sessions, STEP_MS).await;
        for session in sessions {
            let (tenant, ran_ms) = self.held.get_mut(&session).unwrap();
            (*ran_ms, *self.used_ms.entry(*tenant).or_default()) =
                (*ran_ms + STEP_MS, self.used_ms.get(tenant).unwrap_or(&0) + STEP_MS);
            if *ran_ms >= self.lengths_ms[tenant] {
                self.world.bus.release(*tenant, &session, "w1", ReleaseTo::Rest).await.unwrap();
                self.held.remove(&session);
            }
        }
    }
}

#[tokio::test]
async fn slot_time_is_shared_by_weight_however_long_sessions_run() {
    let mut world = World::new().await;
    world.live("w1").await;
    let (long, short) = (world.sample.tenant(), world.sample.tenant());
    for (tenant, weight) in [(long, 1), (short, 3)] {
        world.share(tenant, 64, weight).await;
        world.fill(tenant, 10).await;
    }
    let lengths_ms = HashMap::from([(long, 60_000), (short, 8_000)]);
    let mut slots = Slots { world, held: BTreeMap::new(), lengths_ms, used_ms: HashMap::new() };
    for _ in 0..150 {
        slots.step(8).await;
    }
    let part = slots.used_ms[&long] as f64 / slots.used_ms.values().sum::<u64>() as f64;
    assert!((0.2..0.3).contains(&part), "its share is a quarter, it got {part}");
}

#[tokio::test]
async fn classes_share_the_slots_of_their_tenant_and_each_progresses() {
    let mut world = World::new().await;
    world.live("w1").await;
    let tenant = world.sample.tenant();
    let mut classes = HashMap::new();
    // The least urgent session was queued first.
    for class in Class::ALL.into_iter().rev() {
        classes.extend(world.fill_class(tenant, class, 40).await.into_iter().map(|session| (session, class)));
    }
    let claimed = world.claim_sessions("w1", 42).await;
    let counts = Class::ALL.map(|class| claimed.iter().filter(|one| classes[one] == class).count());
    assert_eq!(counts, [32, 8, 2]);
    assert_eq!(classes[&claimed[0]], Class::Interactive, "among equals the most urgent class is first");
}

#[tokio::test]
async fn a_class_is_charged_for_its_slot_time() {
    let mut world = World::new().await;
    world.live("w1").await;
    let tenant = world.sample.tenant();
    world.fill_class(tenant, Class::Pr, 1).await;
    let held = world.claim_sessions("w1", 1).await;
    world.fill_class(tenant, Class::Pr, 3).await;
    let batch = world.fill_class(tenant, Class::Batch, 3).await;
    world.pass("w1", &held, 65_000).await;
    // A minute of one class equals a quarter of a minute of the other.
    let claimed = world.claim_sessions("w1", 3).await;
    assert!(claimed.iter().all(|session| batch.contains(session)), "{claimed:?}");
}

/// One tenant uses a slot alone for a while. Then both want slots, one of them slightly earlier. Returns the number of
/// claims that the other tenant gets before the first tenant's turn.
async fn lead_of_the_late(alone_ms: u64, late_first: bool) -> usize {
    let mut world = World::new().await;
    world.live("w1").await;
    let (early, late) = (world.sample.tenant(), world.sample.tenant());
    world.fill(early, 1).await;
    let held = world.claim_sessions("w1", 1).await;
    world.pass("w1", &held, alone_ms).await;
    let order = if late_first { [late, early] } else { [early, late] };
    for tenant in order {
        world.fill(tenant, 30).await;
    }
    claim_tenants(&world, 30).await.iter().position(|tenant| *tenant == early).unwrap()
}

#[tokio::test]
async fn slot_time_is_charged_not_only_claims() {
    for late_first in [false, true] {
        let lead = lead_of_the_late(30_000, late_first).await;
        assert!((6..=7).contains(&lead), "thirty seconds are six claims: {lead}");
    }
}

#[tokio::test]
async fn a_tenant_pays_at_most_a_minute_for_slots_without_competition() {
    for late_first in [false, true] {
        let lead = lead_of_the_late(600_000, late_first).await;
        assert!((12..=13).contains(&lead), "a minute is twelve claims: {lead}");
    }
}

#[tokio::test]
async fn an_idle_tenant_saves_no_credit() {
    let mut world = World::new().await;
    world.live("w1").await;
    let (idle, busy) = (world.sample.tenant(), world.sample.tenant());
    world.fill(idle, 1).await;
    let session = world.claim_sessions("w1", 1).await.remove(0);
    world.bus.release(idle, &session, "w1", ReleaseTo::Rest).await.unwrap();
    world.fill(busy, 60).await;
    assert_eq!(world.claim("w1", 40).await.len(), 40);
    world.fill(idle, 20).await;
    let [of_idle, of_busy] = count(&claim_tenants(&world, 20).await, [idle, busy]);
    assert!(of_idle.abs_diff(of_busy) <= 2, "{of_idle} and {of_busy}");
}

#[tokio::test]
async fn an_idle_class_saves_no_credit() {
    let mut world = World::new().await;
    world.live("w1").await;
    let tenant = world.sample.tenant();
    world.fill_class(tenant, Class::Pr, 1).await;
    world.claim("w1", 1).await;
    world.fill_class(tenant, Class::Batch, 30).await;
    assert_eq!(world.claim("w1", 20).await.len(), 20);
    let urgent = world.fill_class(tenant, Class::Pr, 20).await;
    let claimed = world.claim_sessions("w1", 10).await;
    let count = claimed.iter().filter(|session| urgent.contains(session)).count();
    assert!((8..10).contains(&count), "four of five, and one for its first claim: {count}");
}

#[tokio::test]
async fn a_tenant_runs_at_most_its_cap() {
    let mut world = World::new().await;
    let (capped, other) = (world.sample.tenant(), world.sample.tenant());
    world.live("w1").await;
    world.fill(capped, 5).await;
    world.share(capped, 2, 1).await;
    let held = world.claim_sessions("w1", 10).await;
    assert_eq!(held.len(), 2);
    world.fill(other, 1).await;
    assert_eq!(world.claim("w1", 10).await.len(), 1, "the cap of one tenant delays no other");
    world.fill(capped, 1).await;
    assert_eq!(world.claim("w1", 10).await, [], "an enqueue without a share keeps the cap");

    assert!(!world.bus.release(capped, &held[0], "w1", ReleaseTo::Rest).await.unwrap());
    assert_eq!(world.claim("w1", 10).await.len(), 1);
    world.kill("w1").await;
    world.live("w2").await;
    world.bus.reap().await.unwrap();
    assert_eq!(world.claim("w2", 10).await.len(), 3, "two of the capped tenant and one of the other");
}

#[tokio::test]
async fn a_changed_cap_applies_at_once() {
    let mut world = World::new().await;
    let tenant = world.sample.tenant();
    world.live("w1").await;
    let first = world.share(tenant, 3, 1).await;
    world.fill(tenant, 7).await;
    let held = world.claim_sessions("w1", 9).await;
    assert_eq!(held.len(), 3);
    let set = async |running_max| {
        let share = Some(TenantShare { running_max, weight: 1 });
        world.bus.enqueue(QueueEntry { share, ..entry(tenant, &first) }, Mode::Normal).await.unwrap();
    };
    set(1).await;
    world.bus.release(tenant, &held[1], "w1", ReleaseTo::Rest).await.unwrap();
    world.bus.release(tenant, &held[2], "w1", ReleaseTo::Rest).await.unwrap();
    assert_eq!(world.claim("w1", 9).await, [], "one still runs");
    set(0).await;
    world.bus.release(tenant, &held[0], "w1", ReleaseTo::Rest).await.unwrap();
    assert_eq!(world.claim("w1", 9).await, [], "no session may run");
    set(4).await;
    assert_eq!(world.claim("w1", 9).await.len(), 4);
}
