//! The vault of the broker on a real Postgres: what thieves and vandals of rows get.

use broker::secrets::{
    deployment_key::DeploymentKey,
    error::EnvelopeError,
    key_file::KeyFile,
    keyring::Keyring,
    vault::{NewSecret, SecretUse, Vault, VaultError},
};
use chassis::secret::SecretBytes;
use domain::{
    egress::secret_servers::{SecretDestination, SecretServers},
    ids::TenantId,
    secret::SecretAddress,
};
use sqlx::PgConnection;
use std::sync::LazyLock;
use store::{Actor, Store, broker::BrokerStore};
use tempfile::TempDir;
use testkit::database::Database;

pub(super) struct World {
    database: Database,
    pub(super) directory: TempDir,
    pub(super) vault: Vault,
    pub(super) tenants: [TenantId; 2],
}

/// What secrets are opened for here.
const TEST: SecretUse<'_> = SecretUse { purpose: "a test", destination: SecretDestination::Script };

static ANN: LazyLock<Actor> = LazyLock::new(|| Actor { name: "ann".to_owned(), key: "flk_ann".to_owned() });

fn new(name: &str) -> NewSecret<'static> {
    NewSecret { address: address(name), servers: SecretServers::default(), actor: &ANN }
}

pub(super) fn address(name: &str) -> SecretAddress {
    SecretAddress { project: None, name: name.parse().unwrap() }
}

impl World {
    pub(super) async fn new() -> Self {
        let (database, directory) = (testkit::database().await, tempfile::tempdir().unwrap());
        let store = Store::connect(&database.app_url, &database.system_url, 1).unwrap();
        let tenants = [1, 2].map(|number| TenantId(uuid::Uuid::from_u128(number)));
        for tenant in tenants {
            store.create_tenant(tenant, &format!("t{tenant}")).await.unwrap();
        }
        let key = KeyFile::open_or_create(&directory.path().join("key")).unwrap();
        let keys = Keyring::new(DeploymentKey::File(key), vec![]);
        let vault = Vault::new(connect(&database), keys);
        assert!(!vault.check_keys().await.unwrap(), "there is no older key");
        Self { database, directory, vault, tenants }
    }

    /// The key in a file of this name.
    pub(super) fn key(&self, name: &str) -> DeploymentKey {
        DeploymentKey::File(KeyFile::open_or_create(&self.directory.path().join(name)).unwrap())
    }

    /// A vault with keys, the newest first.
    pub(super) fn vault(&self, keys: impl IntoIterator<Item = DeploymentKey>) -> Vault {
        let mut keys = keys.into_iter();
        let keys = Keyring::new(keys.next().unwrap(), keys.collect());
        Vault::new(self.store(), keys)
    }

    /// The tables of the broker, with connections of their own.
    pub(super) fn store(&self) -> BrokerStore {
        connect(&self.database)
    }

    pub(super) async fn put(&self, name: &str, value: &str) -> u64 {
        put(&self.vault, self.tenants[0], name, value).await.unwrap()
    }

    /// Opens a secret of the first tenant.
    async fn take(&self, name: &str) -> Result<String, VaultError> {
        take(&self.vault, self.tenants[0], name).await
    }

    /// The identities of the keys that sealed the secrets of all tenants, by the names of the secrets.
    pub(super) async fn key_ids(&self) -> Vec<String> {
        let mut owner = self.database.owner().await;
        let ids = sqlx::query_scalar("select key_id from secret order by tenant_id, name");
        ids.fetch_all(&mut *owner).await.unwrap()
    }

    pub(super) async fn sql(&self, sql: &str) {
        let mut owner = self.database.owner().await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut *owner).await.unwrap();
    }

    /// Makes the trigger function `hold_write`, which waits while a test has the lock of [`World::take_write_lock`].
    pub(super) async fn make_hold_write(&self) {
        self.sql(
            "create function hold_write() returns trigger language plpgsql as $$ begin
                perform pg_advisory_xact_lock_shared(1);
                return null;
             end $$",
        )
        .await;
    }

    /// Takes the lock that `hold_write` waits for. It ends with the connection.
    pub(super) async fn take_write_lock(&self) -> PgConnection {
        let mut connection = testkit::database::connect(&self.database.migrator_url).await;
        sqlx::raw_sql("select pg_advisory_lock(1)").execute(&mut connection).await.unwrap();
        connection
    }

    /// Whether `hold_write` waits.
    pub(super) async fn is_write_held(&self) -> bool {
        let mut owner = self.database.owner().await;
        let held = sqlx::query_scalar(
            "select exists (select from pg_locks l join pg_database d on d.oid = l.database
                             where d.datname = current_database() and l.locktype = 'advisory' and not l.granted)",
        );
        held.fetch_one(&mut *owner).await.unwrap()
    }
}

