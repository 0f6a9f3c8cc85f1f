//! The operator's view of all tenants, and the operator's commands.

use crate::{
    family::waiting,
    world::{World, beat},
};
use domain::{
    ids::TenantId,
    limits,
    session::{Class, Phase, Source},
    wait::Reason,
};
use store::{
    Page,
    control::{
        operator::{ClassSurvey, Owner, Survey},
        workers::{Capacity, Heartbeat},
    },
    session::{
        creation::NewSession,
        quarantine::{Notice, QuarantineRule},
    },
};
use testkit::sample::NOW;

/// Switches to another tenant.
async fn second_tenant(world: &mut World) -> TenantId {
    let (tenant, project) = (world.sample.tenant(), world.sample.project());
    world.store.create_tenant(tenant, "second").await.unwrap();
    world.store.create_project(tenant, &project, "other", &Source::default()).await.unwrap();
    (world.tenant, world.project) = (tenant, project);
    tenant
}

/// Creates one session in each phase except idle: runnable, running, waiting, quarantined.
async fn one_of_each(world: &mut World) -> [domain::ids::SessionId; 4] {
    let runnable = world.session().await;
    world.accept(&runnable, "begin").await;
    let running = world.actor().await;
    let mut waits = world.actor().await;
    world.park_as(&mut waits, 1, &waiting(Reason::Permission, None)).await;
    let stopped = world.actor().await;
    let events = std::array::from_fn(|_| world.sample.event());
    let notice = Notice { reason: "by hand", event_ids: events, at: NOW };
    world
        .store
        .quarantine(world.tenant, stopped.session(), QuarantineRule::Any, notice)
        .await
        .unwrap()
        .unwrap();
    let [running, waits, stopped] = [&running, &waits, &stopped].map(|actor| actor.session().clone());
    [runnable, running, waits, stopped]
}

#[tokio::test]
async fn the_queue_is_shown_by_tenant_and_class() {
    let mut world = World::new().await;
    let first = world.tenant;
    world.session().await;
    assert_eq!(
        world.store.list_queue(&Page::default()).await.unwrap(),
        [],
        "idle sessions do not count as work"
    );
    one_of_each(&mut world).await;
    let batch = world.session().await;
    world.sql(&format!("update session_run set class = 2 where session_id = '{batch}'")).await;
    world.accept(&batch, "begin").await;
    let second = second_tenant(&mut world).await;
    world.running().await;

    let lines = world.store.list_queue(&Page::default()).await.unwrap();
    let numbers: Vec<_> = lines
        .iter()
        .map(|line| {
            let counts = [line.runnable, line.running, line.waiting, line.quarantined];
            (line.tenant, line.name.as_str(), line.class, counts, line.oldest_queued_at.is_some())
        })
        .collect();
    let want = [
        (first, "first", Class::Interactive, [1, 1, 1, 1], true),
        (first, "first", Class::Batch, [1, 0, 0, 0], true),
        (second, "second", Class::Interactive, [0, 1, 0, 0], false),
    ];
    assert_eq!(numbers, want);
    assert_eq!((lines[0].running_max, lines[0].weight), (domain::limits::TENANT_RUNNING_MAX, 1));
    let page = async |limit, cursor: Option<&str>| {
        let page = Page { limit, cursor: cursor.map(ToOwned::to_owned) };
        let lines = world.store.list_queue(&page).await.unwrap();
        lines.into_iter().map(|line| line.name).collect::<Vec<_>>()
    };
    assert_eq!(page(1, None).await, ["first", "first"], "a page counts tenants");
    assert_eq!(page(1, Some("first")).await, ["second"]);
}

#[tokio::test]
async fn sessions_are_listed_by_phase() {
    let mut world = World::new().await;
    let all = one_of_each(&mut world).await;
    let list = async |phase| world.store.list_control(phase, &Page::default()).await.unwrap();
    for (phase, session) in
        [Phase::Runnable, Phase::Running, Phase::Waiting, Phase::Quarantined].into_iter().zip(&all)
    {
        let found = list(phase).await;
        assert_eq!(found.len(), 1, "{phase:?}");
        let found = &found[0];
        assert_eq!((&found.session, found.phase, found.tenant), (session, phase, world.tenant));
        assert_eq!(found.owner.as_deref(), (phase == Phase::Running).then_some("worker"));
        assert_eq!(found.owned_at.is_some(), phase == Phase::Running);
        let waits = matches!(phase, Phase::Waiting | Phase::Quarantined);
        assert_eq!(found.waiting_at.is_some(), waits, "{phase:?}");
        assert!(found.queued_at.is_some() || phase == Phase::Waiting, "{phase:?}");
        assert_eq!(found.waiting_reason.as_deref(), (phase == Phase::Waiting).then_some("permission"));
        assert_eq!(found.waiting_detail.as_deref(), (phase == Phase::Quarantined).then_some("by hand"));
    }
    world.sql("delete from worker").await;
    assert!(list(Phase::Running).await[0].owner.is_some(), "a dead owner is named by its incarnation");
}

