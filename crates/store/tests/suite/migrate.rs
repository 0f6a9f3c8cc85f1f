//! Migrations, as embedded in the binary.

use sqlx::Row as _;
use store::{
    Store,
    broker::BrokerStore,
    migrate::{self, Passwords},
    schema::{NewerSchema, SchemaProblem},
};
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
        migrate::migrate(&empty.migrator_url, Some(PASSWORDS)).await.unwrap();
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
            migrate::migrate(&database.migrator_url, Some(PASSWORDS)).await.unwrap();
        }
    });
    futures::future::join_all(migrations).await;
}

#[tokio::test]
async fn a_database_that_does_not_fit_is_told_to_every_role() {
    // The roles belong to the cluster, and get their passwords with the first migrated database.
    let (empty, _) = (testkit::empty_database().await, testkit::database().await);
    let store = Store::connect(&empty.app_url, &empty.system_url, 1).unwrap();
    let broker = BrokerStore::connect(&empty.broker_url, 1).unwrap();
    let problems = async |newer| {
        let of_store = store.find_schema_problem(newer).await.unwrap();
        assert_eq!(broker.find_schema_problem(newer).await.unwrap(), of_store);
        assert_eq!(migrate::check(&empty.migrator_url).await.unwrap().is_some(), of_store.is_some());
        of_store
    };
    assert_eq!(problems(NewerSchema::Refuse).await, Some(SchemaProblem::Missing));
    let migrated = migrate::migrate(&empty.migrator_url, None).await.unwrap();
    let known = migrated.to;
    assert_eq!(
        (migrated.from, migrated.without_login),
        (None, vec![]),
        "another database gave them passwords"
    );
    assert_eq!(problems(NewerSchema::Refuse).await, None);
    let newest = "update _sqlx_migrations set version = version + 1 where version = (select max(version) from _sqlx_migrations)";
    sqlx::query(newest).execute(&mut *empty.owner().await).await.unwrap();
    assert_eq!(problems(NewerSchema::Refuse).await, Some(SchemaProblem::Newer { found: known + 1, known }));
    assert_eq!(store.find_schema_problem(NewerSchema::Accept).await.unwrap(), None);
    sqlx::query("delete from _sqlx_migrations where version > 50")
        .execute(&mut *empty.owner().await)
        .await
        .unwrap();
    assert_eq!(problems(NewerSchema::Accept).await, Some(SchemaProblem::Older { needed: known }));
    sqlx::query("revoke select on _sqlx_migrations from flotilla_app, flotilla_system, flotilla_broker")
        .execute(&mut *empty.owner().await)
        .await
        .unwrap();
    assert_eq!(problems(NewerSchema::Refuse).await, Some(SchemaProblem::Older { needed: known }));
}
