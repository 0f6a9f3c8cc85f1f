//! Secrets: sealed bytes that only the broker's role reads, with versions that never repeat.

use crate::world::World;
use domain::{
    ids::{ProjectId, TenantId},
    limits::SECRETS_MAX,
    secret::SecretAddress,
    session::Source,
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use store::{
    Page,
    broker::{
        BrokerStore,
        keys::{KeyRecord, OlderSecret, SealedKey},
        secrets::{SealedSecret, SecretVersion},
    },
    error::{Entity, Error},
    tenant::secrets::Secret,
};
use testkit::database::connect;

/// Bytes that stand for a sealed value.
pub(crate) fn sealed(text: &str) -> SealedSecret {
    let bytes = text.as_bytes().to_vec();
    SealedSecret { key_id: "k1".to_owned(), sealed_key: bytes.clone(), ciphertext: bytes }
}

fn address(project: Option<&ProjectId>, name: &str) -> SecretAddress {
    SecretAddress { project: project.cloned(), name: name.parse().unwrap() }
}

async fn put(broker: &BrokerStore, tenant: TenantId, address: &SecretAddress, text: &str) -> Secret {
    let change = broker.begin_change(tenant, address.clone()).await.unwrap();
    let version = change.version();
    let secret = change.finish_change(&sealed(text), "ann").await.unwrap();
    assert_eq!((secret.version, &secret.address), (version, address));
    secret
}

fn broker(world: &World) -> BrokerStore {
    BrokerStore::connect(&world.database.broker_url, 2).unwrap()
}

/// The names and versions of a list, in its order.
fn names(secrets: &[Secret]) -> Vec<(String, u64)> {
    secrets.iter().map(|secret| (secret.cursor(), secret.version)).collect()
}

async fn refusal(connection: &mut PgConnection, sql: &str) -> Option<String> {
    let result = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await;
    result.err().and_then(|error| Some(error.as_database_error()?.code()?.into_owned()))
}

#[tokio::test]
async fn a_version_only_grows_also_when_a_secret_comes_back() {
    let world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    let (own, of_project) = (address(None, "TOKEN"), address(Some(&world.project), "TOKEN"));
    assert_eq!(put(&broker, tenant, &own, "one").await.version, 1);
    assert_eq!(put(&broker, tenant, &own, "two").await.version, 2);
    assert_eq!(put(&broker, tenant, &of_project, "three").await.version, 3);
    let used = broker.use_secret(tenant, &own).await.unwrap();
    assert_eq!(used, SecretVersion { version: 2, sealed: sealed("two") });

    let list = world.store.list_secrets(tenant, None, &Page::default()).await.unwrap();
    let scope = format!("{}/TOKEN", world.project.as_str());
    assert_eq!(names(&list), [("/TOKEN".to_owned(), 2), (scope.clone(), 3)]);
    assert_eq!((list[0].created_by.as_str(), list[0].last_used_at.is_some()), ("ann", true));
    assert_eq!(list[1].last_used_at, None);
    let page = Page { limit: 1, cursor: Some(list[0].cursor()) };
    let next = world.store.list_secrets(tenant, None, &page).await.unwrap();
    assert_eq!(names(&next), [(scope.clone(), 3)]);
    let only = world.store.list_secrets(tenant, Some(&world.project), &Page::default()).await.unwrap();
    assert_eq!(names(&only), [(scope, 3)]);

    let other = put(&broker, tenant, &address(None, "OTHER"), "other").await;
    let asked = ["OTHER", "TOKEN", "MISSING"].map(|name| name.parse().unwrap());
    let versions = world.store.find_secret_versions(tenant, &world.project, &asked).await.unwrap();
    let versions: Vec<_> = versions.iter().map(|(name, version)| (name.as_str(), *version)).collect();
    assert_eq!(versions, [("OTHER", other.version), ("TOKEN", 3)], "that of the project comes first");

    assert_eq!(world.store.delete_secret(tenant, &own).await.unwrap(), 2);
    assert!(matches!(world.store.delete_secret(tenant, &own).await, Err(Error::NotFound(Entity::Secret))));
    assert!(matches!(broker.use_secret(tenant, &own).await, Err(Error::NotFound(Entity::Secret))));
    let back = put(&broker, tenant, &own, "four").await;
    assert_eq!((back.version, back.last_used_at), (5, None));
    // A change that is given up stores nothing.
    drop(broker.begin_change(tenant, own.clone()).await.unwrap());
    assert_eq!(broker.use_secret(tenant, &own).await.unwrap().version, 5);
    broker.close().await;
}

#[tokio::test]
async fn secrets_go_with_their_project_and_their_tenant() {
    let mut world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    let (own, of_project) = (address(None, "TOKEN"), address(Some(&world.project), "TOKEN"));
    put(&broker, tenant, &own, "one").await;
    put(&broker, tenant, &of_project, "two").await;
    world.sql("update project set created_at = now() - interval '1 year'").await;
    assert_eq!(world.store.list_empty_projects(10).await.unwrap(), [], "a project with a secret is in use");
    assert!(world.store.delete_project(tenant, &world.project).await.unwrap());
    let list = world.store.list_secrets(tenant, None, &Page::default()).await.unwrap();
    assert_eq!(names(&list), [("/TOKEN".to_owned(), 1)]);
    let change = broker.begin_change(tenant, of_project.clone()).await.unwrap();
    let refused = change.finish_change(&sealed("x"), "ann").await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Project))), "{refused:?}");
    world.store.create_project(tenant, &world.project, "again", &Source::default()).await.unwrap();
    assert_eq!(
        put(&broker, tenant, &of_project, "two").await.version,
        3,
        "the refused change took no version"
    );

    world.store.delete_tenant(tenant).await.unwrap();
    assert_eq!(world.number("select count(*) from secret").await, 0, "at once, like its keys");
    world.store.finish_tenant_deletion(tenant).await.unwrap();
    assert_eq!(world.number("select count(*) from secret_counter").await, 0);
    let unknown = world.sample.tenant();
    let refused = broker.begin_change(unknown, own).await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Tenant))), "{refused:?}");
}

