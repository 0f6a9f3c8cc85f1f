//! Secrets: sealed bytes that only the broker's role reads, with versions that never repeat.

use crate::world::World;
use domain::{
    ids::{ProjectId, TenantId},
    limits::SECRETS_MAX,
    secret::SecretAddress,
    session::Source,
};
use futures::future::join_all;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use store::{
    Actor, Page,
    broker::{
        BrokerStore,
        keys::{KeyRecord, OlderSecret, SealedKey},
        secrets::{SealedSecret, SecretVersion},
    },
    error::{Entity, Error},
    tenant::{
        projects::{Deletable, ProjectDeletion},
        secrets::Secret,
    },
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
    let version = broker.begin_change(tenant, address).await.unwrap().version;
    let secret = finish(broker, tenant, address, &value(version, text)).await.unwrap().unwrap();
    assert_eq!((secret.version, &secret.address), (version, address));
    secret
}

fn value(version: u64, text: &str) -> SecretVersion {
    SecretVersion { version, sealed: sealed(text), urls: vec![] }
}

async fn finish(
    broker: &BrokerStore,
    tenant: TenantId,
    address: &SecretAddress,
    value: &SecretVersion,
) -> Result<Option<Secret>, Error> {
    broker
        .finish_change(tenant, address, value, &Actor { name: "ann".to_owned(), key: "flk_ann".to_owned() })
        .await
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
async fn a_next_version_is_for_the_servers_of_the_one_before_unless_it_names_others() {
    let world = World::new().await;
    let (broker, tenant, own) = (broker(&world), world.tenant, address(None, "TOKEN"));
    let (one, other) = ("https://github.com/acme/".to_owned(), "https://ghcr.io/".to_owned());
    for (version, urls, want) in [
        (1, vec![], vec![]),
        (2, vec![one.clone()], vec![one.clone()]),
        (3, vec![], vec![one.clone()]),
        (4, vec![other.clone(), one.clone()], vec![other, one]),
    ] {
        assert_eq!(broker.begin_change(tenant, &own).await.unwrap().version, version);
        let change = SecretVersion { urls, ..value(version, "text") };
        let stored = finish(&broker, tenant, &own, &change).await.unwrap().unwrap();
        let listed = world.store.list_secrets(tenant, None, &Page::default()).await.unwrap();
        let used = broker.use_secret(tenant, &own).await.unwrap();
        assert_eq!([&stored.urls, &listed[0].urls, &used.urls], [&want; 3], "{version}");
    }
    // After a deletion it begins anew.
    world.store.delete_secret(tenant, &own).await.unwrap();
    assert_eq!(put(&broker, tenant, &own, "new").await.urls, Vec::<String>::new());
    broker.close().await;
}

#[tokio::test]
async fn no_version_is_used_twice_also_when_a_secret_comes_back() {
    let world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    let (own, of_project) = (address(None, "TOKEN"), address(Some(&world.project), "TOKEN"));
    assert_eq!(put(&broker, tenant, &own, "one").await.version, 1);
    assert_eq!(put(&broker, tenant, &own, "two").await.version, 2);
    assert_eq!(put(&broker, tenant, &of_project, "three").await.version, 3);
    let used = broker.use_secret(tenant, &own).await.unwrap();
    assert_eq!(used, value(2, "two"));

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
    assert_eq!(broker.begin_change(tenant, &own).await.unwrap().version, 6);
    assert_eq!(broker.use_secret(tenant, &own).await.unwrap().version, 5);
    // A later change replaces one that ends after it.
    assert_eq!(put(&broker, tenant, &own, "seven").await.version, 7);
    let replaced = finish(&broker, tenant, &own, &value(6, "six")).await.unwrap();
    assert_eq!(replaced.map(|secret| secret.version), Some(6));
    assert_eq!(broker.use_secret(tenant, &own).await.unwrap(), value(7, "seven"));
    broker.close().await;
}

#[tokio::test]
async fn all_people_who_set_one_secret_at_once_succeed() {
    let world = World::new().await;
    let (broker, tenant, own) = (&broker(&world), world.tenant, &address(None, "TOKEN"));
    let puts = (1..=8)
        .map(|number: u64| async move { put(broker, tenant, own, &format!("value {number}")).await.version });
    let mut versions = join_all(puts).await;
    versions.sort_unstable();
    assert_eq!(versions, Vec::from_iter(1..=8));
    assert_eq!(broker.use_secret(tenant, own).await.unwrap().version, 8, "the change that began last");
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
    let kept = world.store.delete_project(tenant, &world.project, Deletable::Unconfigured).await.unwrap();
    assert_eq!(kept, ProjectDeletion::IsConfigured);
    let deleted = world.store.delete_project(tenant, &world.project, Deletable::All).await.unwrap();
    assert_eq!(deleted, ProjectDeletion::Deleted);
    let list = world.store.list_secrets(tenant, None, &Page::default()).await.unwrap();
    assert_eq!(names(&list), [("/TOKEN".to_owned(), 1)]);
    let version = broker.begin_change(tenant, &of_project).await.unwrap().version;
    let refused = finish(&broker, tenant, &of_project, &value(version, "x")).await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Project))), "{refused:?}");
    world.store.create_project(tenant, &world.project, "again", &Source::default()).await.unwrap();
    assert_eq!(put(&broker, tenant, &of_project, "two").await.version, version + 1);

    world.store.delete_tenant(tenant).await.unwrap();
    assert_eq!(world.number("select count(*) from secret").await, 0, "at once, like its keys");
    world.store.finish_tenant_deletion(tenant).await.unwrap();
    assert_eq!(world.number("select count(*) from secret_counter").await, 0);
    let unknown = world.sample.tenant();
    let refused = broker.begin_change(unknown, &own).await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Tenant))), "{refused:?}");
    let refused = finish(&broker, tenant, &own, &value(9, "late")).await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Tenant))), "deleted meanwhile: {refused:?}");
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
    let foreign = address(Some(&world.project), "TOKEN");
    let version = broker.begin_change(stranger, &foreign).await.unwrap().version;
    let refused = finish(&broker, stranger, &foreign, &value(version, "x")).await;
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
    let (first, late) = (address(None, "A1"), address(None, "B"));
    put(&broker, tenant, &first, "one").await;
    let version = broker.begin_change(tenant, &late).await.unwrap().version;
    world
        .sql(&format!(
            "insert into secret (tenant_id, scope, name, version, key_id, sealed_key, ciphertext, created_by)
             select '{tenant}', '', 'A' || n, n, 'k1', '', '', 'ann' from generate_series(2, {SECRETS_MAX}) n"
        ))
        .await;
    let refused = broker.begin_change(tenant, &late).await;
    assert!(matches!(refused, Err(Error::TooManySecrets(SECRETS_MAX))), "{refused:?}");
    let refused = finish(&broker, tenant, &late, &value(version, "x")).await;
    assert!(matches!(refused, Err(Error::TooManySecrets(SECRETS_MAX))), "it began before: {refused:?}");
    put(&broker, tenant, &first, "another value of one that exists").await;
}

