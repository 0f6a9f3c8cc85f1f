//! An emptied Redis: it accepts no enqueue or claim until it is refilled from Postgres.

use crate::world::{World, entry};
use bus::queue::{Claims, EnqueueResult, Mode, QueueEntry, ReleaseTo, TenantShare};
use domain::session::Class;

#[tokio::test]
async fn an_emptied_queue_reports_it_until_it_is_refilled() {
    let mut world = World::emptied().await;
    let tenant = world.sample.tenant();
    let (waiting, held) = (world.sample.session(), world.sample.session());
    let bus = world.bus.clone();
    assert!(!bus.renew("w1").await.unwrap());
    world.live("w1").await;
    assert_eq!(bus.enqueue(entry(tenant, &waiting), Mode::Normal).await.unwrap(), EnqueueResult::Empty);
    assert_eq!(bus.claim("w1", 1).await.unwrap(), Claims::Empty);

    for _ in 0..2 {
        bus.adopt(entry(tenant, &held), "w1").await.unwrap();
        let share = Some(TenantShare { running_max: 2, weight: 1 });
        let waits = QueueEntry { share, ..entry(tenant, &waiting) };
        assert_eq!(bus.enqueue(waits, Mode::Rebuild).await.unwrap(), EnqueueResult::Queued);
        assert_eq!(bus.enqueue(entry(tenant, &held), Mode::Rebuild).await.unwrap(), EnqueueResult::Held);
    }
    assert_eq!(bus.claim("w1", 1).await.unwrap(), Claims::Empty, "not complete yet");
    bus.complete_rebuild().await.unwrap();
    assert!(bus.renew("w1").await.unwrap());
    assert_eq!(world.claim_sessions("w1", 5).await, [waiting]);
    world.fill(tenant, 1).await;
    assert_eq!(world.claim("w1", 5).await, [], "an adopted session counts towards the cap");
    assert!(
        bus.release(tenant, &held, "w1", ReleaseTo::Rest).await.unwrap(),
        "only its holder knows whether it has finished"
    );
    assert_eq!(world.claim("w1", 5).await.len(), 1);
}

#[tokio::test]
async fn adoption_takes_no_session_from_another_worker() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.live("w2").await;
    world.enqueue(tenant, &session).await;
    world.claim("w1", 1).await;
    world.bus.adopt(entry(tenant, &session), "w2").await.unwrap();
    assert!(!world.bus.release(tenant, &session, "w2", ReleaseTo::Front).await.unwrap());
    assert_eq!(world.claim("w2", 1).await, [], "w1 still holds it");
    assert_eq!(world.enqueue(tenant, &session).await, EnqueueResult::Held);
}

#[tokio::test]
async fn sessions_adopted_for_a_dead_worker_are_queued_by_the_next_reap() {
    let mut world = World::emptied().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.bus.adopt(QueueEntry { class: Class::Batch, ..entry(tenant, &session) }, "gone").await.unwrap();
    world.bus.complete_rebuild().await.unwrap();
    assert_eq!(world.bus.reap().await.unwrap(), 1);
    assert_eq!(world.position(tenant, &session, Class::Batch).await, Some(0));
    world.live("w1").await;
    assert_eq!(world.claim_sessions("w1", 1).await, [session]);
}

#[tokio::test]
async fn an_adopted_session_is_not_offered_to_other_workers() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.enqueue(tenant, &session).await;
    world.bus.adopt(entry(tenant, &session), "w1").await.unwrap();
    assert_eq!(world.claim("w1", 1).await, [], "one holder");
    assert!(
        world.bus.release(tenant, &session, "w1", ReleaseTo::Rest).await.unwrap(),
        "the enqueue is not forgotten"
    );
    assert_eq!(world.claim_sessions("w1", 1).await, [session]);
}

/// Otherwise its key would live as long as the clock was set back.
#[tokio::test]
async fn a_worker_with_a_lease_from_the_future_is_dead_until_it_renews() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    for worker in ["w1", "w2"] {
        world.live(worker).await;
    }
    world.enqueue(tenant, &session).await;
    assert_eq!(world.claim_sessions("w1", 1).await, std::slice::from_ref(&session));
    let (key, hour) = (world.key("w:w1"), "3600000");
    world.redis("INCRBY", &[&key, hour]).await;
    world.bus.renew("w1").await.unwrap();
    assert_eq!(world.bus.reap().await.unwrap(), 0, "it lives");
    world.redis("INCRBY", &[&key, hour]).await;
    assert_eq!(world.bus.reap().await.unwrap(), 1);
    assert_eq!(world.claim_sessions("w2", 1).await, [session]);
}
