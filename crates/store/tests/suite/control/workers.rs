//! Queries across tenants: living workers, waiting sessions, and leftovers.

use crate::world::{World, beat};
use domain::{
    conversation::message::ModelRef,
    ids::SessionId,
    model::Facts,
    money::Price,
    policy::tool,
    session::{Class, Phase, Source},
};
use std::sync::Arc;
use store::control::{
    aborts::OwnerFilter,
    candidate::{Candidate, SessionRef},
    workers::{Capabilities, Heartbeat, OwnedSession},
};
use testkit::sample::NOW;
use uuid::Uuid;

/// Creates a runnable session of another tenant.
async fn of_another_tenant(world: &mut World) -> SessionRef {
    let tenant = world.sample.tenant();
    world.store.create_tenant(tenant, "second").await.unwrap();
    let first = std::mem::replace(&mut world.tenant, tenant);
    let project = world.sample.project();
    world.store.create_project(tenant, &project, "other", &Source::default()).await.unwrap();
    let own = std::mem::replace(&mut world.project, project);
    let session = world.session().await;
    world.accept(&session, "hello").await;
    (world.tenant, world.project) = (first, own);
    SessionRef { tenant, session }
}

fn places(list: Vec<Candidate>) -> Vec<SessionRef> {
    list.into_iter().map(|session| session.target).collect()
}

#[tokio::test]
async fn runnable_sessions_of_all_tenants_are_listed_longest_waiting_first() {
    let mut world = World::new().await;
    world.session().await;
    world.running().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    let other = of_another_tenant(&mut world).await;
    let want = [SessionRef { tenant: world.tenant, session }, other];
    assert_eq!(places(world.store.list_runnable(10).await.unwrap()), want);
    assert_eq!(places(world.store.list_runnable(1).await.unwrap()), want[..1]);
}

#[tokio::test]
async fn sessions_are_owned_while_their_worker_lives_and_orphaned_afterwards() {
    let mut world = World::new().await;
    let (first, second) = (world.running().await, world.running().await);
    let place = |session: &SessionId| SessionRef { tenant: world.tenant, session: session.clone() };
    let store = &world.store;
    let owned = store.list_owned(None, 10).await.unwrap().into_iter();
    let mut owned: Vec<_> = owned.map(|(session, worker)| (session.target, worker)).collect();
    owned.sort_by_key(|(_, worker)| *worker);
    let want = [(place(&first.session), first.worker), (place(&second.session), second.worker)];
    assert_eq!((owned, store.list_orphaned(10).await.unwrap()), (want.to_vec(), vec![]));

    world.sql(&format!("update worker set lease_until = now() where incarnation = '{}'", first.worker)).await;
    store.forget_worker(second.worker).await.unwrap();
    assert_eq!(store.list_owned(None, 10).await.unwrap(), []);
    assert_eq!(store.list_orphaned(10).await.unwrap().len(), 2);
    assert_eq!(store.list_orphaned(1).await.unwrap().len(), 1);
    let draining = Heartbeat { draining: true, ..beat(first.worker) };
    assert!(!store.renew_worker(&draining).await.unwrap().drain_asked);
    assert_eq!(places(store.list_orphaned(10).await.unwrap()), [place(&second.session)]);
    assert_eq!(world.number("select count(*) from worker where draining").await, 1);
}

#[tokio::test]
async fn a_renewing_worker_learns_of_aborts_that_no_loop_took() {
    let mut world = World::new().await;
    let (aborted, other) = (world.running().await, world.running().await);
    world.store.accept_abort(world.tenant, &aborted.session, "a1").await.unwrap();
    let renew = async |worker| world.store.renew_worker(&beat(worker)).await.unwrap().aborts;
    assert_eq!(
        renew(aborted.worker).await,
        [SessionRef { tenant: world.tenant, session: aborted.session.clone() }]
    );
    assert_eq!(renew(other.worker).await, []);
    world.store.append(&aborted.write(1), &[], 2, store::log::record::Progress::None, NOW).await.unwrap();
    assert_eq!(renew(aborted.worker).await, []);
}

