//! Migrations, as embedded in the binary.

use sqlx::Row as _;
use store::{Store, broker::BrokerStore, migrate::Passwords};
use testkit::database::{PASSWORD, connect};

const PASSWORDS: Passwords<'_> = Passwords { services: PASSWORD, broker: PASSWORD };

async fn versions(url: &str) -> Vec<(i64, Vec<u8>)> {
    let rows = sqlx::query("select version, checksum from _sqlx_migrations order by version")
        .fetch_all(&mut connect(url).await)
        .await;
    rows.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn migration_creates_the_schema_and_can_be_repeated() {
    let (empty, template) = (testkit::empty_database().await, testkit::database().await);
    for _ in 0..2 {
        store::migrate::migrate(&empty.migrator_url, PASSWORDS).await.unwrap();
    }
    assert_eq!(versions(&empty.migrator_url).await, versions(&template.migrator_url).await);
    Store::connect(&empty.app_url, &empty.system_url, 1).unwrap().ping().await.unwrap();
    BrokerStore::connect(&empty.broker_url, 1).unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn databases_of_one_cluster_can_be_migrated_concurrently() {
    let migrations = (0..8).map(|_| async {
        let database = testkit::empty_database().await;
        for _ in 0..4 {
            store::migrate::migrate(&database.migrator_url, PASSWORDS).await.unwrap();
        }
    });
    futures::future::join_all(migrations).await;
}
