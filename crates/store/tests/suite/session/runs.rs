//! Taking over a session and releasing it: one owner at a time, and a limit of attempts.

use crate::world::{World, beat};
use domain::{
    limits::{ATTEMPTS_MAX, ATTEMPTS_SUSPECT, SUSPECT_PAUSE_MS, UNREADABLE_PAUSE_MS},
    session::Phase,
};
use store::{
    control::aborts::OwnerFilter,
    error::Error,
    log::record::Progress,
    session::runs::{SuspectPolicy, TakeResult},
};
use testkit::sample::NOW;
use uuid::Uuid;

#[tokio::test]
async fn a_runnable_session_is_taken_once() {
    let mut world = World::new().await;
    let session = world.session().await;
    let worker = world.worker().await;
    assert_eq!(world.take(&session, worker).await, None, "idle");
    world.accept(&session, "hello").await;
    let workers = [worker, world.worker().await, world.worker().await, world.worker().await];
    let taken = workers.map(|worker| world.take(&session, worker));
    let taken: Vec<_> = futures::future::join_all(taken).await.into_iter().flatten().collect();
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].fence.epoch, taken[0].fence.write_seq), (1, 0));
    assert_eq!((taken[0].input_ack, taken[0].attempts), (0, 1));
    let state = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!((state.phase, state.epoch), (Phase::Running, 1));
    let unknown = world.sample.session();
    assert_eq!(world.take(&unknown, worker).await, None);
}

#[tokio::test]
async fn a_living_owner_is_left_alone_and_a_dead_one_is_not() {
    let mut world = World::new().await;
    let running = world.running().await;
    let successor = world.worker().await;
    assert_eq!(world.take(&running.session, successor).await, None);
    let end = format!("update worker set lease_until = now() where incarnation = '{}'", running.worker);
    world.sql(&end).await;
    let taken = world.take(&running.session, successor).await.unwrap();
    assert_eq!((taken.fence.epoch, taken.attempts), (2, 2));
    assert!(matches!(world.append(&running.write(1)).await, Err(Error::Fenced)));
    let returned = world.store.renew_worker(&beat(running.worker)).await.unwrap().aborts;
    assert_eq!(returned, [], "a returning worker owns nothing");
    assert_eq!(world.take(&running.session, running.worker).await, None);
}

#[tokio::test]
async fn a_lease_from_before_the_clock_was_set_back_protects_nobody() {
    let mut world = World::new().await;
    let running = world.running().await;
    let set_back = "update worker set lease_until = lease_until + interval '1 hour'";
    world.sql(set_back).await;
    let orphaned = async || world.store.list_orphaned(10).await.unwrap().len();
    assert_eq!(orphaned().await, 1);
    let renewed = world.store.renew_worker(&beat(running.worker)).await.unwrap();
    assert_eq!(orphaned().await, 0, "a living worker renews by the new clock");
    assert!(renewed.now.0 > 1_700_000_000_000, "{renewed:?}");
    world.sql(set_back).await;
    let successor = world.worker().await;
    assert!(world.take(&running.session, successor).await.is_some());
}

#[tokio::test]
async fn a_session_without_attempts_left_is_not_taken() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    for attempt in 1..=ATTEMPTS_MAX {
        let taken = world.take(&session, Uuid::now_v7()).await.unwrap();
        assert_eq!(taken.attempts, attempt, "a worker without a lease counts as dead");
        assert_eq!(taken.is_suspect(), attempt > ATTEMPTS_SUSPECT);
    }
    let worker = world.worker().await;
    for suspects in [SuspectPolicy::Accept, SuspectPolicy::Skip] {
        let take = world.store.take_session(world.tenant, &session, worker, suspects).await.unwrap();
        assert!(matches!(take, TakeResult::Exhausted { attempts: ATTEMPTS_MAX }), "{take:?}");
    }
    let state = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!((state.phase, state.epoch), (Phase::Running, u64::try_from(ATTEMPTS_MAX).unwrap()));
}

#[tokio::test]
async fn a_worker_with_a_suspect_leaves_other_suspects_to_others() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    let take = async |suspects, worker| {
        world.store.take_session(world.tenant, &session, worker, suspects).await.unwrap()
    };
    for _ in 0..ATTEMPTS_SUSPECT {
        assert!(
            matches!(take(SuspectPolicy::Skip, Uuid::now_v7()).await, TakeResult::Taken(_)),
            "no attempt is counted yet"
        );
    }
    let worker = world.worker().await;
    assert!(matches!(take(SuspectPolicy::Skip, worker).await, TakeResult::Suspect));
    let TakeResult::Taken(taken) = take(SuspectPolicy::Accept, worker).await else { panic!("it is free") };
    assert!(taken.take_over.is_suspect());
    let again = take(SuspectPolicy::Skip, worker).await;
    assert!(matches!(again, TakeResult::Unavailable), "its worker lives: {again:?}");
}