#[tokio::test]
async fn an_abort_without_a_loop_is_listed_until_a_loop_took_it() {
    let mut world = World::new().await;
    let (session, other) = (world.session().await, world.session().await);
    for runnable in [&session, &other] {
        world.accept(runnable, "hello").await;
    }
    let (store, tenant) = (&world.store, world.tenant);
    let is_aborted = async |session| store.is_aborted(tenant, session).await.unwrap();
    assert_eq!(
        (store.list_aborted(OwnerFilter::Unowned, 9).await.unwrap(), is_aborted(&session).await),
        (vec![], false)
    );
    store.accept_abort(tenant, &session, "a1").await.unwrap();
    let place = SessionRef { tenant, session: session.clone() };
    assert_eq!(store.list_aborted(OwnerFilter::Unowned, 9).await.unwrap(), [place]);
    assert_eq!((is_aborted(&session).await, is_aborted(&other).await), (true, false));
    let worker = world.worker().await;
    let fence = world.take(&session, worker).await.unwrap().fence;
    assert_eq!(
        (store.list_aborted(OwnerFilter::Unowned, 9).await.unwrap(), is_aborted(&session).await),
        (vec![], false)
    );
    let write = store::log::record::Fence { write_seq: 1, ..fence.clone() };
    store.append(&write, &[], 2, store::log::record::Progress::Made, NOW).await.unwrap();
    store.hand_over(&fence).await.unwrap();
    assert_eq!(
        (store.list_aborted(OwnerFilter::Unowned, 9).await.unwrap(), is_aborted(&session).await),
        (vec![], false)
    );
}

#[tokio::test]
async fn a_worker_finds_what_it_holds_with_its_epochs() {
    let mut world = World::new().await;
    let (first, other) = (world.running().await, world.running().await);
    world.store.hand_over(&first.fence).await.unwrap();
    assert_eq!(world.store.list_held(first.worker).await.unwrap(), []);
    world.take(&first.session, first.worker).await.unwrap();
    let place = SessionRef { tenant: world.tenant, session: first.session.clone() };
    let want = [OwnedSession { target: place, epoch: 2, class: Class::default() }];
    assert_eq!(world.store.list_held(first.worker).await.unwrap(), want);
    world.store.forget_worker(first.worker).await.unwrap();
    assert_eq!(world.store.list_held(first.worker).await.unwrap(), want, "also after the lease expired");
    world.store.fail_attempt(world.tenant, &other.session, 1).await.unwrap();
    assert_eq!(world.store.list_held(other.worker).await.unwrap(), []);
}

#[tokio::test]
async fn only_expired_timers_wake_sessions() {
    let mut world = World::new().await;
    let (due, later, idle) = (world.session().await, world.session().await, world.session().await);
    for (session, phase, when) in
        [(&due, 3, "now()"), (&later, 3, "now() + interval '1 hour'"), (&idle, 0, "now()")]
    {
        let set = format!(
            "update session_run set phase = {phase}, wake_at = {when} where session_id = '{session}'"
        );
        world.sql(&set).await;
    }
    assert_eq!(world.wake_due().await, 1);
    assert_eq!(world.wake_due().await, 0);
    for (session, want) in [(&due, Phase::Runnable), (&later, Phase::Waiting), (&idle, Phase::Idle)] {
        assert_eq!(world.store.get_session(world.tenant, session).await.unwrap().phase, want);
    }
    assert_eq!(world.store.get_session(world.tenant, &due).await.unwrap().queue_position, 1);
}

#[tokio::test]
async fn postgres_counts_as_settled_some_time_after_its_start() {
    let world = World::new().await;
    testkit::eventually("it is up", async || world.store.is_settled(1).await.unwrap()).await;
    assert!(!world.store.is_settled(u64::MAX).await.unwrap());
}

