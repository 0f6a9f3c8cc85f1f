//! Orders: an abort names its session.

use crate::world::World;
use testkit::within;

#[tokio::test]
async fn an_abort_is_heard_with_its_names() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    let (mut first, mut second) = (world.bus.nudges().await.unwrap(), world.bus.nudges().await.unwrap());
    world.bus.nudge(tenant, &session);
    for nudges in [&mut first, &mut second] {
        assert_eq!(within("the nudge is heard", nudges.next_nudge()).await, (tenant, session.clone()));
    }
}

#[tokio::test]
async fn what_names_no_session_and_other_stacks_nudges_are_not_heard() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    let mut nudges = world.bus.nudges().await.unwrap();
    // The server knows of the subscription once a later one is confirmed.
    assert!(world.bus.read(tenant, &session).await.unwrap().1);
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
    assert_eq!(within("the nudge is heard", nudges.next_nudge()).await, (tenant, last));
}