#[tokio::test]
async fn all_tenants_with_a_session_are_listed() {
    let mut world = World::new().await;
    let (first, session, unknown) = (world.tenant, world.session().await, world.sample.session());
    let (second, project) = (world.sample.tenant(), world.sample.project());
    world.store.create_tenant(second, "another").await.unwrap();
    world.store.create_project(second, &project, "sample", &Source::default()).await.unwrap();
    let same = NewSession { id: session.clone(), project_id: project, ..world.new_session() };
    let event = world.sample.event();
    world.store.create_session(second, &same, &event, NOW).await.unwrap();
    let owner = |tenant, name: &str| Owner { tenant, name: name.to_owned() };
    let owners = world.store.list_owners(&session).await.unwrap();
    assert_eq!(owners, [owner(second, "another"), owner(first, "first")]);
    assert_eq!(world.store.list_owners(&unknown).await.unwrap(), []);
}

#[tokio::test]
async fn waiting_sessions_are_listed_with_the_time_of_their_wait_the_longest_first() {
    let mut world = World::new().await;
    let mut waits = vec![];
    for _ in 0..3 {
        let mut actor = world.actor().await;
        world.park_as(&mut actor, 1, &waiting(Reason::Question, None)).await;
        waits.push(actor.session().clone());
    }
    let (failed, refused) = (world.actor().await, world.actor().await);
    world
        .sql(&format!("update session_run set attempts = 4 where session_id = '{}'", failed.session()))
        .await;
    world.store.fail_attempt(world.tenant, failed.session(), failed.fence.epoch).await.unwrap();
    world.store.refuse(&refused.fence, "newer").await.unwrap();
    for (hours, session) in [(1, &waits[0]), (3, &waits[1]), (2, &waits[2])] {
        let sql = format!("update session_run set waiting_at = waiting_at - interval '{hours} hours'");
        world.sql(&format!("{sql} where session_id = '{session}'")).await;
    }
    let found = world.store.list_control(Phase::Waiting, &Page::default()).await.unwrap();
    let order: Vec<_> = found.iter().map(|control| control.session.clone()).collect();
    assert_eq!(order[..3], [waits[1].clone(), waits[2].clone(), waits[0].clone()]);
    assert_eq!(order.len(), 5);
    assert!(found.iter().all(|control| control.waiting_at.is_some()), "{found:?}");
    world.accept(&waits[0], "go on").await;
    let found = world.store.list_control(Phase::Runnable, &Page::default()).await.unwrap();
    assert_eq!((found[0].waiting_at, found[0].queued_at.is_some()), (None, true));
}

#[tokio::test]
async fn workers_are_listed_with_what_they_own() {
    let mut world = World::new().await;
    let (old, new) = (world.running().await, world.running().await);
    world.sql(&format!("update worker set started_at = now() + interval '1 hour', lease_until = now() - interval '1 hour' where incarnation = '{}'", new.worker)).await;
    let workers = world.store.list_workers(&Page::default()).await.unwrap();
    let rows: Vec<_> = workers
        .iter()
        .map(|worker| {
            (worker.incarnation, worker.name.as_str(), worker.slots, worker.running, worker.lease_ms > 0)
        })
        .collect();
    let want = [(old.worker, "worker", 4, 1, true), (new.worker, "worker", 4, 1, false)];
    assert_eq!(rows, want, "living workers come before dead ones");
    assert!(workers.iter().all(|worker| !worker.draining && worker.version == env!("CARGO_PKG_VERSION")));
    let page = world.store.list_workers(&Page { limit: 1, cursor: None }).await.unwrap();
    assert_eq!(page.iter().map(|worker| worker.incarnation).collect::<Vec<_>>(), [old.worker]);
    // The lease of a worker that died before the clock was set back ends far in the future.
    world
        .sql(&format!(
            "update worker set lease_until = now() + interval '1 hour' where incarnation = '{}'",
            new.worker
        ))
        .await;
    let page = world.store.list_workers(&Page { limit: 1, cursor: None }).await.unwrap();
    assert_eq!(page[0].incarnation, old.worker);
    world.store.renew_worker(&beat(new.worker)).await.unwrap();
    let page = world.store.list_workers(&Page { limit: 1, cursor: None }).await.unwrap();
    assert_eq!(page[0].incarnation, new.worker, "the newest living worker comes first");
}

#[tokio::test]
async fn only_versions_of_living_workers_are_listed() {
    let world = World::new().await;
    let (old, newer) = (world.worker().await, world.worker().await);
    world.worker().await;
    let own = env!("CARGO_PKG_VERSION").to_owned();
    world.sql(&format!("update worker set version = '9' where incarnation = '{newer}'")).await;
    assert_eq!(world.store.list_versions().await.unwrap(), [own.clone(), "9".to_owned()].into());
    world.sql(&format!("update worker set lease_until = now() where incarnation = '{newer}'")).await;
    assert_eq!(world.store.list_versions().await.unwrap(), [own].into(), "each once");
    world.sql(&format!("update worker set version = '8' where incarnation = '{old}'")).await;
    assert_eq!(world.store.list_versions().await.unwrap().len(), 2);
}

