//! The audit: each change leaves a line, in its transaction and in the name of its actor.

use crate::world::World;
use domain::{policy::role::Role, project::ProjectDisplay, session::Source};
use sqlx::AssertSqlSafe;
use store::{
    Actor, Page, Store,
    audit::{AuditEntry, AuditScope},
    control::tenants::TenantPatch,
    tenant::projects::Deletable,
};
use testkit::database::connect;

fn anna() -> Actor {
    Actor { name: "anna".to_owned(), key: "flk_anna".to_owned() }
}

async fn lines(store: &Store, scope: AuditScope) -> Vec<AuditEntry> {
    store.list_audit(scope, &Page { limit: 200, cursor: None }).await.unwrap()
}

#[tokio::test]
async fn each_change_leaves_a_line_of_its_actor() {
    let mut world = World::new().await;
    let (tenant, session) = (world.tenant, world.session().await);
    let (store, project) = (world.store.acting(anna()), world.sample.project());
    store.create_key(tenant, "fl_abc", &[7; 32], "laptop", Role::Viewer).await.unwrap();
    store.revoke_key(tenant, "fl_abc").await.unwrap();
    store.revoke_key(tenant, "fl_abc").await.unwrap();
    for document in ["{}", "{}", "{\"a\": 1}"] {
        store.put_settings(tenant, None, document, "anna").await.unwrap();
    }
    store.delete_settings(tenant, None).await.unwrap();
    store.create_project(tenant, &project, "app", &Source::default()).await.unwrap();
    store.create_project(tenant, &project, "app", &Source::default()).await.unwrap();
    let shown = ProjectDisplay { name: Some("App".to_owned()), ..ProjectDisplay::default() };
    store.update_project(tenant, &project, |_| Some(shown)).await.unwrap();
    store.put_settings(tenant, Some(&project), "{}", "anna").await.unwrap();
    store.delete_project(tenant, &project, Deletable::All).await.unwrap();
    store.set_budget(tenant, &session, None, "one").await.unwrap();
    store.delete_session(tenant, &session).await.unwrap();
    store.update_tenant(tenant, TenantPatch { weight: Some(7), ..TenantPatch::default() }).await.unwrap();
    let mut all = lines(&world.store, AuditScope::Tenant(tenant)).await;
    all.retain(|line| line.actor == anna());
    all.reverse();
    let of_project = format!("{project} app");
    let got: Vec<(&str, &str)> = all.iter().map(|line| (&*line.action, &*line.object)).collect();
    let want = [
        ("key.create", "fl_abc viewer laptop"),
        ("key.update", "fl_abc viewer laptop"),
        ("settings.create", ""),
        ("settings.update", ""),
        ("settings.delete", ""),
        ("project.create", &of_project),
        ("project.update", &of_project),
        ("settings.create", project.as_str()),
        ("settings.delete", project.as_str()),
        ("project.delete", &of_project),
        ("budget.update", &format!("{session} without a limit")),
        ("session.delete", session.as_str()),
        ("tenant.update", &all.last().unwrap().object),
    ];
    assert_eq!(got, want);
    let hashes = |line: &AuditEntry| (line.before_sha256.is_some(), line.after_sha256.is_some());
    assert_eq!([&all[0], &all[1], &all[4]].map(hashes), [(false, true), (true, true), (true, false)]);
    assert_eq!(all[0].after_sha256, all[1].before_sha256);
    // The hash is that of the row as Postgres shows it.
    assert!(all.iter().all(|line| line.at.0 > 0 && line.tenant == Some(tenant)), "{all:?}");
}

