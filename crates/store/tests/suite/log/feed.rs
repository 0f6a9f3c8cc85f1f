//! The events of all sessions of a tenant, by time.

use crate::{family::permission, world::World};
use domain::{
    event::Status,
    ids::{ProjectId, SessionId, Timestamp},
    session::Source,
};
use sqlx::{AssertSqlSafe, Connection as _};
use store::{
    Page,
    log::{
        feed::{FeedEntry, Window},
        record::Progress,
    },
    people::requests::RequestScope,
    tenant::worktrees::SessionArea,
};
use testkit::{database::connect, sample::NOW};

/// The newest event position of a session in the feed.
fn seq_of(written: &[FeedEntry], session: &SessionId) -> Option<u64> {
    written.iter().find(|written| &written.session == session).map(|written| written.seq)
}

#[tokio::test]
async fn a_late_commit_is_still_delivered() {
    let mut world = World::new().await;
    let tenant = world.tenant;
    let slow = world.session().await;
    let (start, _) = world.store.list_written(tenant, 0).await.unwrap();
    // Other tests write meanwhile, so an event may repeat.
    assert!(world.store.list_written(tenant, start).await.unwrap().0 >= start);

    let mut connection = connect(&world.database.migrator_url).await;
    let mut late = connection.begin().await.unwrap();
    let insert = format!(
        "insert into session_event (tenant_id, session_id, seq, epoch, id, kind, properties)
         values ('{tenant}', '{slow}', 900, 0, 'evt_late', 'session.updated', '{{}}')"
    );
    sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut *late).await.unwrap();
    let quick = world.session().await;
    let (meanwhile, written) = world.store.list_written(tenant, start).await.unwrap();
    assert_eq!(seq_of(&written, &quick), Some(1));
    assert_ne!(seq_of(&written, &slow), Some(900), "not committed");
    assert_eq!(written[0].directory, "sample");
    late.commit().await.unwrap();

    let (after, written) = world.store.list_written(tenant, meanwhile).await.unwrap();
    assert_eq!(seq_of(&written, &slow), Some(900));
    assert!(after >= meanwhile);
    assert!(world.store.find_first_since(tenant, &slow, meanwhile).await.unwrap().is_some());
    let future = u64::try_from(i64::MAX).unwrap();
    assert_eq!(world.store.find_first_since(tenant, &slow, future).await.unwrap(), None);
    assert_eq!(seq_of(&world.store.list_written(tenant, future).await.unwrap().1, &slow), None);
    let stranger = world.sample.tenant();
    assert_eq!(world.store.list_written(stranger, 0).await.unwrap().1, []);
    assert_eq!(world.store.find_first_since(stranger, &slow, 0).await.unwrap(), None);
}

#[tokio::test]
async fn recently_active_sessions_are_listed() {
    let mut world = World::new().await;
    let tenant = world.tenant;
    let idle = world.session().await;
    let running = world.running().await;
    let list = async |world: &World, since| {
        let area = SessionArea::from(world.project.clone());
        let found = world.store.list_recent(tenant, Some(&area), Window { since, limit: 10 }).await.unwrap();
        found.into_iter().map(|it| (it.session, it.status)).collect::<Vec<_>>()
    };
    assert_eq!(list(&world, None).await, [(running.session.clone(), Status::Busy)]);
    let mut all = list(&world, Some(Timestamp(0))).await;
    all.sort_by_key(|(session, _)| session.clone());
    let mut want = [(idle, Status::Idle), (running.session, Status::Busy)];
    want.sort_by_key(|(session, _)| session.clone());
    assert_eq!(all, want);
    let other = SessionArea::from(world.sample.project());
    assert_eq!(
        world
            .store
            .list_recent(tenant, Some(&other), Window { since: Some(Timestamp(0)), limit: 10 })
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        world
            .store
            .list_recent(tenant, None, Window { since: Some(Timestamp(0)), limit: 1 })
            .await
            .unwrap()
            .len(),
        1
    );
    let stranger = world.sample.tenant();
    assert_eq!(
        world
            .store
            .list_recent(stranger, None, Window { since: Some(Timestamp(0)), limit: 10 })
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn a_project_is_found_by_its_name_and_its_requests_with_it() {
    let mut world = World::new().await;
    let tenant = world.tenant;
    let running = world.running().await;
    let (_, changes) = world.request(&running.session, permission());
    world.store.append(&running.write(1), &changes, 0, Progress::None, NOW).await.unwrap();
    let elsewhere = world.sample.project();
    world.store.create_project(tenant, &elsewhere, "/home/ann/app", &Source::default()).await.unwrap();
    let found = world.store.find_project(tenant, "/home/ann/app").await.unwrap();
    assert_eq!(found.map(|project| project.id), Some(elsewhere.clone()));
    assert_eq!(world.store.find_project(tenant, "/home/ann").await.unwrap(), None);
    let stranger = world.sample.tenant();
    assert_eq!(world.store.find_project(stranger, "/home/ann/app").await.unwrap(), None);

    let open = async |project: &ProjectId| {
        let (page, area) = (Page::default(), SessionArea::from(project.clone()));
        world.store.list_requests(tenant, RequestScope::Area(&area), "per", &page).await.unwrap().len()
    };
    assert_eq!((open(&world.project).await, open(&elsewhere).await), (1, 0));
}
