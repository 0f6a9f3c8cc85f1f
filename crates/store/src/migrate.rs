//! Migrations, and the logins of the roles. Needs a login that may create roles.

use crate::error::Error;
use postgres_protocol::password::scram_sha_256;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Attempts to set the password of a role: at most this many databases of one cluster can migrate at the same time. Then the migration
/// fails.
const ROLE_TRIES_MAX: u32 = 100;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// The passwords of our roles.
#[derive(Clone, Copy)]
pub struct Passwords<'a> {
    /// Of `flotilla_app` and `flotilla_system`, which gateways and workers log in as.
    pub services: &'a str,
    /// Of `flotilla_broker`. Another one, so that no service logs in as the other.
    pub broker: &'a str,
}

/// Brings the database up to date and lets the roles log in. Safe to repeat.
///
/// # Errors
/// `Migrate` or `Db`; a failed migration changes nothing.
pub async fn migrate(migrator_url: &str, passwords: Passwords<'_>) -> Result<(), Error> {
    let mut connection = PgConnection::connect(migrator_url).await?;
    MIGRATIONS.run(&mut connection).await?;
    let Passwords { services, broker } = passwords;
    for (role, password) in
        [("flotilla_app", services), ("flotilla_system", services), ("flotilla_broker", broker)]
    {
        // Postgres may log its statements, so it gets the verifier and never the password.
        let verifier = scram_sha_256(password.as_bytes());
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