#[tokio::test]
async fn a_change_that_fails_leaves_no_line_and_nobody_changes_a_line() {
    let world = World::new().await;
    let (tenant, store) = (world.tenant, world.store.acting(anna()));
    let before = lines(&store, AuditScope::Tenant(tenant)).await;
    store.create_key(tenant, "fl_abc", &[7; 32], "laptop", Role::Admin).await.unwrap();
    store.create_key(tenant, "fl_abc", &[8; 32], "copy", Role::Admin).await.unwrap_err();
    store.revoke_key(tenant, "fl_none").await.unwrap_err();
    assert_eq!(store.ask_drain("nobody", true).await.unwrap(), 0);
    let drains = lines(&store, AuditScope::Deployment).await;
    assert!(!drains.iter().any(|line| line.action == "worker.drain"), "there is no such worker: {drains:?}");
    assert_eq!(lines(&store, AuditScope::Tenant(tenant)).await.len(), before.len() + 1);
    let mut app = connect(&world.database.app_url).await;
    let mut system = connect(&world.database.system_url).await;
    for statement in ["update audit set actor = 'x'", "delete from audit", "truncate audit"] {
        let error = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut system).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("42501"), "{statement}");
    }
    assert_eq!(store.forget_audit(100).await.unwrap(), 0, "no line is old");
    for (statement, code) in [
        ("select forget_audit(1)", "42501"),
        ("update audit set actor = 'x'", "42501"),
        ("delete from audit", "42501"),
        (
            "insert into audit (tenant_id, actor, action, object) values (gen_random_uuid(), 'x', 'x', 'x')",
            "42501",
        ),
    ] {
        let error = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut app).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some(code), "{statement}");
    }
}

#[tokio::test]
async fn the_upkeep_of_tombstones_changes_no_tenant() {
    let mut world = World::new().await;
    let (tenant, session) = (world.tenant, world.session().await);
    world.store.delete_session(tenant, &session).await.unwrap();
    world.sql("update session_tombstone set deleted_at = now() - interval '1 year'").await;
    assert_eq!(world.store.forget_deleted().await.unwrap(), 1);
    let lines = lines(&world.store, AuditScope::Tenant(tenant)).await;
    assert!(!lines.iter().any(|line| line.action == "tenant.update"), "{lines:?}");
}

#[tokio::test]
async fn a_tenant_sees_its_own_lines_and_the_deployment_all() {
    let mut world = World::new().await;
    let (tenant, other) = (world.tenant, world.sample.tenant());
    let store = world.store.acting(anna());
    store.create_tenant(other, "second").await.unwrap();
    store.create_key(other, "fl_abc", &[7; 32], "theirs", Role::Admin).await.unwrap();
    store.note_action(tenant, "session.push_begin", "ses_1 https://h/r agent/x").await.unwrap();
    store.note_refused_keys(&[("flk_bad".to_owned(), 3)]).await.unwrap();
    let of = |lines: Vec<AuditEntry>| -> Vec<String> { lines.into_iter().map(|line| line.object).collect() };
    let theirs = of(lines(&store, AuditScope::Tenant(other)).await);
    assert_eq!(theirs, ["fl_abc admin theirs", "second"]);
    let ours = of(lines(&store, AuditScope::Tenant(tenant)).await);
    assert_eq!(ours.first().map(String::as_str), Some("ses_1 https://h/r agent/x"));
    assert!(!ours.iter().any(|object| theirs.contains(object)), "{ours:?}");
    let all = of(lines(&store, AuditScope::Deployment).await);
    assert!(
        all.contains(&"flk_bad… 3 times".to_owned()) && theirs.iter().all(|line| all.contains(line)),
        "{all:?}"
    );
    world.sql("update audit set at = now() - interval '2 years' where object = 'second'").await;
    assert_eq!(store.forget_audit(10).await.unwrap(), 1);
    let page = Page { limit: 1, cursor: None };
    let first = store.list_audit(AuditScope::Deployment, &page).await.unwrap().pop().unwrap();
    let next = Page { limit: 1, cursor: Some(first.seq.to_string()) };
    let second = store.list_audit(AuditScope::Deployment, &next).await.unwrap().pop().unwrap();
    assert!(second.seq < first.seq, "{second:?}");
}