/// The key that seals, and the older ones.
fn keys(record: &KeyRecord) -> (&str, Vec<&str>) {
    (&record.key_id, record.older_key_ids.iter().map(String::as_str).collect())
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn canary(key_id: &str) -> SealedKey {
    SealedKey { key_id: key_id.to_owned(), bytes: format!("by {key_id}").into_bytes() }
}

async fn register(broker: &BrokerStore, key_id: &str, further: &[&str]) -> KeyRecord {
    broker.register_key(&canary(key_id), &owned(further)).await.unwrap()
}

#[tokio::test]
async fn only_a_broker_with_all_keys_notes_another_one() {
    let world = World::new().await;
    let broker = broker(&world);
    assert_eq!(broker.find_keys().await.unwrap(), None);
    assert_eq!(keys(&register(&broker, "k1", &[]).await), ("k1", vec![]));
    assert_eq!(
        keys(&register(&broker, "k2", &[]).await),
        ("k1", vec![]),
        "a broker without the key that seals"
    );
    assert_eq!(keys(&register(&broker, "k2", &["k1"]).await), ("k2", vec!["k1"]));
    assert_eq!(
        keys(&register(&broker, "k3", &["k2"]).await),
        ("k2", vec!["k1"]),
        "a broker without an older key"
    );
    assert_eq!(keys(&register(&broker, "k3", &["k1", "k2"]).await), ("k3", vec!["k1", "k2"]));
    assert_eq!(keys(&register(&broker, "k1", &["k2", "k3"]).await), ("k1", vec!["k2", "k3"]), "back");
    let noted = register(&broker, "k1", &["k2", "k3"]).await;
    assert_eq!(noted.key_ids().collect::<Vec<_>>(), ["k1", "k2", "k3"]);
    assert_eq!(noted.canaries, ["k1", "k2", "k3"].map(canary));
    assert!(broker.forget_older_keys(&noted).await.unwrap());
    let left = KeyRecord { older_key_ids: vec![], canaries: vec![canary("k1")], ..noted };
    assert_eq!(broker.find_keys().await.unwrap(), Some(left));
}

#[tokio::test]
async fn the_first_canary_of_a_key_stays() {
    let world = World::new().await;
    let broker = broker(&world);
    register(&broker, "k1", &[]).await;
    let of_another = SealedKey { bytes: b"by a key of the same name".to_vec(), ..canary("k1") };
    let noted = broker.register_key(&of_another, &[]).await.unwrap();
    assert_eq!(noted.canaries, [canary("k1")]);
    register(&broker, "k2", &[]).await;
    let noted = broker.find_keys().await.unwrap().unwrap();
    assert_eq!(noted.canaries, [canary("k1")], "the other one is not noted");
    for canary in [canary("k2"), SealedKey { bytes: b"another key".to_vec(), ..canary("k2") }] {
        broker.keep_canary(&canary).await.unwrap();
    }
    let noted = broker.find_keys().await.unwrap().unwrap();
    assert_eq!(noted.canaries, [canary("k1"), canary("k2")]);
}

/// A broker with the old settings may restart in the middle of a pass.
#[tokio::test]
async fn keys_that_seal_in_between_are_not_forgotten() {
    let world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    register(&broker, "k1", &[]).await;
    register(&broker, "k2", &["k1"]).await;
    let read = broker.find_keys().await.unwrap().unwrap();
    register(&broker, "k1", &["k2"]).await;
    let own = address(None, "TOKEN");
    put(&broker, tenant, &own, "sealed with k1").await;
    let again = register(&broker, "k2", &["k1"]).await;
    assert_eq!((&again.key_id, &again.older_key_ids), (&read.key_id, &read.older_key_ids));
    assert!(!broker.forget_older_keys(&read).await.unwrap(), "k1 has sealed meanwhile");
    let noted = broker.find_keys().await.unwrap();
    assert_eq!(noted.as_ref(), Some(&again));
    assert_eq!(broker.use_secret(tenant, &own).await.unwrap().sealed.key_id, "k1");
    assert!(broker.forget_older_keys(&again).await.unwrap());
}

#[tokio::test]
async fn keys_are_replaced_only_while_nothing_has_changed() {
    let world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    register(&broker, "k1", &[]).await;
    let (own, of_project) = (address(None, "TOKEN"), address(Some(&world.project), "TOKEN"));
    for address in [&own, &of_project] {
        put(&broker, tenant, address, "one").await;
    }
    assert_eq!(broker.list_secret_tenants(None, 10).await.unwrap(), [tenant]);
    assert_eq!(broker.list_secret_tenants(Some(tenant), 10).await.unwrap(), []);
    assert_eq!(broker.list_older_secrets(tenant, "k1", &Page::default()).await.unwrap(), []);

    register(&broker, "k2", &["k1"]).await;
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
    assert_eq!(used, SecretVersion { version: 1, sealed: replaced, urls: vec![] });
    let change = broker.begin_change(tenant, &of_project).await.unwrap();
    assert_eq!(change.key_id.as_deref(), Some("k2"));
    let newer = SealedSecret { key_id: "k2".to_owned(), ..sealed("newer") };
    let newer = SecretVersion { version: change.version, sealed: newer, urls: vec![] };
    finish(&broker, tenant, &of_project, &newer).await.unwrap().unwrap();
    assert!(!broker.replace_key(tenant, &older[1], &new).await.unwrap(), "the value has changed");
    assert_eq!(broker.use_secret(tenant, &of_project).await.unwrap(), newer);
}

#[tokio::test]
async fn one_broker_has_the_right_to_seal_again_until_it_ends() {
    let world = World::new().await;
    let (one, other) = (broker(&world), broker(&world));
    let claim = one.claim_reseal().await.unwrap();
    assert!(claim.is_some());
    assert!(other.claim_reseal().await.unwrap().is_none());
    // Neither needs the connections of its pool for it.
    one.close().await;
    assert!(other.claim_reseal().await.unwrap().is_none());
    drop(claim);
    let is_free = async || other.claim_reseal().await.unwrap().is_some();
    testkit::eventually("the right is free", is_free).await;
}

/// Otherwise a value could be sealed with a key that counts as no longer needed.
#[tokio::test]
async fn another_key_is_noted_when_changes_under_way_have_ended() {
    let world = World::new().await;
    let (broker, tenant) = (broker(&world), world.tenant);
    let (others, own) = (self::broker(&world), address(None, "TOKEN"));
    register(&others, "k1", &[]).await;
    put(&broker, tenant, &own, "one").await;
    let change = broker.begin_change(tenant, &own).await.unwrap();
    assert_eq!(change.key_id.as_deref(), Some("k1"));
    // Holds the change up after it has read the key.
    let mut holder = connect(&world.database.migrator_url).await;
    sqlx::raw_sql("begin; select version from secret for update").execute(&mut holder).await.unwrap();
    let sql = "select count(*) from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock'";
    let wait = async |count: i64| {
        testkit::eventually("they wait", async || world.number(sql).await >= count).await;
    };
    let two = value(change.version, "two");
    let end_change = finish(&broker, tenant, &own, &two);
    let change_key = async {
        wait(1).await;
        register(&others, "k2", &["k1"]).await
    };
    let release = async {
        wait(2).await;
        sqlx::raw_sql("commit").execute(&mut holder).await.unwrap();
    };
    let (ended, noted, ()) = tokio::join!(end_change, change_key, release);
    assert_eq!(ended.unwrap().map(|secret| secret.version), Some(change.version));
    assert_eq!(keys(&noted), ("k2", vec!["k1"]));

    let three = value(broker.begin_change(tenant, &own).await.unwrap().version, "three");
    assert_eq!(finish(&broker, tenant, &own, &three).await.unwrap(), None, "k1 seals no more");
    assert_eq!(broker.use_secret(tenant, &own).await.unwrap(), two);
}