#[tokio::test]
async fn the_pause_of_a_suspect_doubles() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    let paused = "select (extract(epoch from wake_at - now()) * 1000)::bigint from session_run";
    for attempt in 1..=ATTEMPTS_MAX {
        let worker = world.worker().await;
        let taken = world.take(&session, worker).await.unwrap();
        world.store.fail_attempt(world.tenant, &session, taken.fence.epoch).await.unwrap();
        let state = world.store.get_session(world.tenant, &session).await.unwrap();
        if attempt < ATTEMPTS_SUSPECT {
            assert_eq!((state.phase, state.waiting_reason, state.wake_at), (Phase::Runnable, None, None));
            continue;
        }
        assert_eq!((state.phase, state.waiting_reason.as_deref()), (Phase::Waiting, Some("failed_attempt")));
        let pause = SUSPECT_PAUSE_MS << (attempt - ATTEMPTS_SUSPECT);
        let left = u64::try_from(world.number(paused).await).unwrap();
        assert!((pause - 1_500..=pause).contains(&left), "attempt {attempt}: {left} of {pause}");
        assert_eq!(state.attempts, attempt);
        world.sql("update session_run set wake_at = now()").await;
        assert_eq!(world.wake_due().await, 1);
    }
    let worker = world.worker().await;
    let take = world.store.take_session(world.tenant, &session, worker, SuspectPolicy::Accept).await.unwrap();
    assert!(
        matches!(take, TakeResult::Exhausted { attempts: ATTEMPTS_MAX }),
        "the pause has a maximum: {take:?}"
    );
}

/// An abort must not wait for the end of a pause.
#[tokio::test]
async fn a_suspect_that_was_aborted_does_not_pause() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    let worker = world.worker().await;
    for _ in 1..ATTEMPTS_SUSPECT {
        let fence = world.take(&session, worker).await.unwrap().fence;
        world.store.fail_attempt(world.tenant, &session, fence.epoch).await.unwrap();
    }
    let fence = world.take(&session, worker).await.unwrap().fence;
    assert!(world.store.accept_abort(world.tenant, &session, "a1").await.unwrap().is_some());
    world.store.fail_attempt(world.tenant, &session, fence.epoch).await.unwrap();
    let state = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!((state.phase, state.waiting_reason, state.wake_at), (Phase::Runnable, None, None));
    assert_eq!(world.store.list_aborted(OwnerFilter::Unowned, 9).await.unwrap().len(), 1);

    let fence = world.take(&session, worker).await.unwrap().fence;
    let write = store::log::record::Fence { write_seq: 1, ..fence.clone() };
    world.store.append(&write, &[], 2, Progress::None, NOW).await.unwrap();
    world.store.fail_attempt(world.tenant, &session, fence.epoch).await.unwrap();
    let state = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!((state.phase, state.wake_at.is_some()), (Phase::Waiting, true), "the abort was taken");
}

#[tokio::test]
async fn a_session_that_a_worker_cannot_read_is_offered_later_without_an_attempt() {
    let mut world = World::new().await;
    let running = world.running().await;
    let stale = store::log::record::Fence { epoch: 0, ..running.fence.clone() };
    world.store.refuse(&stale, "stale").await.unwrap();
    world.store.refuse(&running.fence, "the message has an unknown part").await.unwrap();
    let state = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!((state.phase, state.attempts), (Phase::Waiting, 0));
    assert_eq!(state.waiting_reason.as_deref(), Some("newer_worker"));
    assert_eq!(state.waiting_detail.as_deref(), Some("the message has an unknown part"));
    let soon = format!(
        "select count(*) from session_run where owner is null
            and wake_at between now() + interval '1 second' and now() + {UNREADABLE_PAUSE_MS} * interval '1 millisecond'"
    );
    assert_eq!(world.number(&soon).await, 1);
    world.sql("update session_run set wake_at = now()").await;
    assert_eq!(world.wake_due().await, 1);
    assert_eq!(world.take(&running.session, running.worker).await.unwrap().attempts, 1);
}

