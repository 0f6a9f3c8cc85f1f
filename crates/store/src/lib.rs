//! Postgres: the only truth, and the only place with SQL. The tenant comes first in every function; the few queries
//! that cross tenants stand in `control`. Row-level security is the second lock: a forgotten filter returns nothing.

pub mod control;
pub mod error;
pub mod log;
pub mod migrate;
pub mod people;
pub mod session;
pub mod tenant;

mod guard;

use domain::{ids::TenantId, ids::Timestamp, limits};
use error::Error;
use sqlx::{
    AssertSqlSafe, PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{str::FromStr as _, time::Duration};

/// How long a caller waits for a connection before it is told that Postgres is not there.
const ACQUIRE: Duration = Duration::from_secs(5);

/// A handle to the database; clones share its connections.
#[derive(Debug, Clone)]
pub struct Store {
    /// Logs in as `flotilla_app`: sees one tenant at a time.
    app: PgPool,
    /// Logs in as `flotilla_system`: only for `system`.
    system: PgPool,
}

/// One page of a list: at most `limit` entries that come after `cursor`.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// At most this many.
    pub limit: u32,
    /// Where the page before ended.
    pub cursor: Option<String>,
}

impl Page {
    fn limit(&self) -> i64 {
        i64::from(if self.limit == 0 { limits::PAGE_DEFAULT } else { self.limit.min(limits::PAGE_MAX) })
    }
}

impl Store {
    /// Connects lazily: a Postgres that is down is found out by the first query.
    ///
    /// # Errors
    /// When a URL is not one.
    pub fn connect(app_url: &str, system_url: &str, connections_max: u32) -> Result<Self, Error> {
        let pool = |url: &str, max| {
            let options = PgConnectOptions::from_str(url)?.options([
                ("statement_timeout", "15s"),
                ("idle_in_transaction_session_timeout", "10s"),
                ("client_connection_check_interval", "2s"),
                ("application_name", "flotilla"),
            ]);
            Ok::<_, sqlx::Error>(
                PgPoolOptions::new().max_connections(max).acquire_timeout(ACQUIRE).connect_lazy_with(options),
            )
        };
        Ok(Self { app: pool(app_url, connections_max)?, system: pool(system_url, 4)? })
    }

    /// The one way to a tenant's rows: a transaction that sees only `tenant`.
    async fn begin(&self, tenant: TenantId) -> Result<Transaction<'static, Postgres>, Error> {
        // One round trip. A tenant id prints as 32 hexadecimal digits and nothing else.
        let begin = format!("begin; set local app.tenant = '{tenant}'");
        Ok(self.app.begin_with(AssertSqlSafe(begin)).await?)
    }

    /// Answers whether both roles can reach the database.
    ///
    /// # Errors
    /// `Db` with the reason why not.
    pub async fn ping(&self) -> Result<(), Error> {
        sqlx::query("select 1").execute(&self.app).await?;
        sqlx::query("select 1").execute(&self.system).await?;
        Ok(())
    }

    /// Closes every connection; queries in flight end first.
    pub async fn close(&self) {
        self.app.close().await;
        self.system.close().await;
    }
}

fn timestamp(at: time::OffsetDateTime) -> Timestamp {
    Timestamp(i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads an id of a row.
fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, Error>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().map_err(|error| Error::unreadable("session", error))
}
