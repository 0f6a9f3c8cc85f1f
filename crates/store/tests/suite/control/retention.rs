//! How long sessions are kept.

use crate::world::World;
use domain::policy::role::Role;
use domain::{
    ids::SessionId,
    money::Tokens,
    session::{Origin, Source},
};
use std::collections::BTreeSet;
use store::{
    Page,
    control::{candidate::SessionRef, retention::ProjectRef, tenants::TenantPatch},
    log::record::Progress,
    people::environments::{NewDecision, NewProposal},
    tenant::retention::Retention,
};
use testkit::sample::NOW;

const FOR_EVER: Retention = Retention { idle_days: None, archived_days: None };

async fn expired(world: &World, platform: Retention) -> BTreeSet<SessionId> {
    let list = world.store.list_expired(platform, 10).await.unwrap();
    list.into_iter().map(|session| session.session).collect()
}

#[tokio::test]
async fn sessions_are_kept_for_as_long_as_their_tenant_or_the_platform_says() {
    let mut world = World::new().await;
    let (old, archived, recent) = (world.session().await, world.session().await, world.session().await);
    let age = async |session: &SessionId, column: &str, days: u32| {
        world
            .sql(&format!(
                "update session set {column} = now() - interval '{days} days' where id = '{session}'"
            ))
            .await;
    };
    age(&old, "updated_at", 100).await;
    age(&archived, "archived_at", 10).await;
    assert_eq!(expired(&world, FOR_EVER).await, [].into(), "by default");
    let platform = Retention { idle_days: Some(90), archived_days: Some(7) };
    assert_eq!(expired(&world, platform).await, [old.clone(), archived.clone()].into());
    assert_eq!(expired(&world, Retention { archived_days: None, ..platform }).await, [old.clone()].into());
    assert_eq!(expired(&world, Retention { idle_days: Some(101), archived_days: Some(11) }).await, [].into());

    let own = Retention { idle_days: Some(0), archived_days: Some(11) };
    let patch = TenantPatch { retention: own, ..TenantPatch::default() };
    assert_eq!(world.store.update_tenant(world.tenant, patch).await.unwrap().retention, own);
    assert_eq!(expired(&world, platform).await, [].into(), "the tenant's own numbers count");
    let own = Retention { idle_days: Some(50), archived_days: None };
    let patch = TenantPatch { retention: own, ..TenantPatch::default() };
    let tenant = world.store.update_tenant(world.tenant, patch).await.unwrap();
    assert_eq!(tenant.retention, Retention { idle_days: Some(50), archived_days: Some(11) });
    assert_eq!(expired(&world, FOR_EVER).await, [old].into());
    assert!(!expired(&world, FOR_EVER).await.contains(&recent));
}

#[tokio::test]
async fn only_an_idle_tree_that_nobody_uses_is_deleted() {
    let mut world = World::new().await;
    let mut actor = world.actor().await;
    let (_, child) = world.child(&mut actor).await;
    let tenant = world.tenant;
    let root = SessionRef { tenant, session: actor.session().clone() };
    let platform = Retention { idle_days: Some(1), archived_days: None };
    world.sql("update session set updated_at = now() - interval '2 days'").await;
    let expire = async || world.store.expire_session(&root, platform).await.unwrap();
    assert_eq!((expired(&world, platform).await, expire().await), ([].into(), None), "it runs");
    world.sql(&format!("update session_run set phase = 0 where session_id = '{}'", root.session)).await;
    assert_eq!((expired(&world, platform).await, expire().await), ([].into(), None), "its subtask has work");
    world.sql("update session_run set phase = 0").await;
    assert_eq!(expired(&world, platform).await, [root.session.clone()].into(), "roots only");
    // Somebody uses it after it was listed.
    world.sql("update session set updated_at = now()").await;
    assert_eq!(expire().await, None);
    world.sql("update session set updated_at = now() - interval '2 days'").await;
    let deletion = expire().await.unwrap();
    let gone: Vec<_> = deletion.tombstones.iter().map(|tombstone| &tombstone.session).collect();
    assert_eq!(gone, [child.session(), &root.session]);
    assert_eq!(deletion.removals.len(), 2);
    assert_eq!(world.store.list_deleted(tenant, 0).await.unwrap(), deletion.tombstones);
}

#[tokio::test]
async fn empty_projects_and_revoked_keys_are_forgotten_after_a_while() {
    let mut world = World::new().await;
    let (store, tenant) = (world.store.clone(), world.tenant);
    let mut project = async |name: &str, source: &Source| {
        let id = world.sample.project();
        store.create_project(tenant, &id, name, source).await.unwrap();
        id
    };
    let sourced = Source { origin: Origin::GitUrl("https://a.example/b".to_owned()), ..Source::default() };
    let [empty, with_source, with_settings, with_environment, recent] = [
        project("empty", &Source::default()).await,
        project("source", &sourced).await,
        project("settings", &Source::default()).await,
        project("environment", &Source::default()).await,
        project("recent", &Source::default()).await,
    ];
    store.put_settings(tenant, Some(&with_settings), "{}", "ann").await.unwrap();
    // The world's own project has a session.
    let session = world.session().await;
    for project in [&with_environment, &empty] {
        let new = NewProposal {
            project,
            session: &session,
            file: "f",
            document: "{}",
            unused: &[],
            repository: None,
        };
        let digest = &store.propose_environment(tenant, new).await.unwrap().digest;
        let decision = NewDecision { project, digest, is_allowed: *project != empty, by: "ann" };
        store.decide_environment(tenant, decision).await.unwrap();
    }
    let old = "now() - interval '91 days'";
    world
        .sql(&format!("update project set created_at = {old}, updated_at = {old} where id <> '{recent}'"))
        .await;
    let listed = store.list_empty_projects(10).await.unwrap();
    assert_eq!(listed, [ProjectRef { tenant, project: empty }], "not {with_source}");

    for (prefix, revoked) in [("a", old), ("b", "now()"), ("c", "null")] {
        store.create_key(tenant, prefix, prefix.as_bytes(), prefix, Role::Admin).await.unwrap();
        world.sql(&format!("update api_key set revoked_at = {revoked} where prefix = '{prefix}'")).await;
    }
    assert_eq!(store.forget_revoked_keys().await.unwrap(), 1);
    let left = store.list_keys(tenant, &Page::default()).await.unwrap();
    assert_eq!(left.iter().map(|key| key.prefix.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[tokio::test]
async fn costs_of_deleted_sessions_are_forgotten_after_more_than_a_year() {
    let mut world = World::new().await;
    let (kept, deleted) = (world.running().await, world.running().await);
    for running in [&kept, &deleted] {
        let spend = world.spend(Tokens::default(), 1);
        world.store.append(&running.write(1), &[spend], 0, Progress::None, NOW).await.unwrap();
    }
    world.store.delete_session(world.tenant, &deleted.session).await.unwrap();
    assert_eq!(world.store.forget_old_costs(10).await.unwrap(), 0, "they are young");
    world.sql("update ledger set created_at = now() - interval '401 days'").await;
    assert_eq!(world.store.forget_old_costs(10).await.unwrap(), 1);
    let left = format!("select count(*) from ledger where session_id = '{}'", kept.session);
    assert_eq!((world.number("select count(*) from ledger").await, world.number(&left).await), (1, 1));
}
