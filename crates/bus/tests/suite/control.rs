//! Interrupts: an abort names its session, and reaches a whole tree at once.

use crate::world::{World, entry};
use bus::{Bus, control::Nudges, queue::QueueEntry};
use domain::ids::{SessionId, TenantId};
use std::{collections::BTreeSet, time::Duration};
use testkit::{
    proxy::{Proxy, link::Rules},
    within,
};

#[tokio::test]
async fn a_nudge_carries_its_tenant_and_session() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    let (mut first, mut second) = (world.bus.nudges().await.unwrap(), world.bus.nudges().await.unwrap());
    world.bus.nudge(tenant, &session);
    for nudges in [&mut first, &mut second] {
        assert_eq!(within("the nudge is heard", nudges.next_nudge()).await, (tenant, session.clone()));
    }
}

#[tokio::test]
async fn malformed_nudges_and_those_of_other_stacks_are_ignored() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    let mut nudges = world.bus.nudges().await.unwrap();
    until_heard(&world.bus, &mut nudges, tenant, &session).await;
    let nats = world.nats().await;
    for subject in [
        format!("{}.v1.t.{tenant}.s.none.ctl", world.namespace),
        format!("{}.v1.t.none.s.{session}.ctl", world.namespace),
        format!("{}x.v1.t.{tenant}.s.{session}.ctl", world.namespace),
    ] {
        nats.publish(subject, "abort".into()).await.unwrap();
    }
    nats.flush().await.unwrap();
    let last = world.sample.session();
    world.bus.nudge(tenant, &last);
    // More nudges of the first session may still arrive.
    let next = within("the nudge is heard", async {
        loop {
            let nudge = nudges.next_nudge().await;
            if nudge.1 != session {
                return nudge;
            }
        }
    });
    assert_eq!(next.await, (tenant, last));
}

/// Nudges a session until a subscriber hears it: from then on the server knows the subscription, and the sender is connected.
async fn until_heard(bus: &Bus, nudges: &mut Nudges, tenant: TenantId, session: &SessionId) {
    const PAUSE: Duration = Duration::from_millis(100);
    within("a nudge is heard", async {
        loop {
            bus.nudge(tenant, session);
            if tokio::time::timeout(PAUSE, nudges.next_nudge()).await.is_ok() {
                return;
            }
        }
    })
    .await;
}

fn entries(tenant: TenantId, sessions: &[SessionId]) -> Vec<QueueEntry<'_>> {
    sessions.iter().map(|session| entry(tenant, session)).collect()
}

#[tokio::test]
async fn an_interrupted_tree_is_queued_and_announced_as_a_whole() {
    let mut world = World::new().await;
    let (tenant, mut doorbell) = (world.sample.tenant(), world.bus.listen().await.unwrap());
    let sessions: Vec<_> = (0..50).map(|_| world.sample.session()).collect();
    world.bus.interrupt(&entries(tenant, &sessions)).await;
    within("the bell rings", doorbell.wait()).await;
    let mut queued = BTreeSet::new();
    for session in &sessions {
        queued.insert(world.position(tenant, session, domain::session::Class::Interactive).await.unwrap());
    }
    assert_eq!(queued.len(), 50);
}

/// Attempts, of which at least one must beat the time-out.
const TRIES: usize = 5;

#[tokio::test]
async fn a_frozen_redis_delays_no_nudge_and_a_tree_only_once() {
    let mut world = World::new().await;
    let servers = testkit::servers().await;
    let address = servers.redis_url.split("://").nth(1).unwrap().split('@').next_back().unwrap();
    let address = address.split('/').next().unwrap();
    let proxy = Proxy::start(address.parse().unwrap()).await.unwrap();
    let url = servers.redis_url.replace(address, &proxy.address.to_string());
    let bus = Bus::connect(&servers.nats_url, &url, &world.namespace).await.unwrap();
    bus.ping_redis().await.unwrap();
    let (tenant, mut nudges) = (world.sample.tenant(), world.bus.nudges().await.unwrap());
    until_heard(&bus, &mut nudges, tenant, &world.sample.session()).await;
    let sessions: BTreeSet<_> = (0..50).map(|_| world.sample.session()).collect();
    proxy.set(Rules::half_open());
    let listed: Vec<_> = sessions.iter().cloned().collect();
    let entries = entries(tenant, &listed);
    // The holder learns it before Redis times out. A busy machine may take longer, so one success in several attempts
    // is enough.
    for _ in 0..TRIES {
        let interrupted = within("the interrupt returns", bus.interrupt(&entries));
        let mut all_nudges = std::pin::pin!(within("all nudges are heard", async {
            let mut nudged = BTreeSet::new();
            while nudged.len() < sessions.len() {
                let (_, session) = nudges.next_nudge().await;
                nudged.extend(sessions.contains(&session).then_some(session));
            }
            nudged
        }));
        tokio::select! {
            biased;
            nudged = &mut all_nudges => {
                assert_eq!(nudged, sessions);
                return within("the interrupt returns", bus.interrupt(&entries)).await;
            }
            () = interrupted => {}
        }
        // The next attempt must not see any of them.
        all_nudges.await;
    }
    panic!("it waited for Redis before it nudged");
}
