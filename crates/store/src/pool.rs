//! The connections of one role, shared between tenants: the transactions of one cannot take them all.

use crate::error::Error;
use domain::ids::TenantId;
use shares::{Share, Shares};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    ops::{Deref, DerefMut},
    str::FromStr as _,
    sync::Arc,
    time::Duration,
};

/// Time that a query waits for a connection before it fails as if Postgres were down.
const ACQUIRE: Duration = Duration::from_secs(5);

/// The connections of a role that sees one tenant at a time. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct TenantPool {
    connections: PgPool,
    shares: Arc<Shares<TenantId>>,
}

/// A transaction of one tenant. Dropped without a commit, it is rolled back.
#[derive(Debug)]
pub(crate) struct Tx {
    // The connection comes back before the share, so that the next holder of the share finds it.
    transaction: Transaction<'static, Postgres>,
    _share: Share,
}

impl TenantPool {
    /// Connects with its first query.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub(crate) fn new(url: &str, connections_max: u32) -> Result<Self, sqlx::Error> {
        let shares = Arc::new(Shares::three_quarters(connections_max));
        // A connection is not tested before a transaction: the first statement of the transaction is the test.
        let options = options(connections_max).test_before_acquire(false);
        Ok(Self { connections: options.connect_lazy_with(address(url)?), shares })
    }

    /// Begins a transaction that sees only the rows of `tenant`.
    ///
    /// # Errors
    /// `Db`: Postgres is down, or no connection became free in time.
    pub(crate) async fn begin(&self, tenant: TenantId) -> Result<Tx, Error> {
        // On the heap: the wait is rare, and every function with a transaction would have it in its future.
        let share = Box::pin(self.shares.acquire(tenant, ACQUIRE)).await;
        let share = share.map_err(|_| sqlx::Error::PoolTimedOut)?;
        // One round trip. A tenant id prints as hexadecimal digits and hyphens only.
        let begin = format!("begin; set local app.tenant = '{tenant}'");
        Ok(Tx { transaction: self.transaction(begin).await?, _share: share })
    }

    /// Checks that the role can reach the database.
    ///
    /// # Errors
    /// `Db`: it cannot.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        Ok(self.transaction("begin".to_owned()).await?.commit().await?)
    }

    /// Begins a transaction with the statement `begin`.
    async fn transaction(&self, begin: String) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        let mut idle = self.connections.options().get_max_connections();
        loop {
            match self.connections.begin_with(AssertSqlSafe(begin.clone())).await {
                // Postgres closed the connection while it was idle. All others may be closed too.
                Err(error) if is_closed(&error) && idle > 0 => idle -= 1,
                begun => return begun,
            }
        }
    }

    /// The connections, for tables that belong to no tenant. The first statement on one may fail because Postgres closed it.
    pub(crate) fn connections(&self) -> &PgPool {
        &self.connections
    }

    /// Closes all connections, after the queries in flight have ended.
    pub(crate) async fn close(&self) {
        self.connections.close().await;
    }
}

impl Tx {
    /// Commits.
    ///
    /// # Errors
    /// Those of Postgres; it is then unknown whether it committed.
    pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
        self.transaction.commit().await
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

/// Checks that a role can reach the database.
///
/// # Errors
/// `Db`: it cannot.
pub(crate) async fn ping(connections: &PgPool) -> Result<(), Error> {
    sqlx::query("select 1").execute(connections).await?;
    Ok(())
}

/// The connections of a role, made with the first query.
///
/// # Errors
/// When the URL is malformed.
pub(crate) fn connect(url: &str, connections_max: u32) -> Result<PgPool, sqlx::Error> {
    Ok(options(connections_max).connect_lazy_with(address(url)?))
}

fn address(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(PgConnectOptions::from_str(url)?.options([
        ("statement_timeout", "15s"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("client_connection_check_interval", "2s"),
        ("application_name", "flotilla"),
    ]))
}

fn options(connections_max: u32) -> PgPoolOptions {
    let options = PgPoolOptions::new().max_connections(connections_max).acquire_timeout(ACQUIRE);
    // Otherwise each connection keeps buffers as large as the largest page that it ever carried.
    options.after_release(|connection, _| {
        connection.shrink_buffers();
        Box::pin(async { Ok(true) })
    })
}

/// Whether the connection was closed before the statement could begin: the socket is gone, or Postgres said goodbye.
fn is_closed(error: &sqlx::Error) -> bool {
    /// `admin_shutdown` and `crash_shutdown`.
    const GOODBYES: [&str; 2] = ["57P01", "57P02"];
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| GOODBYES.contains(&&*code)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn the_transactions_of_a_tenant_leave_connections_to_others() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 4).unwrap();
        let [busy, other] = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let mut held = vec![];
        for _ in 0..3 {
            held.push(pool.begin(busy).await.unwrap());
        }
        let mut fourth = Box::pin(pool.begin(busy));
        assert!(fourth.as_mut().now_or_never().is_none(), "one connection stays for others");
        pool.begin(other).await.unwrap().commit().await.unwrap();
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(held.pop());
        fourth.await.unwrap();
    }

    #[tokio::test]
    async fn a_transaction_begins_although_postgres_closed_every_idle_connection() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 4).unwrap();
        let tenants = [(); 4].map(|()| TenantId(uuid::Uuid::now_v7()));
        let idle = futures::future::try_join_all(tenants.map(|tenant| pool.begin(tenant))).await.unwrap();
        drop(idle);
        while pool.connections.num_idle() < 4 {
            tokio::task::yield_now().await;
        }
        let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
                    where datname = current_database() and usename = 'flotilla_app'";
        let mut migrator = PgConnection::connect(&database.migrator_url).await.unwrap();
        let ended: Vec<bool> = sqlx::query_scalar(end).fetch_all(&mut migrator).await.unwrap();
        assert_eq!(ended, [true; 4]);
        pool.begin(tenants[0]).await.unwrap().commit().await.unwrap();
        pool.ping().await.unwrap();
    }
}
