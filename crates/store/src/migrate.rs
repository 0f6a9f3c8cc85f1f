//! Migrations and the logins of our two roles. Needs a login that may create roles.

use crate::error::Error;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// Brings the database up to date and lets our two roles log in with `password`. Safe to repeat.
///
/// # Errors
/// `Migrate` or `Db`; a failed migration left nothing behind.
pub async fn migrate(migrator_url: &str, password: &str) -> Result<(), Error> {
    let mut connection = PgConnection::connect(migrator_url).await?;
    MIGRATIONS.run(&mut connection).await?;
    // Roles belong to the cluster: two databases that are migrated at once must not update the same row.
    sqlx::query("select pg_advisory_lock(7239047)").execute(&mut connection).await?;
    for role in ["flotilla_app", "flotilla_system"] {
        let quoted = password.replace('\'', "''");
        sqlx::raw_sql(AssertSqlSafe(format!("alter role {role} login password '{quoted}'"))).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(())
}