#[tokio::test]
async fn an_abort_of_an_orphan_is_listed_once_postgres_is_settled() {
    let mut world = World::new().await;
    let (running, dead) = (world.running().await, world.running().await);
    for one in [&running, &dead] {
        world.store.accept_abort(world.tenant, &one.session, "a1").await.unwrap();
    }
    world.store.forget_worker(dead.worker).await.unwrap();
    assert_eq!(world.store.list_aborted(OwnerFilter::Unowned, 9).await.unwrap(), []);
    let place = SessionRef { tenant: world.tenant, session: dead.session.clone() };
    assert_eq!(world.store.list_aborted(OwnerFilter::UnownedOrDead, 9).await.unwrap(), [place]);
}

#[tokio::test]
async fn a_timer_from_the_future_wakes_at_once() {
    let mut world = World::new().await;
    let (early, right, asks) = (world.session().await, world.session().await, world.session().await);
    let waits = "phase = 3, wake_at = now() + interval '2 hours', waiting_at = now()";
    for (session, set) in [
        (&early, format!("{waits} + interval '1 hour'")),
        (&right, waits.to_owned()),
        (&asks, "phase = 3, waiting_at = now() + interval '1 hour'".to_owned()),
    ] {
        world.sql(&format!("update session_run set {set} where session_id = '{session}'")).await;
    }
    assert_eq!(world.store.wake_from_the_future(9).await.unwrap(), 1);
    for (session, want) in [(&early, Phase::Runnable), (&right, Phase::Waiting), (&asks, Phase::Waiting)] {
        assert_eq!(world.store.get_session(world.tenant, session).await.unwrap().phase, want);
    }
}

#[tokio::test]
async fn models_of_living_workers_are_listed_once() {
    let world = World::new().await;
    let facts = |provider: &str| Facts {
        model: ModelRef { provider_id: provider.to_owned(), model_id: "m".to_owned() },
        name: "M".to_owned(),
        context_tokens: 100,
        input_tokens: None,
        output_tokens: 10,
        price: Price::default(),
        reasoning: false,
        temperature: true,
        images: false,
        pdf: false,
        variants: vec![],
    };
    let heartbeat = |models: Vec<Facts>| Heartbeat {
        capabilities: Some(Arc::new(Capabilities { models, tools: vec![] })),
        ..beat(Uuid::now_v7())
    };
    let (first, second, gone) = (
        heartbeat(vec![facts("a"), facts("b")]),
        heartbeat(vec![facts("b"), facts("c")]),
        heartbeat(vec![facts("d")]),
    );
    for worker in [&first, &second, &gone] {
        world.store.renew_worker(worker).await.unwrap();
    }
    // Later heartbeats change nothing.
    world.store.renew_worker(&Heartbeat { capabilities: None, ..first.clone() }).await.unwrap();
    world.store.forget_worker(gone.incarnation).await.unwrap();
    let mut provider_ids: Vec<String> =
        world.store.list_models().await.unwrap().into_iter().map(|facts| facts.model.provider_id).collect();
    provider_ids.sort();
    assert_eq!(provider_ids, ["a", "b", "c"]);
}

#[tokio::test]
async fn the_newest_worker_decides_the_list_of_tools() {
    let world = World::new().await;
    assert_eq!(world.store.list_tools().await.unwrap(), []);
    let tool = |name: &str| tool::Spec {
        name: name.to_owned(),
        description: "does".to_owned(),
        schema: serde_json::json!({"type": "object"}),
    };
    let heartbeat = |tools: Vec<tool::Spec>| Heartbeat {
        capabilities: Some(Arc::new(Capabilities { models: vec![], tools })),
        ..beat(Uuid::now_v7())
    };
    let (older, newer) = (heartbeat(vec![tool("old")]), heartbeat(vec![tool("a"), tool("b")]));
    let silent = beat(Uuid::now_v7());
    for worker in [&older, &newer, &Heartbeat { capabilities: None, ..newer.clone() }, &silent] {
        world.store.renew_worker(worker).await.unwrap();
    }
    assert_eq!(world.store.list_tools().await.unwrap(), [tool("a"), tool("b")]);
    world.store.forget_worker(newer.incarnation).await.unwrap();
    assert_eq!(world.store.list_tools().await.unwrap(), [tool("old")]);
}