#[tokio::test]
async fn the_brokers_role_reaches_its_tables_and_one_tenant_at_a_time() {
    const NOT_ALLOWED: Option<&str> = Some("42501");
    let mut world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    let own = address(None, "TOKEN");
    put(&broker, tenant, &own, "one").await;
    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "second").await.unwrap();
    assert!(matches!(broker.use_secret(stranger, &own).await, Err(Error::NotFound(Entity::Secret))));
    // The project of another tenant.
    let foreign = broker.begin_change(stranger, address(Some(&world.project), "TOKEN")).await.unwrap();
    let refused = foreign.finish_change(&sealed("x"), "ann").await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Project))), "{refused:?}");

    let mut connection = connect(&world.database.broker_url).await;
    let row = sqlx::query("select count(*) from secret").fetch_one(&mut connection).await.unwrap();
    assert_eq!(row.get::<i64, _>(0), 0, "no tenant is chosen");
    for sql in [
        "select * from tenant",
        "select * from project",
        "select * from api_key",
        "select * from session",
        "delete from secret",
        "delete from secret_key",
        "delete from secret_counter",
        "set role flotilla_app",
    ] {
        assert_eq!(refusal(&mut connection, sql).await.as_deref(), NOT_ALLOWED, "{sql}");
    }
    // Gateways and workers see no sealed byte, and change nothing.
    for url in [&world.database.app_url, &world.database.system_url] {
        let mut connection = connect(url).await;
        for sql in [
            "select ciphertext from secret",
            "select sealed_key from secret",
            "select * from secret",
            "update secret set version = 9",
            "insert into secret (name) values ('X')",
            "set role flotilla_broker",
        ] {
            assert_eq!(refusal(&mut connection, sql).await.as_deref(), NOT_ALLOWED, "{sql}");
        }
    }
}

#[tokio::test]
async fn a_tenant_has_a_bounded_number_of_secrets() {
    let world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    let first = address(None, "A1");
    put(&broker, tenant, &first, "one").await;
    world
        .sql(&format!(
            "insert into secret (tenant_id, scope, name, version, key_id, sealed_key, ciphertext, created_by)
             select '{tenant}', '', 'A' || n, n, 'k1', '', '', 'ann' from generate_series(2, {SECRETS_MAX}) n"
        ))
        .await;
    let refused = broker.begin_change(tenant, address(None, "B")).await;
    assert!(matches!(refused, Err(Error::TooManySecrets(SECRETS_MAX))), "{refused:?}");
    put(&broker, tenant, &first, "another value of one that exists").await;
}

