//! Quarantining sessions, and releasing them.

use crate::{
    family::{answer, finished, waiting},
    world::World,
};
use domain::{
    event::StoredEvent,
    ids::{EventId, SessionId},
    limits::ATTEMPTS_MAX,
    session::{Outcome, Phase},
    wait::Reason,
};
use store::{
    error::Error,
    session::{
        quarantine::{Notice, Quarantine, QuarantineRule},
        runs::{SuspectPolicy, TakeResult},
        tree::answers::ChildAnswer,
    },
};
use testkit::sample::NOW;
use uuid::Uuid;

async fn quarantine(world: &mut World, session: &SessionId, which: QuarantineRule) -> Option<Quarantine> {
    let events: [EventId; 3] = std::array::from_fn(|_| world.sample.event());
    let notice = Notice { reason: "it ended its worker 5 times", event_ids: events, at: NOW };
    world.store.quarantine(world.tenant, session, which, notice).await.unwrap()
}

async fn release(world: &mut World, session: &SessionId) -> Option<Vec<StoredEvent>> {
    let event = world.sample.event();
    let released = world.store.release(world.tenant, session, event, NOW).await.unwrap();
    released.map(|(events, _)| events)
}

async fn set_attempts(world: &World, session: &SessionId, attempts: i16) {
    world.sql(&format!("update session_run set attempts = {attempts} where session_id = '{session}'")).await;
}

#[tokio::test]
async fn only_an_ownerless_session_without_attempts_left_is_exhausted() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    set_attempts(&world, &session, ATTEMPTS_MAX).await;
    assert_eq!(quarantine(&mut world, &session, QuarantineRule::Exhausted).await, None, "its worker lives");
    world.store.forget_worker(running.worker).await.unwrap();
    set_attempts(&world, &session, ATTEMPTS_MAX - 1).await;
    assert_eq!(
        quarantine(&mut world, &session, QuarantineRule::Exhausted).await,
        None,
        "it has attempts left"
    );
    set_attempts(&world, &session, ATTEMPTS_MAX).await;
    let take = world.store.take_session(world.tenant, &session, Uuid::now_v7(), SuspectPolicy::Accept).await;
    let take = take.unwrap();
    assert!(matches!(take, TakeResult::Exhausted { attempts: ATTEMPTS_MAX }), "{take:?}");

    let outcome = quarantine(&mut world, &session, QuarantineRule::Exhausted).await.unwrap();
    assert_eq!((outcome.epoch, outcome.parent), (2, None));
    let events: Vec<_> = outcome.events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    assert_eq!(events, [(4, "flotilla.session.quarantined"), (5, "session.error"), (6, "session.status")]);
    let state = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!((state.phase, state.epoch, state.attempts), (Phase::Quarantined, 2, ATTEMPTS_MAX));
    assert_eq!(state.waiting_detail.as_deref(), Some("it ended its worker 5 times"));
    assert_eq!(world.gap_free(&session).await, 6);
    assert_eq!(quarantine(&mut world, &session, QuarantineRule::Exhausted).await, None, "once");
    assert_eq!(quarantine(&mut world, &session, QuarantineRule::Any).await, None, "once");
    let worker = world.worker().await;
    assert_eq!(world.take(&session, worker).await, None);
    let prompt = world.prompt(&session, "second");
    let refused = world.store.accept_prompt(world.tenant, &prompt, NOW).await;
    assert!(matches!(refused, Err(Error::Quarantined)), "no prompt releases it: {refused:?}");
}

#[tokio::test]
async fn an_operator_stops_a_session_with_work_and_fences_its_loop() {
    let mut world = World::new().await;
    let idle = world.session().await;
    assert_eq!(quarantine(&mut world, &idle, QuarantineRule::Any).await, None);
    let unknown = world.sample.session();
    assert_eq!(quarantine(&mut world, &unknown, QuarantineRule::Any).await, None);
    let running = world.running().await;
    let outcome = quarantine(&mut world, &running.session, QuarantineRule::Any).await.unwrap();
    assert_eq!(outcome.epoch, 2);
    assert!(matches!(world.append(&running.write(1)).await, Err(Error::Fenced)));
    assert_eq!(world.store.list_held(running.worker).await.unwrap(), []);

    let mut waits = world.actor().await;
    world.park_as(&mut waits, 1, &waiting(Reason::BackOff, Some(domain::ids::Timestamp(0)))).await;
    quarantine(&mut world, waits.session(), QuarantineRule::Any).await.unwrap();
    assert_eq!(world.wake_due().await, 0, "its timer is off");
    let state = world.store.get_session(world.tenant, waits.session()).await.unwrap();
    assert_eq!((state.phase, state.waiting_reason, state.wake_at), (Phase::Quarantined, None, None));
}

#[tokio::test]
async fn a_released_session_has_all_attempts_again() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "begin").await;
    assert_eq!(release(&mut world, &session).await, None, "it is not quarantined");
    for _ in 0..ATTEMPTS_MAX {
        world.take(&session, Uuid::now_v7()).await.unwrap();
    }
    quarantine(&mut world, &session, QuarantineRule::Exhausted).await.unwrap();
    let events = release(&mut world, &session).await.unwrap();
    let events: Vec<_> = events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    assert_eq!(events, [(7, "flotilla.session.released")]);
    let state = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!((state.phase, state.attempts, state.queue_position), (Phase::Runnable, 0, 1));
    assert_eq!(state.waiting_detail, None);
    assert_eq!(release(&mut world, &session).await, None, "once");
    for attempt in 1..=ATTEMPTS_MAX {
        assert_eq!(world.take(&session, Uuid::now_v7()).await.unwrap().attempts, attempt);
    }
}

#[tokio::test]
async fn a_parent_learns_once_that_its_child_was_stopped() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, child) = world.child(&mut parent).await;
    world.park_as(&mut parent, 1, &waiting(Reason::Children, None)).await;
    let outcome = quarantine(&mut world, child.session(), QuarantineRule::Any).await.unwrap();
    assert_eq!(outcome.parent.as_ref(), Some(parent.session()));
    let text = "The subtask was stopped: it ended its worker 5 times.";
    let want = ChildAnswer { outcome: Outcome::Failed, ..answer(child.session(), &call, text) };
    let answers = async |world: &World| {
        world.store.list_answers(world.tenant, parent.session(), &[&call.part_id]).await
    };
    assert_eq!(answers(&world).await.unwrap(), std::slice::from_ref(&want));
    let state = world.store.get_session(world.tenant, parent.session()).await.unwrap();
    assert_eq!(state.phase, Phase::Runnable);

    release(&mut world, child.session()).await.unwrap();
    let mut child = world.take_as_actor(child.session()).await;
    let end = finished(child.session(), &call, "the late result");
    world.park_as(&mut child, 1, &end).await;
    assert_eq!(answers(&world).await.unwrap(), [want], "the first answer counts");
    assert_eq!(world.inputs(parent.session()).await, ["child"]);
}
