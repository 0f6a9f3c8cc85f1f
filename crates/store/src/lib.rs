//! Postgres: the only truth, and the only crate with SQL. Every function takes the tenant first; `control` holds the few queries
//! that cross tenants. Row-level security is the second lock: a query with a forgotten filter returns nothing.

pub mod broker;
pub mod control;
pub mod error;
pub mod log;
pub mod migrate;
pub mod people;
pub mod session;
pub mod tenant;

mod column;
mod phase;

use domain::{ids::TenantId, limits};
use error::Error;
use sqlx::{
    AssertSqlSafe, Connection as _, PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{str::FromStr as _, time::Duration};

/// Time that a query waits for a connection before it fails as if Postgres were down.
const ACQUIRE: Duration = Duration::from_secs(5);

/// A transaction of one tenant.
type Tx = Transaction<'static, Postgres>;

/// A handle to the database. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Store {
    /// Logs in as `flotilla_app`, which sees one tenant at a time.
    app: PgPool,
    /// Logs in as `flotilla_system`, which sees all tenants. Only `control` uses it.
    system: PgPool,
}

/// One page of a list: at most `limit` entries after `cursor`.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Maximum number of entries; 0: the default.
    pub limit: u32,
    /// The end of the previous page; `None` for the first page.
    pub cursor: Option<String>,
}

impl Page {
    fn limit(&self) -> i64 {
        i64::from(if self.limit == 0 { limits::PAGE_DEFAULT } else { self.limit.min(limits::PAGE_MAX) })
    }
}

/// The connections of one role, made with the first query.
fn pool(url: &str, connections_max: u32) -> Result<PgPool, sqlx::Error> {
    let options = PgConnectOptions::from_str(url)?.options([
        ("statement_timeout", "15s"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("client_connection_check_interval", "2s"),
        ("application_name", "flotilla"),
    ]);
    let pool = PgPoolOptions::new().max_connections(connections_max).acquire_timeout(ACQUIRE);
    // Otherwise each connection keeps buffers as large as the largest page that it ever carried.
    let pool = pool.after_release(|connection, _| {
        connection.shrink_buffers();
        Box::pin(async { Ok(true) })
    });
    Ok(pool.connect_lazy_with(options))
}

/// Begins a transaction that sees only the rows of `tenant`.
async fn begin(pool: &PgPool, tenant: TenantId) -> Result<Tx, Error> {
    // One round trip. A tenant id prints as hexadecimal digits and hyphens only.
    let begin = format!("begin; set local app.tenant = '{tenant}'");
    Ok(pool.begin_with(AssertSqlSafe(begin)).await?)
}

impl Store {
    /// Creates a handle that connects with its first query, so this succeeds even while Postgres is down.
    ///
    /// # Errors
    /// `Db`: a URL is malformed.
    pub fn connect(app_url: &str, system_url: &str, connections_max: u32) -> Result<Self, Error> {
        Ok(Self { app: pool(app_url, connections_max)?, system: pool(system_url, 4)? })
    }

    /// Begins a transaction that sees only the rows of `tenant`. Every access to those rows goes through it.
    async fn begin(&self, tenant: TenantId) -> Result<Tx, Error> {
        begin(&self.app, tenant).await
    }

    /// Checks that both roles can reach the database.
    ///
    /// # Errors
    /// `Db`: at least one of them cannot.
    pub async fn ping(&self) -> Result<(), Error> {
        sqlx::query("select 1").execute(&self.app).await?;
        sqlx::query("select 1").execute(&self.system).await?;
        Ok(())
    }

    /// Closes all connections, after the queries in flight have ended.
    pub async fn close(&self) {
        self.app.close().await;
        self.system.close().await;
    }
}
