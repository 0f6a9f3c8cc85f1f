//! Deleted sessions: only the fact of the deletion is kept.

use crate::world::World;
use domain::{
    ids::{SessionId, Timestamp},
    limits,
};
use sqlx::{AssertSqlSafe, Connection as _};
use store::{
    control::removals::Removal,
    error::Error,
    session::{creation::NewSession, deletion::Tombstone, tree::children::Dispatch},
    tenant::projects::{Deletable, ProjectDeletion},
};
use testkit::{database::connect, sample::NOW};

/// Returns the statements of a deletion.
fn bury(session: &SessionId) -> String {
    format!(
        "insert into session_tombstone (tenant_id, session_id, project_id, event_seq, epoch, created_at)
         select tenant_id, id, project_id, 1, 0, created_at from session where id = '{session}';
         delete from session where id = '{session}'"
    )
}

fn sessions(gone: &[Tombstone]) -> Vec<SessionId> {
    gone.iter().map(|tombstone| tombstone.session.clone()).collect()
}

#[tokio::test]
async fn a_deletion_is_listed_with_all_its_sessions() {
    let mut world = World::new().await;
    let tenant = world.tenant;
    let (root, child, other) = (world.session().await, world.session().await, world.session().await);
    let below = format!(
        "update session set parent_id = '{root}', depth = 1, created_at = created_at + interval '1 second' where id = '{child}'"
    );
    world.sql(&below).await;
    let (before, _) = world.store.list_written(tenant, 0).await.unwrap();
    assert_eq!(world.store.list_deleted(tenant, 0).await.unwrap(), []);
    let head = world.store.get_head(tenant, &child).await.unwrap();
    let deletion = world.store.delete_session(tenant, &root).await.unwrap();
    assert_eq!(
        (deletion.parent.as_ref(), sessions(&deletion.tombstones)),
        (None, vec![child.clone(), root.clone()])
    );
    assert_eq!(
        world.store.list_deleted(tenant, before).await.unwrap(),
        deletion.tombstones,
        "children first"
    );
    assert!(!sessions(&deletion.tombstones).contains(&other));

    let event = deletion.tombstones[0].event();
    assert_eq!((event.seq, event.epoch, event.kind.as_str()), (head.seq + 1, head.epoch, "session.deleted"));
    assert!(event.id.starts_with("evt_") && event.id.len() == child.as_str().len());
    let properties: serde_json::Value = serde_json::from_str(&event.properties).unwrap();
    assert_eq!(
        (&properties["sessionID"], &properties["info"]["parentID"]),
        (&child.as_str().into(), &root.as_str().into())
    );
    assert_eq!(
        (&properties["info"]["title"], deletion.tombstones[0].directory.as_str()),
        (&"".into(), "sample")
    );
    assert!(deletion.tombstones.iter().all(|tombstone| tombstone.deleted_at > Timestamp(0)));
    assert_eq!(deletion.tombstones[0].event(), event, "the same in every list");
    let future = u64::try_from(i64::MAX).unwrap();
    assert_eq!(world.store.list_deleted(tenant, future).await.unwrap(), []);
}

#[tokio::test]
async fn a_deletion_that_commits_late_is_still_listed() {
    let mut world = World::new().await;
    let (tenant, session) = (world.tenant, world.session().await);
    let mut connection = connect(&world.database.migrator_url).await;
    let mut late = connection.begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(bury(&session))).execute(&mut *late).await.unwrap();
    let (meanwhile, _) = world.store.list_written(tenant, 0).await.unwrap();
    assert_eq!(world.store.list_deleted(tenant, 0).await.unwrap(), []);
    late.commit().await.unwrap();
    assert_eq!(sessions(&world.store.list_deleted(tenant, meanwhile).await.unwrap()), [session]);
}

#[tokio::test]
async fn old_deletions_are_forgotten() {
    let mut world = World::new().await;
    let tenant = world.tenant;
    let (old, recent) = (world.session().await, world.session().await);
    for session in [&old, &recent] {
        world.store.delete_session(tenant, session).await.unwrap();
    }
    assert_eq!(sessions(&world.store.list_deleted(tenant, 0).await.unwrap()), [old.clone(), recent.clone()]);
    for (session, age) in
        [(&old, limits::TOMBSTONE_KEPT_MS + 60_000), (&recent, limits::TOMBSTONE_KEPT_MS - 60_000)]
    {
        let sql = "update session_tombstone set deleted_at = now() - interval";
        world.sql(&format!("{sql} '{age} milliseconds' where session_id = '{session}'")).await;
    }
    assert_eq!(world.store.forget_deleted().await.unwrap(), 1);
    assert_eq!(sessions(&world.store.list_deleted(tenant, 0).await.unwrap()), [recent]);
}

