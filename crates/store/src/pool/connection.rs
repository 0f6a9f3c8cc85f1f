//! A connection of a pool: how it is made, and what makes it ready for its next use.

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use domain::ids::TenantId;
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use std::{
    io,
    str::FromStr as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time between two attempts to connect to a Postgres that starts.
const RECONNECT: Duration = Duration::from_millis(100);
/// No transaction begins on a connection of this age: the process of a connection caches all that it ever touched.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// A connection that was used so short a time ago counts as open. A statement on it that finds it closed fails.
const RECENT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Connector {
    options: PgConnectOptions,
    /// When a connection was discarded last. Those that were used before may be closed as well.
    discarded_at: Mutex<Option<Instant>>,
}

/// A connection, and what is known of it.
#[derive(Debug)]
pub(super) struct PooledConnection {
    pub(super) postgres: PgConnection,
    /// The tenant whose rows its statements outside of transactions see; `None`: unknown.
    pub(super) tenant: Option<TenantId>,
    /// Whether it is new, or was used within the last [`RECENT`] and after the last one that was discarded.
    is_recent: bool,
}

/// What a connection is used for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Transaction(TenantId),
    TransactionWithoutTenant,
    Statements(TenantId),
}

impl Connector {
    /// For the server and the role in `url`.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub(super) fn new(url: &str) -> Result<Self, sqlx::Error> {
        Ok(Self { options: address(url)?, discarded_at: Mutex::default() })
    }

    /// Notes that a connection was discarded, perhaps because Postgres closed it.
    pub(super) fn note_discarded(&self) {
        *self.discarded_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a connection was discarded within this time.
    fn has_discarded(&self, time: Duration) -> bool {
        let at = *self.discarded_at.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() <= time)
    }
}

impl managed::Manager for Connector {
    type Type = PooledConnection;
    type Error = sqlx::Error;

    /// Connects. Repeats that while Postgres starts; the pool bounds the time.
    async fn create(&self) -> Result<PooledConnection, sqlx::Error> {
        loop {
            match PgConnection::connect_with(&self.options).await {
                Err(error) if is_starting(&error) => tokio::time::sleep(RECONNECT).await,
                connected => {
                    return connected.map(|postgres| PooledConnection {
                        postgres,
                        tenant: None,
                        is_recent: true,
                    });
                }
            }
        }
    }

    async fn recycle(
        &self,
        connection: &mut PooledConnection,
        metrics: &Metrics,
    ) -> RecycleResult<sqlx::Error> {
        let unused = metrics.last_used();
        connection.is_recent = unused < RECENT && !self.has_discarded(unused);
        if metrics.age() < AGE_MAX { Ok(()) } else { Err(RecycleError::message("the connection is old")) }
    }
}

impl Purpose {
    /// Whether a connection can be used for it as it is.
    pub(super) fn is_met_by(self, connection: &PooledConnection) -> bool {
        match self {
            Self::Statements(tenant) => connection.tenant == Some(tenant) && connection.is_recent,
            Self::Transaction(_) | Self::TransactionWithoutTenant => false,
        }
    }

    /// What makes a connection ready for it, in one round trip. A tenant id prints as hexadecimal digits and hyphens only.
    pub(super) fn statement(self) -> String {
        match self {
            Self::Transaction(tenant) => format!("begin; set local app.tenant = '{tenant}'"),
            // The connection may have a tenant for its statements outside of transactions.
            Self::TransactionWithoutTenant => "begin; set local app.tenant = ''".to_owned(),
            Self::Statements(tenant) => format!("set app.tenant = '{tenant}'"),
        }
    }

    /// What ends it while a statement may be under way.
    pub(super) fn undo(self) -> &'static str {
        match self {
            Self::Transaction(_) | Self::TransactionWithoutTenant => "rollback",
            // Postgres warns of a rollback outside of a transaction.
            Self::Statements(_) => "select 1",
        }
    }
}

pub(super) fn address(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(PgConnectOptions::from_str(url)?.options([
        ("statement_timeout", "15s"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("client_connection_check_interval", "2s"),
        ("application_name", "flotilla"),
        // No plan depends on values (the tests of the store check it), so Postgres need not plan a statement for its values first.
        ("plan_cache_mode", "force_generic_plan"),
    ]))
}

/// Whether Postgres accepts no connections yet.
fn is_starting(error: &sqlx::Error) -> bool {
    /// `cannot_connect_now`.
    const STARTING: &str = "57P03";
    match error {
        sqlx::Error::Io(error) => {
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
        }
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code == STARTING),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use deadpool::managed::Manager as _;

    #[tokio::test]
    async fn an_old_connection_is_not_used_again() {
        let database = testkit::database().await;
        let connector = Connector::new(&database.app_url).unwrap();
        let mut connection = connector.create().await.unwrap();
        let short = Duration::from_secs(60);
        for (age, idle, is_used, is_recent) in [
            (AGE_MAX - short, RECENT, true, false),
            (AGE_MAX - short, Duration::ZERO, true, true),
            (AGE_MAX, Duration::ZERO, false, true),
        ] {
            let before = |time| Instant::now().checked_sub(time).unwrap();
            let metrics =
                Metrics { created: before(age), recycled: Some(before(idle)), ..Metrics::default() };
            assert_eq!(connector.recycle(&mut connection, &metrics).await.is_ok(), is_used);
            assert_eq!(connection.is_recent, is_recent);
        }
    }
}
