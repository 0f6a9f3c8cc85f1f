//! The sessions that the sweep offers: page ends hide no session, and no tenant exceeds its limit.

use crate::world::World;
use domain::{
    ids::{ProjectId, TenantId},
    session::{Phase, Source},
};
use store::control::{
    aborts::OwnerFilter,
    candidate::{Candidate, SessionRef},
    tenants::TenantPatch,
};

/// Creates another tenant, with a project.
async fn other_tenant(world: &mut World) -> (TenantId, ProjectId) {
    let (tenant, project) = (world.sample.tenant(), world.sample.project());
    world.store.create_tenant(tenant, "other").await.unwrap();
    world.store.create_project(tenant, &project, "other", &Source::default()).await.unwrap();
    (tenant, project)
}

/// Swaps the tenants: from here on `world` creates sessions of the other tenant, and `other` is the earlier one.
fn swap(world: &mut World, other: &mut (TenantId, ProjectId)) {
    std::mem::swap(&mut world.tenant, &mut other.0);
    std::mem::swap(&mut world.project, &mut other.1);
}

async fn queued(world: &mut World) -> SessionRef {
    let session = world.session().await;
    world.accept(&session, "hello").await;
    SessionRef { tenant: world.tenant, session }
}

fn places(list: Vec<Candidate>) -> Vec<SessionRef> {
    list.into_iter().map(|session| session.target).collect()
}

fn by_name(mut places: Vec<SessionRef>) -> Vec<SessionRef> {
    places.sort_by(|one, other| one.session.cmp(&other.session));
    places
}

#[tokio::test]
async fn a_backlog_of_one_tenant_or_class_hides_no_other() {
    let mut world = World::new().await;
    let mut backlog = vec![];
    for _ in 0..4 {
        backlog.push(queued(&mut world).await);
    }
    let batch = queued(&mut world).await;
    world.sql(&format!("update session_run set class = 2 where session_id = '{}'", batch.session)).await;
    let mut second = other_tenant(&mut world).await;
    swap(&mut world, &mut second);
    let (late, later) = (queued(&mut world).await, queued(&mut world).await);
    let list = async |limit| places(world.store.list_runnable(limit).await.unwrap());
    let firsts = vec![backlog[0].clone(), late, batch];
    assert_eq!(list(3).await, firsts);
    let seconds = vec![backlog[1].clone(), later, backlog[2].clone(), backlog[3].clone()];
    assert_eq!(list(10).await, [firsts, seconds].concat());
}

#[tokio::test]
async fn each_tenant_gets_its_share_of_a_page() {
    let mut world = World::new().await;
    assert_eq!(world.store.list_runnable(10).await.unwrap(), [], "no session waits");
    assert_eq!(world.store.list_takeable(10).await.unwrap(), []);
    let own = [queued(&mut world).await, queued(&mut world).await, queued(&mut world).await];
    let mut second = other_tenant(&mut world).await;
    swap(&mut world, &mut second);
    let other = [queued(&mut world).await, queued(&mut world).await, queued(&mut world).await];
    let list = async |limit| places(world.store.list_runnable(limit).await.unwrap());
    let [first, second, third] = [0, 1, 2].map(|nth| [own[nth].clone(), other[nth].clone()]);
    assert_eq!(list(1).await, first[..1]);
    assert_eq!(list(3).await, [&first[..], &second[..1]].concat());
    assert_eq!(list(6).await, [first, second, third].concat());
}

#[tokio::test]
async fn without_redis_a_tenant_still_stays_within_its_cap() {
    let mut world = World::new().await;
    world.running().await;
    let (first, second) = (queued(&mut world).await, queued(&mut world).await);
    let capped = world.tenant;
    let mut other = other_tenant(&mut world).await;
    swap(&mut world, &mut other);
    let (third, fourth) = (queued(&mut world).await, queued(&mut world).await);
    let store = &world.store;
    let list = async |running_max, weight| {
        store
            .update_tenant(
                capped,
                TenantPatch {
                    running_max: Some(running_max),
                    weight: Some(weight),
                    ..TenantPatch::default()
                },
            )
            .await
            .unwrap();
        places(store.list_takeable(10).await.unwrap())
    };
    let of_other = vec![third.clone(), fourth.clone()];
    assert_eq!(list(1, 1).await, of_other, "that tenant already runs one");
    let one = [third.clone(), first.clone(), fourth.clone()];
    assert_eq!(list(2, 1).await, one, "the tenant that runs less comes first");
    let both = [third.clone(), first.clone(), fourth.clone(), second.clone()];
    assert_eq!(list(3, 1).await, both);
    assert_eq!(list(3, 4).await, [first, second, third, fourth], "a share is relative to the weight");
    assert_eq!(list(0, 1).await, of_other);
}

