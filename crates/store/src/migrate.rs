//! Migrations, and the logins of the roles. Needs a login that may create roles.

use crate::{
    error::Error,
    schema::{self, MIGRATIONS, NewerSchema, SchemaProblem},
};
use postgres_protocol::password::scram_sha_256;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

/// Attempts to set the password of a role: at most this many databases of one cluster can migrate at the same time. Then the migration
/// fails.
const ROLE_TRIES_MAX: u32 = 100;
/// The roles of gateways and workers.
const SERVICE_ROLES: [&str; 2] = ["flotilla_app", "flotilla_system"];
const BROKER_ROLE: &str = "flotilla_broker";

/// The passwords of our roles.
#[derive(Clone, Copy)]
pub struct Passwords<'a> {
    /// Of `flotilla_app` and `flotilla_system`, which gateways and workers log in as.
    pub services: &'a str,
    /// Of `flotilla_broker`. Another one, so that no service logs in as the other.
    pub broker: &'a str,
}

/// What a migration found and left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; `None`: the database had no tables of ours.
    pub from: Option<i64>,
    pub to: i64,
    /// The roles of ours that cannot log in, because nobody has given them passwords yet.
    pub without_login: Vec<String>,
}

/// Brings the database up to date and gives the roles these passwords; `None`: they keep theirs. Safe to repeat.
///
/// # Errors
/// `Migrate` or `Db`; a failed migration changes nothing.
pub async fn migrate(migrator_url: &str, passwords: Option<Passwords<'_>>) -> Result<Migrated, Error> {
    let mut connection = PgConnection::connect(migrator_url).await?;
    let from = schema::find_version(&mut connection).await?;
    MIGRATIONS.run(&mut connection).await?;
    if let Some(Passwords { services, broker }) = passwords {
        for role in SERVICE_ROLES {
            set_password(&mut connection, role, services).await?;
        }
        set_password(&mut connection, BROKER_ROLE, broker).await?;
    }
    let without_login = roles_without_login(&mut connection).await?;
    connection.close().await?;
    Ok(Migrated { from, to: schema::known_version(), without_login })
}

/// Why this program cannot work with the database, if it cannot. Changes nothing.
///
/// # Errors
/// `Db`.
pub async fn check(migrator_url: &str) -> Result<Option<SchemaProblem>, Error> {
    let mut connection = PgConnection::connect(migrator_url).await?;
    let found = schema::find_version(&mut connection).await?;
    connection.close().await?;
    Ok(schema::problem(found, NewerSchema::Refuse))
}

async fn set_password(connection: &mut PgConnection, role: &str, password: &str) -> Result<(), Error> {
    // Postgres may log its statements, so it gets the verifier and never the password.
    let verifier = scram_sha_256(password.as_bytes());
    let alter = format!("alter role {role} login password '{verifier}'");
    let mut tries = 0;
    while let Err(error) = sqlx::raw_sql(AssertSqlSafe(alter.clone())).execute(&mut *connection).await {
        tries += 1;
        if tries == ROLE_TRIES_MAX || !is_concurrent_update(&error) {
            return Err(error.into());
        }
    }
    Ok(())
}

async fn roles_without_login(connection: &mut PgConnection) -> Result<Vec<String>, Error> {
    let roles: Vec<&str> = SERVICE_ROLES.into_iter().chain([BROKER_ROLE]).collect();
    let query = sqlx::query(
        "select rolname::text as name from pg_roles where rolname = any($1) and not rolcanlogin order by 1",
    );
    let rows = query.bind(&roles).fetch_all(connection).await?;
    Ok(rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>()?)
}

/// Whether another database of the cluster, which migrates at the same time, has just updated the same role. Roles belong
/// to the cluster, but the advisory lock of a migration belongs to one database, so Postgres reports an internal error.
fn is_concurrent_update(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("XX000"))
}
