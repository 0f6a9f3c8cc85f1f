//! The ready queue: one holder at a time, nothing lost, every session in its class.

use crate::world::{World, entry};
use bus::queue::{Claim, EnqueueResult, Mode, QueueEntry, ReleaseTo};
use domain::session::Class;

#[tokio::test]
async fn a_queued_session_is_claimed_once() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    for _ in 0..3 {
        assert_eq!(world.enqueue(tenant, &session).await, EnqueueResult::Queued);
    }
    assert_eq!(world.claim("w1", 0).await, []);
    assert_eq!(world.claim("w1", 5).await, [Claim { tenant, session: session.clone() }]);
    assert_eq!(world.claim("w1", 5).await, []);
    assert!(!world.bus.release(tenant, &session, "w1", ReleaseTo::Rest).await.unwrap());
    assert_eq!(world.claim("w1", 5).await, []);
    assert_eq!(world.enqueue(tenant, &session).await, EnqueueResult::Queued);
    assert_eq!(world.claim("w1", 5).await.len(), 1);
}

#[tokio::test]
async fn an_input_while_a_session_is_held_queues_it_at_its_release() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.enqueue(tenant, &session).await;
    world.claim("w1", 1).await;
    assert_eq!(world.enqueue(tenant, &session).await, EnqueueResult::Held);
    assert_eq!(world.claim("w1", 1).await, [], "it is held");
    assert!(world.bus.release(tenant, &session, "w1", ReleaseTo::Rest).await.unwrap());
    assert_eq!(world.claim_sessions("w1", 1).await, std::slice::from_ref(&session));
    assert!(!world.bus.release(tenant, &session, "w1", ReleaseTo::Rest).await.unwrap(), "the input was seen");
}

#[tokio::test]
async fn a_worker_learns_what_it_holds() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.enqueue(tenant, &session).await;
    world.claim("w1", 1).await;
    assert_eq!(world.bus.list_held("w1").await.unwrap(), [Claim { tenant, session: session.clone() }]);
    assert_eq!(world.bus.list_held("w2").await.unwrap(), []);
    world.bus.release(tenant, &session, "w1", ReleaseTo::Rest).await.unwrap();
    assert_eq!(world.bus.list_held("w1").await.unwrap(), []);
}

/// Clients choose the ids of sessions.
#[tokio::test]
async fn sessions_of_two_tenants_with_one_id_do_not_disturb_each_other() {
    let mut world = World::new().await;
    let (one, other, session) = (world.sample.tenant(), world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.live("w2").await;
    let claim = |tenant| Claim { tenant, session: session.clone() };
    let batch = QueueEntry { class: Class::Batch, ..entry(one, &session) };
    world.bus.enqueue(batch, Mode::Normal).await.unwrap();
    assert_eq!(world.claim("w1", 1).await, [claim(one)]);
    assert_eq!(world.enqueue(other, &session).await, EnqueueResult::Queued, "held by one tenant only");
    assert_eq!(world.claim("w1", 1).await, [claim(other)]);
    let mut held = world.bus.list_held("w1").await.unwrap();
    held.sort();
    let mut both = [claim(one), claim(other)];
    both.sort();
    assert_eq!(held, both);
    world.pass("w1", std::slice::from_ref(&session), 4_000).await;

    assert!(!world.bus.release(other, &session, "w1", ReleaseTo::Rest).await.unwrap(), "no input arrived");
    assert_eq!(world.bus.list_held("w1").await.unwrap(), [claim(one)]);
    assert_eq!(world.enqueue(other, &session).await, EnqueueResult::Queued);
    assert_eq!(world.claim("w2", 2).await, [claim(other)]);
    world.bus.adopt(entry(other, &session), "w1").await.unwrap();
    assert_eq!(world.bus.list_held("w1").await.unwrap(), [claim(one)], "w2 holds the other");
    world.kill("w1").await;
    assert_eq!(world.bus.reap().await.unwrap(), 1);
    assert_eq!(world.position(one, &session, Class::Batch).await, Some(0), "it kept its class");
    assert_eq!(world.bus.list_held("w2").await.unwrap(), [claim(other)]);
}

#[tokio::test]
async fn only_the_holder_can_release_a_session() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.live("w2").await;
    world.enqueue(tenant, &session).await;
    assert!(
        !world.bus.release(tenant, &session, "w1", ReleaseTo::Front).await.unwrap(),
        "no worker holds it"
    );
    world.claim("w1", 1).await;
    assert!(!world.bus.release(tenant, &session, "w2", ReleaseTo::Front).await.unwrap());
    assert_eq!(world.claim("w2", 1).await, []);
    assert_eq!(world.enqueue(tenant, &session).await, EnqueueResult::Held);
}

#[tokio::test]
async fn sessions_of_a_dead_worker_come_before_new_ones() {
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
    assert!(
        !world.bus.release(tenant, &old[0], "w1", ReleaseTo::Front).await.unwrap(),
        "its release has no effect"
    );
}