#[tokio::test]
async fn a_limited_number_of_timers_wakes_at_once() {
    let mut world = World::new().await;
    let mut due = vec![];
    for minutes in [2, 3, 1] {
        let session = world.session().await;
        world
            .sql(&format!(
                "update session_run set phase = 3, wake_at = now() - {minutes} * interval '1 minute'
                  where session_id = '{session}'"
            ))
            .await;
        due.push(SessionRef { tenant: world.tenant, session });
    }
    let wake = async || by_name(places(world.store.wake_due(2).await.unwrap()));
    assert_eq!(wake().await, by_name(due[..2].to_vec()), "the timers that expired first");
    let phase =
        async |place: &SessionRef| world.store.get_session(place.tenant, &place.session).await.unwrap().phase;
    assert_eq!((phase(&due[1]).await, phase(&due[2]).await), (Phase::Runnable, Phase::Waiting));
    assert_eq!(wake().await, due[2..]);
    assert_eq!(wake().await, []);
}

#[tokio::test]
async fn pages_list_every_waiting_session_once_in_order() {
    let mut world = World::new().await;
    let mut want = vec![];
    for _ in 0..5 {
        want.push(queued(&mut world).await);
    }
    let want = by_name(want);
    // Page ends fall between two sessions of the same moment. One session has no known time.
    world.sql("update session_run set queued_at = to_timestamp(1000.000001)").await;
    let set = |place: &SessionRef, when: &str| {
        format!("update session_run set queued_at = {when} where session_id = '{}'", place.session)
    };
    world.sql(&set(&want[3], "null")).await;
    world.sql(&set(&want[0], "to_timestamp(1000.000002)")).await;
    world.running().await;
    let order = [3, 1, 2, 4, 0].map(|place| want[place].clone());
    for limit in [1, 2, 5, 9] {
        let (mut entries, mut after) = (vec![], None);
        loop {
            let (page, last) = world.store.list_queued(after.as_ref(), limit).await.unwrap();
            if last.is_none() {
                break;
            }
            entries.extend(places(page));
            after = last;
        }
        assert_eq!(entries, order, "{limit} at once");
    }
}

#[tokio::test]
async fn pages_list_every_owned_session_once() {
    let mut world = World::new().await;
    let mut want = vec![];
    for _ in 0..3 {
        let running = world.running().await;
        want.push((SessionRef { tenant: world.tenant, session: running.session }, running.worker));
    }
    want.sort_by(|(one, _), (other, _)| one.session.cmp(&other.session));
    let (mut entries, mut after) = (vec![], None);
    while let Some((session, worker)) = world.store.list_owned(after.as_ref(), 1).await.unwrap().pop() {
        after = Some(session.target.clone());
        entries.push((session.target, worker));
    }
    assert_eq!(entries, want);
}

/// If no worker takes the first sessions, every page would otherwise offer only them.
#[tokio::test]
async fn every_orphan_and_every_abort_is_eventually_offered() {
    let mut world = World::new().await;
    for _ in 0..3 {
        let orphan = world.running().await;
        world.store.forget_worker(orphan.worker).await.unwrap();
        let aborted = queued(&mut world).await;
        world.store.accept_abort(world.tenant, &aborted.session, "a1").await.unwrap();
    }
    let (mut orphans, mut aborted) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    // The chance that one of three sessions is never drawn in so many draws is negligible.
    for _ in 0..200 {
        orphans
            .extend(places(world.store.list_orphaned(1).await.unwrap()).into_iter().map(|one| one.session));
        aborted.extend(
            world
                .store
                .list_aborted(OwnerFilter::Unowned, 1)
                .await
                .unwrap()
                .into_iter()
                .map(|one| one.session),
        );
    }
    assert_eq!((orphans.len(), aborted.len()), (3, 3));
}
