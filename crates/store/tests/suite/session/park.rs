//! Parking before the end of a turn: no concurrent event is lost.

use crate::{
    family::{finished, waiting},
    world::World,
};
use domain::{
    conversation::request::Answer,
    event::Event,
    ids::Timestamp,
    session::Phase,
    wait::{Reason, Wait},
};
use store::{
    people::requests::{AnswerOutcome, NewAnswer},
    session::park::{Park, ParkOutcome},
};
use testkit::sample::NOW;

/// Long ago, and far from now, for the database's clock.
const PAST: Timestamp = Timestamp(1_000);
const FUTURE: Timestamp = Timestamp(4_102_444_800_000);

#[tokio::test]
async fn a_parked_session_has_no_owner_and_shows_its_wait() {
    let mut world = World::new().await;
    let mut actor = world.actor().await;
    world.store.fail_attempt(world.tenant, actor.session(), 1).await.unwrap();
    actor = world.take_as_actor(actor.session()).await;
    let wait = Wait { reason: Reason::BackOff, until: Some(FUTURE) };
    let waits = [world.change(Event::SessionWaiting(wait))];
    let (fence, park) = (actor.next(), Park::Waiting { wait, notify: None });
    let parked = world.store.park(&fence, &waits, 1, &park, NOW).await.unwrap();
    let ParkOutcome::Parked(written) = &parked else { panic!("{parked:?}") };
    assert_eq!(written.events[0].kind, "flotilla.session.waiting");
    let state = world.store.get_session(world.tenant, actor.session()).await.unwrap();
    assert_eq!((state.phase, state.waiting_reason.as_deref()), (Phase::Waiting, Some("back_off")));
    assert_eq!((state.wake_at, state.attempts, state.last_outcome), (Some(FUTURE), 0, None));
    let free = "select count(*) from session_run where owner is null and owned_at is null and input_ack = 1";
    assert_eq!(world.number(free).await, 1);
    assert_eq!(world.store.park(&fence, &waits, 1, &park, NOW).await.unwrap(), parked, "repeated");
    let worker = world.worker().await;
    assert_eq!(world.take(actor.session(), worker).await, None, "it needs no worker");
}

#[tokio::test]
async fn only_an_expired_timer_wakes_a_parked_session() {
    let mut world = World::new().await;
    let mut woken = vec![];
    for until in [Some(PAST), Some(FUTURE), None] {
        let mut actor = world.actor().await;
        world.park_as(&mut actor, 1, &waiting(Reason::BackOff, until)).await;
        woken.push(actor.session().clone());
    }
    assert_eq!((world.wake_due().await, world.wake_due().await), (1, 0));
    for (session, want) in woken.iter().zip([Phase::Runnable, Phase::Waiting, Phase::Waiting]) {
        let state = world.store.get_session(world.tenant, session).await.unwrap();
        assert_eq!((state.phase, state.waiting_reason.is_none()), (want, want == Phase::Runnable));
    }
    let taken = world.take_as_actor(&woken[0]).await;
    assert_eq!(taken.fence.epoch, 2);
}

/// A scan skips a locked row and leaves it to the next scan, because the scan itself holds other rows.
#[tokio::test]
async fn waking_timers_skips_locked_rows() {
    let mut world = World::new().await;
    let (mut held, mut free) = (world.actor().await, world.actor().await);
    for actor in [&mut held, &mut free] {
        world.park_as(actor, 1, &waiting(Reason::BackOff, Some(PAST))).await;
    }
    let holder = world.hold(held.session()).await;
    assert_eq!(testkit::within("the look", world.wake_due()).await, 1);
    drop(holder);
    testkit::eventually("the next look", async || world.wake_due().await == 1).await;
}

#[tokio::test]
async fn a_loop_that_has_not_seen_an_input_does_not_wait() {
    let mut world = World::new().await;
    let mut actor = world.actor().await;
    world.accept(&actor.session().clone(), "second").await;
    let park = waiting(Reason::Permission, None);
    assert_eq!(world.park_as(&mut actor, 1, &park).await, ParkOutcome::NewInput);
    let state = world.store.get_session(world.tenant, actor.session()).await.unwrap();
    assert_eq!((state.phase, state.waiting_reason), (Phase::Running, None));
}

/// In either order, the loop sees the answer before it parks, or the answer wakes it.
#[tokio::test]
async fn an_answer_during_parking_is_never_lost() {
    let mut world = World::new().await;
    for round in 0..20 {
        let mut actor = world.actor().await;
        let request = world.ask(&mut actor).await;
        let (event, fence) = (world.sample.event(), actor.next());
        let park = waiting(Reason::Permission, None);
        let (parked, answered) = tokio::join!(
            world.store.park(&fence, &[], 1, &park, NOW),
            world.store.answer_request(
                world.tenant,
                &request.id,
                NewAnswer { answer: &Answer::Once, by: "ann", epoch: None },
                &event,
                NOW
            )
        );
        let AnswerOutcome::Accepted { runnable, .. } = answered.unwrap() else { panic!("it is open") };
        let phase = world.store.get_session(world.tenant, actor.session()).await.unwrap().phase;
        let want = match parked.unwrap() {
            ParkOutcome::Parked(_) => (Phase::Runnable, true),
            ParkOutcome::NewInput => (Phase::Running, false),
        };
        assert_eq!((phase, runnable), want, "round {round}");
    }
}

#[tokio::test]
async fn a_childs_end_during_parking_is_never_lost() {
    let mut world = World::new().await;
    for round in 0..20 {
        let mut parent = world.actor().await;
        let (call, mut child) = world.child(&mut parent).await;
        let end = finished(child.session(), &call, "done");
        let (of_parent, of_child) = (parent.next(), child.next());
        let wait = waiting(Reason::Children, None);
        let (parked, ended) = tokio::join!(
            world.store.park(&of_parent, &[], 1, &wait, NOW),
            world.store.park(&of_child, &[], 1, &end, NOW)
        );
        assert!(matches!(ended.unwrap(), ParkOutcome::Parked(_)));
        let phase = world.store.get_session(world.tenant, parent.session()).await.unwrap().phase;
        let want = match parked.unwrap() {
            ParkOutcome::Parked(_) => Phase::Runnable,
            ParkOutcome::NewInput => Phase::Running,
        };
        assert_eq!(phase, want, "round {round}");
        assert_eq!(world.inputs(parent.session()).await, ["child"]);
    }
}