#[tokio::test]
async fn an_input_frees_a_session_from_a_dead_worker() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    world.live("w1").await;
    world.enqueue(tenant, &session).await;
    world.claim("w1", 1).await;
    world.kill("w1").await;
    assert_eq!(world.enqueue(tenant, &session).await, EnqueueResult::Queued);
    world.live("w2").await;
    assert_eq!(world.claim_sessions("w2", 1).await, [session]);
    assert_eq!(world.bus.reap().await.unwrap(), 0);
}

#[tokio::test]
async fn a_handed_over_session_comes_first() {
    let mut world = World::new().await;
    let tenant = world.sample.tenant();
    world.live("w1").await;
    let sessions = world.fill(tenant, 3).await;
    let first = world.claim_sessions("w1", 1).await.remove(0);
    world.bus.release(tenant, &first, "w1", ReleaseTo::Front).await.unwrap();
    let claimed = world.claim_sessions("w1", 3).await;
    assert_eq!((&claimed[0], claimed.len()), (&first, sessions.len()));
}

#[tokio::test]
async fn a_session_keeps_its_class_through_every_transition() {
    let mut world = World::new().await;
    let tenant = world.sample.tenant();
    world.live("w1").await;
    let session = world.fill_class(tenant, Class::Pr, 1).await.remove(0);
    let bus = world.bus.clone();
    let position = async |class| world.position(tenant, &session, class).await;
    assert_eq!(position(Class::Pr).await, Some(0));

    world.claim("w1", 1).await;
    assert_eq!(position(Class::Pr).await, None, "it is held");
    bus.release(tenant, &session, "w1", ReleaseTo::Front).await.unwrap();
    assert_eq!(position(Class::Pr).await, Some(0), "handed over");

    world.claim("w1", 1).await;
    world.kill("w1").await;
    bus.reap().await.unwrap();
    assert_eq!(position(Class::Pr).await, Some(0), "reaped");

    world.live("w1").await;
    world.claim("w1", 1).await;
    bus.enqueue(QueueEntry { class: Class::Pr, ..entry(tenant, &session) }, Mode::Normal).await.unwrap();
    bus.release(tenant, &session, "w1", ReleaseTo::Rest).await.unwrap();
    assert_eq!(position(Class::Pr).await, Some(0), "an input arrived");
}

#[tokio::test]
async fn a_session_is_in_the_class_that_was_named_last() {
    let mut world = World::new().await;
    let tenant = world.sample.tenant();
    world.live("w1").await;
    let sessions = world.fill_class(tenant, Class::Batch, 2).await;
    let position = async |class| world.position(tenant, &sessions[0], class).await;
    world.enqueue(tenant, &sessions[0]).await;
    assert_eq!((position(Class::Interactive).await, position(Class::Batch).await), (Some(0), None));
    assert_eq!(world.claim("w1", 5).await.len(), 2);

    // A person prompts a session that ran in a batch.
    assert_eq!(world.enqueue(tenant, &sessions[1]).await, EnqueueResult::Held);
    world.bus.release(tenant, &sessions[1], "w1", ReleaseTo::Rest).await.unwrap();
    let position = world.position(tenant, &sessions[1], Class::Interactive).await;
    assert_eq!(position, Some(0));
}

#[tokio::test]
async fn within_a_class_interrupted_sessions_come_first_then_the_oldest() {
    let mut world = World::new().await;
    let tenant = world.sample.tenant();
    world.live("w1").await;
    let mut sessions = vec![];
    for _ in 0..3 {
        sessions.extend(world.fill(tenant, 1).await);
        tick().await;
    }
    assert_eq!(world.claim_sessions("w1", 2).await, sessions[..2]);
    world.bus.release(tenant, &sessions[1], "w1", ReleaseTo::Front).await.unwrap();
    tick().await;
    world.bus.release(tenant, &sessions[0], "w1", ReleaseTo::Front).await.unwrap();
    let expected = [&sessions[1], &sessions[0], &sessions[2]].map(Clone::clone);
    assert_eq!(world.claim_sessions("w1", 3).await, expected);
}

/// Waits until the server's millisecond clock advances.
async fn tick() {
    let since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_millis(2) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_of_a_deleted_tenant_stays_in_the_queue() {
    let mut world = World::new().await;
    let (gone, other) = (world.sample.tenant(), world.sample.tenant());
    let sessions: Vec<_> = (0..3).map(|_| world.sample.session()).collect();
    for session in &sessions {
        world.enqueue(gone, session).await;
    }
    world.enqueue(other, &sessions[0]).await;
    world.live("w1").await;
    world.bus.claim("w1", 2).await.unwrap();
    world.bus.forget_tenant(gone).await.unwrap();
    let keys = world.redis("KEYS", &[&format!("*{}*", world.namespace)]).await;
    let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
    assert!(!keys.iter().any(|key| key.contains(&gone.to_string())), "{keys:?}");
    for (name, command) in [("act", "ZSCORE"), ("busy", "ZSCORE")] {
        assert_eq!(world.number(command, &[&world.key(name), &gone.to_string()]).await, None, "{name}");
    }
    let held = world.bus.list_held("w1").await.unwrap();
    assert!(held.iter().all(|claim| claim.tenant == other), "{held:?}");
    assert!(keys.iter().any(|key| key.contains(&other.to_string())), "the other tenant keeps its place");
}
