//! The data that describes a waiting session.

use crate::{
    family::{finished, waiting},
    world::World,
};
use domain::wait::Reason;
use store::{
    control::tenants::TenantPatch,
    people::waits::{DescendantCounts, Usage},
    rows::session_row::ChildCounts,
};

#[tokio::test]
async fn usage_counts_the_tenants_loops_and_a_waiting_session_its_children() {
    let mut world = World::new().await;
    let other = world.sample.tenant();
    world.store.create_tenant(other, "second").await.unwrap();
    let patch = TenantPatch { running_max: Some(7), ..TenantPatch::default() };
    world.store.update_tenant(world.tenant, patch).await.unwrap();
    let mut parent = world.actor().await;
    let (call, mut child) = world.child(&mut parent).await;
    world.dispatch(&mut parent).await;
    let usage = async |world: &World| world.store.get_usage(world.tenant).await.unwrap();
    assert_eq!(usage(&world).await, Usage { running: 2, running_max: 7 });
    let end = finished(child.session(), &call, "done");
    world.park_as(&mut child, 1, &end).await;
    assert_eq!(usage(&world).await, Usage { running: 1, running_max: 7 });
    assert_eq!(world.store.get_usage(other).await.unwrap().running, 0);
    let children =
        async |world: &World| world.store.get_session(world.tenant, parent.session()).await.unwrap().children;
    assert_eq!(children(&world).await, ChildCounts::default(), "it does not wait");
    world
        .sql(&format!(
            "update session_run set waiting_reason = 'children' where session_id = '{}'",
            parent.session()
        ))
        .await;
    assert_eq!(children(&world).await, ChildCounts { finished: 1, all: 2 });
}

#[tokio::test]
async fn the_queue_position_counts_the_more_urgent_first() {
    let mut world = World::new().await;
    let mut sessions = vec![];
    for class in [2, 0, 1] {
        let session = world.session().await;
        world.sql(&format!("update session_run set class = {class} where session_id = '{session}'")).await;
        world.accept(&session, "begin").await;
        sessions.push(session);
    }
    for (session, want) in sessions.iter().zip([3, 1, 2]) {
        assert_eq!(world.store.get_session(world.tenant, session).await.unwrap().queue_position, want);
    }
}

#[tokio::test]
async fn a_tree_shows_whether_its_sessions_wait_or_run() {
    let mut world = World::new().await;
    let mut root = world.actor().await;
    let (_, mut child) = world.child(&mut root).await;
    let (_, mut leaf) = world.child(&mut child).await;
    let (_, mut other) = world.child(&mut child).await;
    let id = root.session().clone();
    let below = async |world: &World| world.store.count_below(world.tenant, &id).await.unwrap();
    assert_eq!(below(&world).await, DescendantCounts { asking: 0, going_on: 3 });
    world.park_as(&mut child, 1, &waiting(Reason::Children, None)).await;
    world.park_as(&mut leaf, 1, &waiting(Reason::Permission, None)).await;
    assert_eq!(below(&world).await, DescendantCounts { asking: 1, going_on: 1 });
    world.park_as(&mut other, 1, &waiting(Reason::Question, None)).await;
    assert_eq!(below(&world).await, DescendantCounts { asking: 2, going_on: 0 });
    world.accept(other.session(), "go on").await;
    assert_eq!(below(&world).await, DescendantCounts { asking: 1, going_on: 1 });
    assert_eq!(
        world.store.count_below(world.tenant, leaf.session()).await.unwrap(),
        DescendantCounts::default()
    );
}