#[tokio::test]
async fn progress_resets_the_attempts() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    world.take(&session, Uuid::now_v7()).await.unwrap();
    let fence = world.take(&session, Uuid::now_v7()).await.unwrap().fence;
    let write = |write_seq| store::log::record::Fence { write_seq, ..fence.clone() };
    world.append(&write(1)).await.unwrap();
    world.store.append(&write(2), &[], 1, Progress::Made, NOW).await.unwrap();
    let taken = world.take(&session, Uuid::now_v7()).await.unwrap();
    assert_eq!((taken.attempts, taken.input_ack, taken.fence.epoch), (1, 1, 3));
}

#[tokio::test]
async fn a_handover_is_no_attempt_and_a_failed_loop_is_one() {
    let mut world = World::new().await;
    let running = world.running().await;
    world.store.hand_over(&running.fence).await.unwrap();
    let state = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!((state.phase, state.queue_position), (Phase::Runnable, 1));
    let taken = world.take(&running.session, running.worker).await.unwrap();
    assert_eq!((taken.attempts, taken.fence.epoch), (1, 2));

    world.store.fail_attempt(world.tenant, &running.session, 2).await.unwrap();
    let taken = world.take(&running.session, running.worker).await.unwrap();
    assert_eq!((taken.attempts, taken.fence.epoch), (2, 3));

    world.store.hand_over(&running.fence).await.unwrap();
    world.store.fail_attempt(world.tenant, &running.session, 2).await.unwrap();
    let state = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!((state.phase, state.epoch), (Phase::Running, 3), "a report of an earlier owner has no effect");
}

#[tokio::test]
async fn an_epoch_is_raised_above_that_of_the_sandbox_and_only_by_its_owner() {
    let mut world = World::new().await;
    let running = world.running().await;
    assert!(world.store.raise_epoch(&running.fence, 10).await.unwrap());
    assert!(!world.store.raise_epoch(&running.fence, 20).await.unwrap(), "it no longer owns the session");
    let taken = world.take(&running.session, running.worker).await.unwrap();
    assert_eq!((taken.attempts, taken.fence.epoch), (2, 11));
    assert!(world.store.raise_epoch(&taken.fence, 3).await.unwrap());
    let taken = world.take(&running.session, running.worker).await.unwrap();
    assert_eq!((taken.attempts, taken.fence.epoch), (3, 12), "an epoch never falls");
}

#[tokio::test]
async fn the_queue_position_counts_the_tenants_own_sessions() {
    let mut world = World::new().await;
    let sessions = [world.session().await, world.session().await, world.session().await];
    for session in &sessions {
        world.accept(session, "hello").await;
    }
    for (session, want) in sessions.iter().zip(1..) {
        assert_eq!(world.store.get_session(world.tenant, session).await.unwrap().queue_position, want);
    }
    let worker = world.worker().await;
    world.take(&sessions[0], worker).await.unwrap();
    for (session, want) in sessions.iter().zip(0..) {
        assert_eq!(world.store.get_session(world.tenant, session).await.unwrap().queue_position, want);
    }
}

#[tokio::test]
async fn a_loop_can_ask_whether_it_may_still_write() {
    let mut world = World::new().await;
    let running = world.running().await;
    let is_current = async || world.store.is_current(&running.fence).await.unwrap();
    assert!(is_current().await);
    world.store.forget_worker(running.worker).await.unwrap();
    assert!(is_current().await, "no other worker has it yet");
    world.store.hand_over(&running.fence).await.unwrap();
    assert!(!is_current().await);
    assert!(world.take(&running.session, Uuid::now_v7()).await.is_some());
    assert!(!is_current().await, "the suspect of another worker");
}

/// A session that is read with its control row must not count as newer than it is: the loop would show clients what they have changed.
#[tokio::test]
async fn a_session_that_a_client_changes_while_it_is_taken_has_the_position_of_what_was_read() {
    let mut world = World::new().await;
    let (session, worker) = (world.session().await, world.worker().await);
    world.accept(&session, "begin").await;
    let mut client = world.renaming_client(&session, "of a person").await;
    let commit = async {
        world.wait_for_lock().await;
        sqlx::raw_sql("commit").execute(&mut client).await.unwrap();
    };
    let take = world.store.take_session(world.tenant, &session, worker, SuspectPolicy::Accept);
    let (taken, ()) = tokio::join!(take, commit);
    let TakeResult::Taken(taken) = taken.unwrap() else { panic!("it is free") };
    let read = taken.stored.unwrap().session;
    let head = world.store.get_head(world.tenant, &session).await.unwrap();
    assert_eq!((read.info.title.as_str(), read.event_seq), ("A session", head.seq - 1));
    assert_eq!((taken.take_over.fence.epoch, read.epoch), (head.epoch, head.epoch));
}