fn noted(key_id: &str, older: &[&str]) -> KeyRecord {
    KeyRecord { key_id: key_id.to_owned(), older_key_ids: owned(older) }
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn only_a_broker_with_all_keys_notes_another_one() {
    let world = World::new().await;
    let broker = broker(&world);
    let register =
        async |key_id: &str, further: &[&str]| broker.register_key(key_id, &owned(further)).await.unwrap();
    assert_eq!(broker.find_keys().await.unwrap(), None);
    assert_eq!(register("k1", &[]).await, noted("k1", &[]));
    assert_eq!(register("k2", &[]).await, noted("k1", &[]), "a broker without the key that seals");
    assert_eq!(register("k2", &["k1"]).await, noted("k2", &["k1"]));
    assert_eq!(register("k3", &["k2"]).await, noted("k2", &["k1"]), "a broker without an older key");
    assert_eq!(register("k3", &["k1", "k2"]).await, noted("k3", &["k1", "k2"]));
    assert_eq!(register("k1", &["k2", "k3"]).await, noted("k1", &["k2", "k3"]), "back to an older key");
    assert_eq!(register("k1", &["k2", "k3"]).await, noted("k1", &["k2", "k3"]));
    assert!(!broker.forget_older_keys(&noted("k1", &["k2"])).await.unwrap(), "another key is noted since");
    assert!(broker.forget_older_keys(&noted("k1", &["k2", "k3"])).await.unwrap());
    assert_eq!(broker.find_keys().await.unwrap(), Some(noted("k1", &[])));
}

#[tokio::test]
async fn keys_are_replaced_only_while_nothing_has_changed() {
    let world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    broker.register_key("k1", &[]).await.unwrap();
    let (own, of_project) = (address(None, "TOKEN"), address(Some(&world.project), "TOKEN"));
    for address in [&own, &of_project] {
        put(&broker, tenant, address, "one").await;
    }
    assert_eq!(broker.list_secret_tenants(None, 10).await.unwrap(), [tenant]);
    assert_eq!(broker.list_secret_tenants(Some(tenant), 10).await.unwrap(), []);
    assert_eq!(broker.list_older_secrets(tenant, "k1", &Page::default()).await.unwrap(), []);

    broker.register_key("k2", &owned(&["k1"])).await.unwrap();
    let older = broker.list_older_secrets(tenant, "k2", &Page::default()).await.unwrap();
    let key = SealedKey { key_id: "k1".to_owned(), bytes: b"one".to_vec() };
    let older_secret = |address: &SecretAddress, version| OlderSecret {
        address: address.clone(),
        version,
        key: key.clone(),
    };
    assert_eq!(older, [older_secret(&own, 1), older_secret(&of_project, 2)]);
    let page = Page { limit: 1, cursor: Some(older[0].cursor()) };
    assert_eq!(broker.list_older_secrets(tenant, "k2", &page).await.unwrap(), older[1..]);

    let new = SealedKey { key_id: "k2".to_owned(), bytes: b"two".to_vec() };
    let third = SealedKey { key_id: "k3".to_owned(), ..new.clone() };
    assert!(!broker.replace_key(tenant, &older[0], &third).await.unwrap(), "this key does not seal");
    assert!(broker.replace_key(tenant, &older[0], &new).await.unwrap());
    assert!(!broker.replace_key(tenant, &older[0], &new).await.unwrap(), "another broker was first");
    let used = broker.use_secret(tenant, &own).await.unwrap();
    let replaced = SealedSecret { key_id: "k2".to_owned(), sealed_key: b"two".to_vec(), ..sealed("one") };
    assert_eq!(used, SecretVersion { version: 1, sealed: replaced });
    put(&broker, tenant, &of_project, "newer").await;
    assert!(!broker.replace_key(tenant, &older[1], &new).await.unwrap(), "the value has changed");
    assert_eq!(broker.use_secret(tenant, &of_project).await.unwrap().sealed, sealed("newer"));
}

/// Otherwise a value could be sealed with a key that counts as no longer needed.
#[tokio::test]
async fn another_key_is_noted_when_changes_under_way_have_ended() {
    let world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    let others = self::broker(&world);
    others.register_key("k1", &[]).await.unwrap();
    let change = broker.begin_change(tenant, address(None, "TOKEN")).await.unwrap();
    assert_eq!(change.key_id(), Some("k1"));
    let mut change_of_key = Box::pin(async { others.register_key("k2", &owned(&["k1"])).await.unwrap() });
    let sql = "select count(*) from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock'";
    let wait = testkit::eventually("the change of the key waits", async || world.number(sql).await > 0);
    tokio::select! {
        record = &mut change_of_key => panic!("a change is under way: {record:?}"),
        () = wait => {}
    }
    change.finish_change(&sealed("one"), "ann").await.unwrap();
    assert_eq!(change_of_key.await, noted("k2", &["k1"]));
    let change = broker.begin_change(tenant, address(None, "TOKEN")).await.unwrap();
    assert_eq!(change.key_id(), Some("k2"));
}