fn connect(database: &Database) -> BrokerStore {
    BrokerStore::connect(&database.broker_url, 2).unwrap()
}

/// Stores a secret, and returns its version.
pub(super) async fn put(vault: &Vault, tenant: TenantId, name: &str, value: &str) -> Result<u64, VaultError> {
    let value = SecretBytes::of(value.as_bytes().to_vec());
    Ok(vault.put(tenant, new(name), &value).await?.version)
}

pub(super) async fn take(vault: &Vault, tenant: TenantId, name: &str) -> Result<String, VaultError> {
    let opened = vault.take(tenant, &address(name), TEST).await?;
    Ok(String::from_utf8(opened.value.expose().to_vec()).unwrap())
}

pub(super) fn is_damaged<T>(result: &Result<T, VaultError>) -> bool {
    matches!(result, Err(VaultError::Envelope(EnvelopeError::Damaged)))
}

#[tokio::test]
async fn a_row_that_was_changed_or_moved_does_not_open() {
    let world = World::new().await;
    world.put("TOKEN", "one").await;
    assert_eq!(world.take("TOKEN").await.unwrap(), "one");
    for change in [
        "ciphertext = set_byte(ciphertext, 20, 255 - get_byte(ciphertext, 20))",
        "sealed_key = set_byte(sealed_key, 20, 255 - get_byte(sealed_key, 20))",
        "ciphertext = ''",
        "version = version + 1",
    ] {
        world.put("TOKEN", "one").await;
        world.sql(&format!("update secret set {change}")).await;
        assert!(is_damaged(&world.take("TOKEN").await), "{change}");
    }
    world.put("TOKEN", "one").await;
    world.sql("update secret set name = 'OTHER'").await;
    assert!(is_damaged(&world.take("OTHER").await));
    world.put("TOKEN", "one").await;
    let thief = world.tenants[1];
    world.sql(&format!("update secret set tenant_id = '{thief}' where name = 'TOKEN'")).await;
    let stolen = world.vault.take(thief, &address("TOKEN"), TEST).await;
    assert!(is_damaged(&stolen), "{stolen:?}");
    // An earlier version that somebody puts back.
    world.put("TOKEN", "old").await;
    world.sql("create table copy as select * from secret where name = 'TOKEN' and ciphertext <> ''").await;
    world.put("TOKEN", "new").await;
    world
        .sql(&format!(
            "update secret s set ciphertext = c.ciphertext, sealed_key = c.sealed_key from copy c
              where s.name = c.name and s.tenant_id = c.tenant_id and s.tenant_id = '{}'",
            world.tenants[0]
        ))
        .await;
    assert!(is_damaged(&world.take("TOKEN").await));
}

#[tokio::test]
async fn another_key_opens_nothing_and_is_refused_at_the_start() {
    let world = World::new().await;
    world.put("TOKEN", "one").await;
    let other = world.vault([world.key("other")]);
    let refused = other.check_keys().await.unwrap_err();
    assert!(matches!(refused, VaultError::OtherKey { .. }), "{refused:?}");
    let opened = other.take(world.tenants[0], &address("TOKEN"), TEST).await;
    assert!(matches!(opened, Err(VaultError::Envelope(EnvelopeError::OtherKey))), "{opened:?}");
    world.vault.check_keys().await.unwrap();
    assert_eq!(world.take("TOKEN").await.unwrap(), "one");
    let empty = world.vault.put(world.tenants[0], new("TOKEN"), &SecretBytes::of(vec![])).await;
    assert!(matches!(empty, Err(VaultError::Empty)), "{empty:?}");
}
