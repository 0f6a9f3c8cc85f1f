//! Migrations, and the logins of the two roles. Needs a login that may create roles.

use crate::error::Error;
use postgres_protocol::password::scram_sha_256;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Attempts to set the password of a role: at most this many databases of one cluster can migrate at the same time. Then the migration
/// fails.
const ROLE_TRIES_MAX: u32 = 100;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// Brings the database up to date and lets both roles log in with `password`. Safe to repeat.
///
/// # Errors
/// `Migrate` or `Db`; a failed migration changes nothing.
pub async fn migrate(migrator_url: &str, password: &str) -> Result<(), Error> {
    let mut connection = PgConnection::connect(migrator_url).await?;
    MIGRATIONS.run(&mut connection).await?;
    // Postgres may log its statements, so it gets the verifier and never the password.
    let verifier = scram_sha_256(password.as_bytes());
    for role in ["flotilla_app", "flotilla_system"] {
        let alter = format!("alter role {role} login password '{verifier}'");
        let mut tries = 0;
        while let Err(error) = sqlx::raw_sql(AssertSqlSafe(alter.clone())).execute(&mut connection).await {
            tries += 1;
            if tries == ROLE_TRIES_MAX || !is_concurrent_update(&error) {
                return Err(error.into());
            }
        }
    }
    connection.close().await?;
    Ok(())
}

/// Whether another database of the cluster, which migrates at the same time, has just updated the same role. Roles belong
/// to the cluster, but the advisory lock of a migration belongs to one database, so Postgres reports an internal error.
fn is_concurrent_update(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("XX000"))
}
