//! What workers do for all tenants from time to time: chores, the comparison with the sandbox, and the deletion of tenants.

use crate::world::World;
use domain::ids::TenantId;
use domain::policy::role::Role;
use store::{
    Page,
    control::{candidate::SessionRef, retention::ProjectRef, workspaces::StoredFiles},
    error::{Entity, Error},
};

#[tokio::test]
async fn a_chore_is_done_by_one_worker_in_each_period() {
    let world = World::new().await;
    let claim = async |name| world.store.claim_chore(name, 3_600_000).await.unwrap();
    let (one, two) = tokio::join!(claim("first"), claim("first"));
    assert!(one != two, "one of two");
    assert!(claim("second").await, "another chore");
    assert!(!claim("first").await);
    world.sql("update chore set next_at = now() where name = 'first'").await;
    assert!(claim("first").await);
    world.sql("update chore set next_at = now() + interval '2 hours'").await;
    assert!(claim("first").await, "the clock was set back");
}

#[tokio::test]
async fn files_without_a_session_are_orders_and_sessions_without_files_are_found() {
    let mut world = World::new().await;
    let (store, tenant) = (world.store.clone(), world.tenant);
    let (opened, restarted, plain) = (world.session().await, world.session().await, world.session().await);
    for session in [&opened, &restarted] {
        store.note_workspace(tenant, session).await.unwrap();
    }
    let of = |session: &domain::ids::SessionId| SessionRef { tenant, session: session.clone() };
    let first = store.list_opened(None, 1).await.unwrap();
    let rest = store.list_opened(first.last(), 10).await.unwrap();
    let mut listed = [first, rest].concat();
    listed.sort_by_key(|at| at.session == restarted);
    assert_eq!(listed, [of(&opened), of(&restarted)]);
    world.sql(&format!("update session set has_workspace = false where id = '{restarted}'")).await;
    let missing = [of(&opened), of(&restarted), of(&plain)];
    assert_eq!(store.find_opened(&missing).await.unwrap(), [of(&opened)]);

    let (gone, deleted) = (world.sample.session(), world.session().await);
    store.delete_session(tenant, &deleted).await.unwrap();
    let stranger = SessionRef { tenant: world.sample.tenant(), session: opened.clone() };
    let files = [of(&opened), of(&gone), of(&deleted), stranger.clone()];
    let files = files.map(|owner| StoredFiles { owner, epoch: 7 });
    assert_eq!(store.order_orphans(&files).await.unwrap(), 2, "the deletion has ordered its own");
    assert_eq!(store.order_orphans(&files).await.unwrap(), 0);
    let mut removals = store.claim_removals(10).await.unwrap();
    removals.sort_by_key(|removal| removal.session == opened);
    let found: Vec<_> = removals.iter().map(|it| (it.tenant, it.session.clone(), it.epoch)).collect();
    assert_eq!(found, [(tenant, gone, 8), (stranger.tenant, opened, 8)]);
}

#[tokio::test]
async fn projects_that_do_not_exist_are_found() {
    let mut world = World::new().await;
    let known = ProjectRef { tenant: world.tenant, project: world.project.clone() };
    let foreign = ProjectRef { tenant: world.sample.tenant(), ..known.clone() };
    let missing = world.store.find_missing_projects(&[known, foreign.clone()]).await.unwrap();
    assert_eq!(missing, [foreign]);
}

/// Rows of a tenant, in all tables but the audit, which outlives it.
async fn rows_of(world: &World, tenant: TenantId) -> i64 {
    let tables = "select string_agg(format('select count(*) from %I t where t::text like %L', relname, '%TENANT%'), ' union all ')
                    from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace and relname <> 'audit'";
    let uuid = tenant.0.hyphenated().to_string();
    let mut connection = testkit::database::connect(&world.database.migrator_url).await;
    let counts: String = sqlx::query_scalar(sqlx::AssertSqlSafe(tables.replace("TENANT", &uuid)))
        .fetch_one(&mut connection)
        .await
        .unwrap();
    world.number(&format!("select sum(count)::bigint from ({counts}) all_tables")).await
}

#[tokio::test]
async fn a_deleted_tenant_is_unknown_at_once_and_its_rows_go_in_batches() {
    let mut world = World::new().await;
    let (store, tenant) = (world.store.clone(), world.tenant);
    let mut actor = world.actor().await;
    let (_, child) = world.child(&mut actor).await;
    let spend = world.spend(domain::money::Tokens::default(), 1);
    let fence = actor.next();
    store
        .append(&fence, &[spend], 0, store::log::record::Progress::None, testkit::sample::NOW)
        .await
        .unwrap();
    let gone = world.session().await;
    store.delete_session(tenant, &gone).await.unwrap();
    store.create_key(tenant, "fl_abc", &[7; 32], "laptop", Role::Admin).await.unwrap();
    store.put_settings(tenant, None, "{}", "ann").await.unwrap();
    let upload = store.begin_upload(tenant).await.unwrap();
    store.put_upload_piece(&upload, 0, b"data").await.unwrap();
    let early = store.finish_tenant_deletion(tenant).await;
    assert!(matches!(early, Err(Error::NotFound(Entity::Tenant))), "it is not deleted: {early:?}");
    assert_eq!(store.delete_tenant_rows(tenant).await.unwrap(), 0);

    store.delete_tenant(tenant).await.unwrap();
    for result in [store.delete_tenant(tenant).await, store.get_tenant(tenant).await.map(drop)] {
        assert!(matches!(result, Err(Error::NotFound(Entity::Tenant))), "{result:?}");
    }
    assert!(store.find_key(&[7; 32]).await.unwrap().is_none());
    assert_eq!(store.list_tenants(&Page::default()).await.unwrap(), []);
    let other = world.sample.tenant();
    assert_eq!(store.create_tenant(other, "first").await.unwrap().id, other, "the name is free");

    assert_eq!(store.list_deleted_tenants(10).await.unwrap(), [tenant]);
    assert_eq!(store.list_roots(tenant, 10).await.unwrap(), [actor.session().clone()]);
    let deletion = store.delete_session(tenant, actor.session()).await.unwrap();
    assert!(deletion.tombstones.iter().any(|tombstone| tombstone.session == *child.session()));
    assert_eq!(store.list_roots(tenant, 10).await.unwrap(), []);
    // A bundle, a ledger entry, three tombstones.
    assert_eq!(store.delete_tenant_rows(tenant).await.unwrap(), 5);
    assert_eq!(store.delete_tenant_rows(tenant).await.unwrap(), 0);
    assert!(store.has_row_removals(tenant).await.unwrap());
    for _ in 0..3 {
        assert!(store.remove_rows(tenant).await.unwrap().is_some());
    }
    assert!(!store.has_row_removals(tenant).await.unwrap());
    store.finish_tenant_deletion(tenant).await.unwrap();
    assert_eq!(store.list_deleted_tenants(10).await.unwrap(), []);
    assert_eq!(rows_of(&world, tenant).await, 1, "the order to remove its files");
    assert_eq!(store.claim_removals(10).await.unwrap(), []);
    assert_eq!(store.claim_tenant_removals(10).await.unwrap(), [tenant]);
    assert_eq!(store.claim_tenant_removals(10).await.unwrap(), [], "put off");
    store.finish_tenant_removal(tenant).await.unwrap();
    assert_eq!(rows_of(&world, tenant).await, 0);
    assert!(rows_of(&world, other).await > 0, "other tenants keep theirs");
}