#[tokio::test]
async fn workers_that_died_long_ago_are_forgotten_unless_a_session_names_them() {
    let mut world = World::new().await;
    let (alive, recent, long, owner) =
        (world.worker().await, world.worker().await, world.worker().await, world.running().await);
    let age = async |worker, ms: u64| {
        let sql = "update worker set lease_until = now() - interval";
        world.sql(&format!("{sql} '{ms} milliseconds' where incarnation = '{worker}'")).await;
    };
    age(recent, limits::WORKER_KEPT_MS - 60_000).await;
    age(long, limits::WORKER_KEPT_MS + 60_000).await;
    age(owner.worker, limits::WORKER_KEPT_MS + 60_000).await;
    assert_eq!(world.store.forget_dead_workers().await.unwrap(), 1);
    let left = async || {
        let workers = world.store.list_workers(&Page::default()).await.unwrap();
        workers.into_iter().map(|worker| worker.incarnation).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(left().await, [alive, recent, owner.worker].into());
    let control = world.store.list_control(Phase::Running, &Page::default()).await.unwrap();
    assert_eq!(control[0].owner.as_deref(), Some("worker"), "the last owner is still known");
    world.take_as_actor(&owner.session).await;
    assert_eq!(world.store.forget_dead_workers().await.unwrap(), 1);
    assert!(!left().await.contains(&owner.worker));
}

#[tokio::test]
async fn a_living_worker_is_asked_to_drain_at_its_next_heartbeat() {
    let mut world = World::new().await;
    let (first, dead) = (world.running().await, world.running().await);
    world.sql(&format!("update worker set lease_until = now() where incarnation = '{}'", dead.worker)).await;
    assert_eq!(world.store.ask_drain("nobody", true).await.unwrap(), 0);
    assert_eq!(
        world.store.ask_drain(&dead.worker.to_string(), true).await.unwrap(),
        0,
        "a dead worker is not asked"
    );
    assert!(!world.store.renew_worker(&beat(first.worker)).await.unwrap().drain_asked);
    assert_eq!(world.store.ask_drain("worker", true).await.unwrap(), 1, "by name");
    assert_eq!(world.store.ask_drain(&first.worker.to_string(), true).await.unwrap(), 1, "by incarnation");
    assert!(world.store.renew_worker(&beat(first.worker)).await.unwrap().drain_asked);
    assert!(!world.store.renew_worker(&beat(dead.worker)).await.unwrap().drain_asked);
    assert_eq!(world.store.ask_drain(&first.worker.to_string(), false).await.unwrap(), 1, "undone");
    assert!(!world.store.renew_worker(&beat(first.worker)).await.unwrap().drain_asked);
}

#[tokio::test]
async fn capacity_counts_workers_that_take_sessions() {
    let mut world = World::new().await;
    assert_eq!(world.store.get_capacity().await.unwrap(), Capacity::default());
    let (running, dead) = (world.running().await, world.running().await);
    let drains = world.worker().await;
    world.store.renew_worker(&Heartbeat { draining: true, ..beat(drains) }).await.unwrap();
    world.sql(&format!("update worker set lease_until = now() where incarnation = '{}'", dead.worker)).await;
    assert_eq!(world.store.get_capacity().await.unwrap(), Capacity { workers: 1, slots: 4, running: 2 });
    world.store.hand_over(&running.fence).await.unwrap();
    assert_eq!(world.store.get_capacity().await.unwrap().running, 1);
}

/// A metric that is no longer written keeps its last value, so every number must fall back to 0.
#[tokio::test]
async fn the_survey_counts_all_work_and_returns_to_zero() {
    let mut world = World::new().await;
    let of = |class, runnable| ClassSurvey { class, runnable, oldest_seconds: 0.0 };
    let nothing = Survey { classes: Class::ALL.map(|class| of(class, 0.0)).into(), ..Survey::default() };
    assert_eq!(world.store.survey().await.unwrap(), nothing);
    one_of_each(&mut world).await;
    let dead = world.running().await;
    world.store.forget_worker(dead.worker).await.unwrap();
    world.sql("update session_run set queued_at = now() - interval '90 seconds' where phase = 1").await;
    let mut found = world.store.survey().await.unwrap();
    let oldest = std::mem::take(&mut found.classes[0].oldest_seconds);
    assert!((89.0..180.0).contains(&oldest), "{oldest}");
    let mut want = Survey {
        running: 2.0,
        waiting: 1.0,
        quarantined: 1.0,
        orphaned: 1.0,
        workers: 3.0,
        slots: 12.0,
        ..nothing.clone()
    };
    want.classes[0].runnable = 1.0;
    assert_eq!(found, want);
    world.sql("delete from session; delete from worker").await;
    assert_eq!(world.store.survey().await.unwrap(), nothing);
}
