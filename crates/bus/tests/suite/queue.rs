//! The ready queue: one holder at a time, nothing lost, fair between tenants.

use crate::world::World;
use bus::queue::{Claimed, Enqueued, Mode, Then};

#[tokio::test]
async fn a_queued_session_is_claimed_once() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    for _ in 0..3 {
        assert_eq!(world.enqueue(tenant, &session).await, Enqueued::Queued);
    }
    assert_eq!(world.claim("w1", 0).await, []);
    assert_eq!(world.claim("w1", 5).await, [Claimed { tenant, session: session.clone() }]);
    assert_eq!(world.claim("w1", 5).await, []);
    assert!(!world.bus.release(&session, "w1", Then::Rest).await.unwrap());
    assert_eq!(world.claim("w1", 5).await, []);
    assert_eq!(world.enqueue(tenant, &session).await, Enqueued::Queued);
    assert_eq!(world.claim("w1", 5).await.len(), 1);
}

#[tokio::test]
async fn an_input_while_a_session_is_held_queues_it_at_its_release() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.enqueue(tenant, &session).await;
    world.claim("w1", 1).await;
    assert_eq!(world.enqueue(tenant, &session).await, Enqueued::Held);
    assert_eq!(world.claim("w1", 1).await, [], "it is held");
    assert!(world.bus.release(&session, "w1", Then::Rest).await.unwrap());
    assert_eq!(world.claim_sessions("w1", 1).await, std::slice::from_ref(&session));
    assert!(!world.bus.release(&session, "w1", Then::Rest).await.unwrap(), "the input was seen");
}

#[tokio::test]
async fn only_the_holder_lets_a_session_go() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.live("w2").await;
    world.enqueue(tenant, &session).await;
    assert!(!world.bus.release(&session, "w1", Then::Front).await.unwrap(), "nobody holds it");
    world.claim("w1", 1).await;
    assert!(!world.bus.release(&session, "w2", Then::Front).await.unwrap());
    assert_eq!(world.claim("w2", 1).await, []);
    assert_eq!(world.enqueue(tenant, &session).await, Enqueued::Held);
}

#[tokio::test]
async fn what_a_dead_worker_held_comes_before_everything_new() {
    let mut world = World::new().await;
    let tenant = world.sample.tenant();
    world.live("w1").await;
    world.live("w2").await;
    let old = world.fill(tenant, 2).await;
    assert_eq!(world.claim("w1", 2).await.len(), 2);
    let new = world.fill(tenant, 1).await;
    assert_eq!(world.bus.reap().await.unwrap(), 0, "it lives");
    world.kill("w1").await;
    assert_eq!(world.bus.reap().await.unwrap(), 2);
    assert_eq!(world.bus.reap().await.unwrap(), 0);
    let claimed = world.claim_sessions("w2", 3).await;
    assert!(claimed[..2].iter().all(|session| old.contains(session)), "{claimed:?}");
    assert_eq!(claimed[2..], new);
    assert!(!world.bus.release(&old[0], "w1", Then::Front).await.unwrap(), "its word counts no more");
}

#[tokio::test]
async fn an_input_frees_a_session_from_a_dead_worker() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.enqueue(tenant, &session).await;
    world.claim("w1", 1).await;
    world.kill("w1").await;
    assert_eq!(world.enqueue(tenant, &session).await, Enqueued::Queued);
    world.live("w2").await;
    assert_eq!(world.claim_sessions("w2", 1).await, [session]);
    assert_eq!(world.bus.reap().await.unwrap(), 0);
}

#[tokio::test]
async fn a_session_that_is_handed_over_comes_first() {
    let mut world = World::new().await;
    let tenant = world.sample.tenant();
    world.live("w1").await;
    let sessions = world.fill(tenant, 3).await;
    let first = world.claim_sessions("w1", 1).await.remove(0);
    world.bus.release(&first, "w1", Then::Front).await.unwrap();
    let claimed = world.claim_sessions("w1", 3).await;
    assert_eq!((&claimed[0], claimed.len()), (&first, sessions.len()));
}

#[tokio::test]
async fn a_small_tenant_does_not_wait_for_a_large_one() {
    let mut world = World::new().await;
    let (heavy, light) = (world.sample.tenant(), world.sample.tenant());
    world.live("w1").await;
    world.fill(heavy, 200).await;
    assert_eq!(world.claim("w1", 20).await.len(), 20, "alone it gets everything");
    world.fill(light, 1).await;
    let tenants: Vec<_> = world.claim("w1", 2).await.into_iter().map(|claimed| claimed.tenant).collect();
    assert!(tenants.contains(&light), "{tenants:?}");
}

#[tokio::test]
async fn busy_tenants_take_turns() {
    let mut world = World::new().await;
    world.live("w1").await;
    let tenants = [world.sample.tenant(), world.sample.tenant(), world.sample.tenant()];
    for (tenant, count) in tenants.into_iter().zip([30, 10, 10]) {
        world.fill(tenant, count).await;
    }
    let claimed = world.claim("w1", 30).await;
    let counts = tenants.map(|tenant| claimed.iter().filter(|claimed| claimed.tenant == tenant).count());
    assert_eq!(counts, [10, 10, 10]);
}

#[tokio::test]
async fn slot_time_is_charged_not_only_claims() {
    let mut world = World::new().await;
    world.live("w1").await;
    let (long, short) = (world.sample.tenant(), world.sample.tenant());
    world.fill(long, 1).await;
    world.claim("w1", 1).await;
    // A minute passes: twelve claims' worth.
    let redis::Value::BulkString(now) = world.redis("GET", &[&world.key("w:w1")]).await else {
        panic!("no time")
    };
    let now: u64 = std::str::from_utf8(&now).unwrap().parse().unwrap();
    world.redis("SET", &[&world.key("w:w1"), &(now - 60_000).to_string()]).await;
    world.live("w1").await;
    world.fill(long, 5).await;
    world.fill(short, 5).await;
    let tenants: Vec<_> = world.claim("w1", 5).await.into_iter().map(|claimed| claimed.tenant).collect();
    let of_short = tenants.iter().filter(|tenant| **tenant == short).count();
    assert!(of_short >= 4, "the one who had a slot for a minute waits: {of_short} of 5");
}

#[tokio::test]
async fn a_tenant_runs_no_more_than_its_cap() {
    let mut world = World::new().await;
    let (capped, other) = (world.sample.tenant(), world.sample.tenant());
    world.live("w1").await;
    world.fill(capped, 5).await;
    let session = world.sample.session();
    world.bus.enqueue(capped, &session, 2, Mode::Normal).await.unwrap();
    let held = world.claim_sessions("w1", 10).await;
    assert_eq!(held.len(), 2);
    world.fill(other, 1).await;
    assert_eq!(world.claim("w1", 10).await.len(), 1, "the cap of one tenant holds up no other");
    world.fill(capped, 1).await;
    assert_eq!(world.claim("w1", 10).await, [], "0 keeps the cap");

    assert!(!world.bus.release(&held[0], "w1", Then::Rest).await.unwrap());
    assert_eq!(world.claim("w1", 10).await.len(), 1);
    world.kill("w1").await;
    world.live("w2").await;
    world.bus.reap().await.unwrap();
    assert_eq!(world.claim("w2", 10).await.len(), 3, "two of the capped tenant and one of the other");
}