#[tokio::test]
async fn the_id_of_a_deleted_session_is_refused_and_its_epochs_do_not_start_over() {
    let mut world = World::new().await;
    let (tenant, id) = (world.tenant, world.session().await);
    world.sql(&format!("update session_run set epoch = 41 where session_id = '{id}'")).await;
    world.store.delete_session(tenant, &id).await.unwrap();
    let new = NewSession { id: id.clone(), ..world.new_session() };
    let event = world.sample.event();
    let refused = world.store.create_session(tenant, &new, &event, NOW).await;
    assert!(matches!(refused, Err(Error::Deleted)), "{refused:?}");

    world.sql("update session_tombstone set deleted_at = now() - interval '8 days'").await;
    world.store.forget_deleted().await.unwrap();
    let refused = world.store.create_session(tenant, &new, &event, NOW).await;
    assert!(matches!(refused, Err(Error::Deleted)), "its files may still be there: {refused:?}");
    world.sql("update node_removal set next_at = now()").await;
    for removal in world.store.claim_removals(10).await.unwrap() {
        world.store.finish_removal(&removal).await.unwrap();
    }
    world.remove_rows(tenant).await;
    world.store.create_session(tenant, &new, &event, NOW).await.unwrap();
    let epoch = world.store.get_head(tenant, &id).await.unwrap().epoch;
    assert_eq!(epoch, 43, "the deletion fenced the sandbox with 42");
    assert_eq!(world.store.forget_deleted().await.unwrap(), 0);
}

#[tokio::test]
async fn a_child_begins_at_the_epochs_of_its_tenant_and_not_with_the_id_of_a_deleted_session() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    world.sql("update tenant set epoch_floor = 43").await;
    let (call, changes) = world.call(parent.session());
    let child = world.new_child(&call);
    let id = child.prompt.session_id.clone();
    let tombstone = format!(
        "insert into session_tombstone (tenant_id, session_id, project_id, event_seq, epoch, created_at)
         select tenant_id, '{id}', project_id, 1, 0, created_at from session limit 1"
    );
    world.sql(&tombstone).await;
    let fence = parent.next();
    let refused = world.store.dispatch_child(&fence, &changes, &child, Dispatch::New, NOW).await;
    assert!(matches!(refused, Err(Error::Deleted)), "{refused:?}");
    world.sql("delete from session_tombstone").await;
    world.store.dispatch_child(&fence, &changes, &child, Dispatch::New, NOW).await.unwrap();
    assert_eq!(world.store.get_head(world.tenant, &id).await.unwrap().epoch, 43);
}

#[tokio::test]
async fn a_deletion_is_listed_although_its_project_is_deleted_too() {
    let mut world = World::new().await;
    let (tenant, session) = (world.tenant, world.session().await);
    world.store.delete_session(tenant, &session).await.unwrap();
    let deleted = world.store.delete_project(tenant, &world.project, Deletable::All).await.unwrap();
    assert_eq!(deleted, ProjectDeletion::Deleted);
    let list = world.store.list_deleted(tenant, 0).await.unwrap();
    assert_eq!((sessions(&list), list[0].directory.as_str()), (vec![session], "sample"));
}

#[tokio::test]
async fn the_files_of_a_deleted_session_are_an_order_until_they_are_removed() {
    let mut world = World::new().await;
    let (tenant, root, child) = (world.tenant, world.session().await, world.session().await);
    let below = format!(
        "update session set parent_id = '{root}', depth = 1, created_at = created_at + interval '1 second' where id = '{child}'"
    );
    world.sql(&below).await;
    world.sql("update session_run set epoch = 7").await;
    let removals = world.store.delete_session(tenant, &root).await.unwrap().removals;
    assert!(removals.iter().all(|removal| removal.epoch == 8 && removal.tenant == tenant));
    assert_eq!(removals.iter().map(|removal| &removal.session).collect::<Vec<_>>(), [&child, &root]);
    assert_eq!(world.store.claim_removals(10).await.unwrap(), [], "the gateway tries first");

    world.sql("update node_removal set next_at = now()").await;
    let (one, two) = tokio::join!(world.store.claim_removals(1), world.store.claim_removals(1));
    let mut claimed = [one.unwrap(), two.unwrap()].concat();
    claimed.sort_by_key(|removal| removals.iter().position(|other| other == removal));
    assert_eq!(claimed, removals, "each worker gets others");
    assert_eq!(world.store.claim_removals(10).await.unwrap(), [], "each is put off");
    let pause = "select extract(epoch from max(next_at) - now())::bigint from node_removal";
    assert!((4..=5).contains(&world.number(pause).await));
    world.sql("update node_removal set next_at = now(), tries = 1000").await;
    assert_eq!(world.store.claim_removals(10).await.unwrap().len(), 2);
    assert!((599..=600).contains(&world.number(pause).await), "pauses are bounded");

    world.store.finish_removal(&Removal { epoch: 7, ..removals[0].clone() }).await.unwrap();
    world.store.finish_removal(&removals[1]).await.unwrap();
    world.sql("update node_removal set next_at = now()").await;
    assert_eq!(
        world.store.claim_removals(10).await.unwrap(),
        removals[..1],
        "another epoch is another removal"
    );
}

#[tokio::test]
async fn a_session_that_is_deleted_while_its_id_is_used_again_is_refused() {
    let mut world = World::new().await;
    let (tenant, id) = (world.tenant, world.session().await);
    let mut connection = connect(&world.database.migrator_url).await;
    let mut late = connection.begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(bury(&id))).execute(&mut *late).await.unwrap();
    let new = NewSession { id: id.clone(), ..world.new_session() };
    let (store, event) = (world.store.clone(), world.sample.event());
    let creating =
        tokio::spawn(async move { store.create_session(tenant, &new, &event, NOW).await.map(drop) });
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let mut observer = connect(&world.database.migrator_url).await;
    testkit::within("the creation waits for the deletion", async {
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut observer).await.unwrap() == 0 {}
    })
    .await;
    late.commit().await.unwrap();
    assert!(matches!(creating.await.unwrap(), Err(Error::Deleted)));
}
