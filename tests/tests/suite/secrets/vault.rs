//! The vault of the broker on a real Postgres: what thieves and vandals of rows get.

use broker::secrets::{
    deployment_key::DeploymentKey,
    envelope::EnvelopeError,
    key_file::KeyFile,
    vault::{Vault, VaultError},
};
use chassis::secret::SecretBytes;
use domain::{ids::TenantId, secret::SecretAddress};
use store::{Store, broker::BrokerStore};
use tempfile::TempDir;
use testkit::database::{Database, connect};

struct World {
    database: Database,
    directory: TempDir,
    vault: Vault,
    tenants: [TenantId; 2],
}

fn address(name: &str) -> SecretAddress {
    SecretAddress { project: None, name: name.parse().unwrap() }
}

impl World {
    async fn new() -> Self {
        let (database, directory) = (testkit::database().await, tempfile::tempdir().unwrap());
        let store = Store::connect(&database.app_url, &database.system_url, 1).unwrap();
        let tenants = [1, 2].map(|number| TenantId(uuid::Uuid::from_u128(number)));
        for tenant in tenants {
            store.create_tenant(tenant, &format!("t{tenant}")).await.unwrap();
        }
        let vault = Self::vault(&database, &directory, "key");
        vault.check_key().await.unwrap();
        Self { database, directory, vault, tenants }
    }

    fn vault(database: &Database, directory: &TempDir, key: &str) -> Vault {
        let key = KeyFile::open_or_create(&directory.path().join(key)).unwrap();
        Vault::new(BrokerStore::connect(&database.broker_url, 2).unwrap(), DeploymentKey::File(key))
    }

    async fn put(&self, name: &str, value: &str) -> u64 {
        let value = SecretBytes::of(value.as_bytes().to_vec());
        self.vault.put(self.tenants[0], address(name), &value, "ann").await.unwrap().version
    }

    /// Opens a secret of the first tenant.
    async fn take(&self, name: &str) -> Result<String, VaultError> {
        let opened = self.vault.take(self.tenants[0], &address(name), "a test").await?;
        Ok(String::from_utf8(opened.value.expose().to_vec()).unwrap())
    }

    async fn sql(&self, sql: &str) {
        let mut connection = connect(&self.database.migrator_url).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    }
}

fn is_damaged<T>(result: &Result<T, VaultError>) -> bool {
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
    let stolen = world.vault.take(thief, &address("TOKEN"), "a test").await;
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
    let other = World::vault(&world.database, &world.directory, "other");
    let refused = other.check_key().await.unwrap_err();
    assert!(matches!(refused, VaultError::OtherKey { .. }), "{refused:?}");
    let opened = other.take(world.tenants[0], &address("TOKEN"), "a test").await;
    assert!(matches!(opened, Err(VaultError::Envelope(EnvelopeError::OtherKey))), "{opened:?}");
    world.vault.check_key().await.unwrap();
    assert_eq!(world.take("TOKEN").await.unwrap(), "one");
    let empty = world.vault.put(world.tenants[0], address("TOKEN"), &SecretBytes::of(vec![]), "ann").await;
    assert!(matches!(empty, Err(VaultError::Empty)), "{empty:?}");
}
