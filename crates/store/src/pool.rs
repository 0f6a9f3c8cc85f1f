//! The connections of one role, shared between tenants: the transactions of one cannot take them all.

use crate::error::Error;
use deadpool::{
    Runtime,
    managed::{self, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult},
};
use domain::ids::TenantId;
use shares::{Share, Shares};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    io,
    ops::{Deref, DerefMut},
    str::FromStr as _,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

/// Time that a query waits for a connection before it fails as if Postgres were down.
const ACQUIRE: Duration = Duration::from_secs(5);
/// Time between two attempts to connect to a Postgres that starts.
const RECONNECT: Duration = Duration::from_millis(100);
/// Time for a rollback, and for the statement before it whose caller is gone. Postgres ends that statement soon after its connection closes.
const ROLLBACK: Duration = Duration::from_secs(5);
/// A connection that no transaction has used for this time closes when the next transaction of the process begins.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// No transaction begins on a connection of this age: the process of a connection caches all that it ever touched.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// Time between two looks for unused connections.
const LOOK: Duration = Duration::from_secs(60);

/// The connections of a role that sees one tenant at a time. Clones share them.
///
/// They are not in a pool of sqlx, which asks Postgres for a sign of life whenever a connection comes back: one more round trip of each
/// transaction, and without a time limit.
#[derive(Debug, Clone)]
pub(crate) struct TenantPool {
    connections: Pool<Connector>,
    shares: Arc<Shares<TenantId>>,
    looked_at: Arc<Mutex<Instant>>,
}

/// Connects.
#[derive(Debug)]
struct Connector(PgConnectOptions);

/// A transaction of one tenant. Dropped without a commit, it is rolled back.
#[derive(Debug)]
pub(crate) struct Tx {
    /// `None` only while it is dropped.
    loan: Option<Loan>,
    is_committed: bool,
}

/// What a transaction gives back when it ends.
#[derive(Debug)]
struct Loan {
    // The connection comes back before the share, so that the next holder of the share finds it.
    connection: Object<Connector>,
    /// `None` before the transaction has begun, and in one without a tenant.
    share: Option<Share>,
}

impl TenantPool {
    /// Connects with its first query.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub(crate) fn new(url: &str, connections_max: u32) -> Result<Self, sqlx::Error> {
        let connections = Pool::builder(Connector(address(url)?))
            .max_size(connections_max as usize)
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(ACQUIRE))
            .create_timeout(Some(ACQUIRE))
            .build()
            .map_err(|error| sqlx::Error::Configuration(error.into()))?;
        let shares = Arc::new(Shares::three_quarters(connections_max));
        Ok(Self { connections, shares, looked_at: Arc::new(Mutex::new(Instant::now())) })
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
        Ok(self.transaction(begin, Some(share)).await?)
    }

    /// Begins a transaction that sees the rows of no tenant.
    ///
    /// # Errors
    /// `Db`: Postgres is down, or no connection became free in time.
    pub(crate) async fn begin_without_tenant(&self) -> Result<Tx, Error> {
        Ok(self.transaction("begin".to_owned(), None).await?)
    }

    /// Checks that the role can reach the database.
    ///
    /// # Errors
    /// `Db`: it cannot.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        Ok(self.begin_without_tenant().await?.commit().await?)
    }

    /// Begins a transaction with the statement `begin`.
    async fn transaction(&self, begin: String, share: Option<Share>) -> Result<Tx, sqlx::Error> {
        self.close_unused();
        let mut closed_max = self.connections.status().max_size;
        // A connection is not tested before a transaction: the first statement of the transaction is the test.
        loop {
            let connection = Box::pin(self.connections.get()).await.map_err(acquire_error)?;
            let mut tx = Tx { loan: Some(Loan { connection, share: None }), is_committed: false };
            let Err(error) = tx.execute(AssertSqlSafe(begin.clone())).await else {
                tx.hold(share);
                return Ok(tx);
            };
            tx.discard();
            // Postgres closed the connection while it was idle. All others may be closed too.
            if !is_closed(&error) || closed_max == 0 {
                return Err(error);
            }
            closed_max -= 1;
        }
    }

    /// Closes unused connections. Looks for them at most once per [`LOOK`].
    fn close_unused(&self) {
        // Otherwise another transaction is looking.
        let Ok(mut looked_at) = self.looked_at.try_lock() else { return };
        if looked_at.elapsed() >= LOOK {
            *looked_at = Instant::now();
            self.connections.retain(|_, metrics| metrics.last_used() < IDLE_MAX);
        }
    }

    /// Closes all connections, after the transactions of tenants have ended.
    pub(crate) async fn close(&self) {
        self.connections.close();
        self.shares.all_free().await;
    }
}

impl managed::Manager for Connector {
    type Type = PgConnection;
    type Error = sqlx::Error;

    /// Connects. Repeats that while Postgres starts; the pool bounds the time.
    async fn create(&self) -> Result<PgConnection, sqlx::Error> {
        loop {
            match PgConnection::connect_with(&self.0).await {
                Err(error) if is_starting(&error) => tokio::time::sleep(RECONNECT).await,
                connected => return connected,
            }
        }
    }

    async fn recycle(&self, _: &mut PgConnection, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if metrics.age() < AGE_MAX { Ok(()) } else { Err(RecycleError::message("the connection is old")) }
    }
}

impl Tx {
    /// Commits.
    ///
    /// # Errors
    /// Those of Postgres; it is then unknown whether it committed.
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.execute("commit").await?;
        self.is_committed = true;
        Ok(())
    }

    fn hold(&mut self, share: Option<Share>) {
        if let Some(loan) = &mut self.loan {
            loan.share = share;
        }
    }

    /// Closes the connection, which ends the transaction.
    fn discard(mut self) {
        if let Some(loan) = self.loan.take() {
            loan.discard();
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(mut loan) = self.loan.take() else { return };
        if self.is_committed {
            loan.connection.shrink_buffers();
        } else if Handle::try_current().is_ok() {
            // At once: the transaction may hold locks.
            tokio::spawn(loan.roll_back());
        } else {
            loan.discard();
        }
    }
}

impl Loan {
    /// Ends the transaction, whatever its last statement was doing.
    async fn roll_back(mut self) {
        match tokio::time::timeout(ROLLBACK, self.connection.execute("rollback")).await {
            Ok(Ok(_)) => self.connection.shrink_buffers(),
            Ok(Err(_)) | Err(_) => self.discard(),
        }
    }

    /// Closes the connection instead of giving it back.
    fn discard(self) {
        drop(Object::take(self.connection));
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.loan {
            Some(loan) => &loan.connection,
            None => unreachable!("a dropped transaction is used"),
        }
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.loan {
            Some(loan) => &mut loan.connection,
            None => unreachable!("a dropped transaction is used"),
        }
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
    let options = PgPoolOptions::new().max_connections(connections_max).acquire_timeout(ACQUIRE);
    // Otherwise each connection keeps buffers as large as the largest page that it ever carried.
    let options = options.after_release(|connection, _| {
        connection.shrink_buffers();
        Box::pin(async { Ok(true) })
    });
    Ok(options.connect_lazy_with(address(url)?))
}

fn address(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(PgConnectOptions::from_str(url)?.options([
        ("statement_timeout", "15s"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("client_connection_check_interval", "2s"),
        ("application_name", "flotilla"),
    ]))
}

/// The error of a query that got no connection.
fn acquire_error(error: PoolError<sqlx::Error>) -> sqlx::Error {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Closed => sqlx::Error::PoolClosed,
        PoolError::Timeout(_) => sqlx::Error::PoolTimedOut,
        error @ (PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
            sqlx::Error::Configuration(error.into())
        }
    }
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
        pool.shares.all_free().await;
        assert_eq!(pool.connections.status().available, 4);
        let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
                    where datname = current_database() and usename = 'flotilla_app'";
        let mut migrator = PgConnection::connect(&database.migrator_url).await.unwrap();
        let ended: Vec<bool> = sqlx::query_scalar(end).fetch_all(&mut migrator).await.unwrap();
        assert_eq!(ended, [true; 4]);
        pool.begin(tenants[0]).await.unwrap().commit().await.unwrap();
        pool.ping().await.unwrap();
    }

    #[tokio::test]
    async fn a_dropped_transaction_lets_its_locks_go_at_once() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 4).unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let [mut dropped, mut waits] = [pool.begin(tenant).await.unwrap(), pool.begin(tenant).await.unwrap()];
        let lock = "select pg_advisory_xact_lock(1)";
        dropped.execute(lock).await.unwrap();
        let mut waiting = Box::pin(waits.execute(lock));
        assert!(waiting.as_mut().now_or_never().is_none());
        // No other transaction takes the connection of the dropped one.
        drop(dropped);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_transaction_that_is_dropped_in_a_statement_leaves_a_clean_connection() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 1).unwrap();
        let [first, second] = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let mut tx = pool.begin(first).await.unwrap();
        tx.execute("select set_config('app.left', 'behind', true), pg_current_xact_id()").await.unwrap();
        assert!(tx.execute("select pg_sleep(0.1)").now_or_never().is_none());
        drop(tx);
        let mut next = pool.begin(second).await.unwrap();
        let seen: (Option<String>, String, bool) = sqlx::query_as(
            "select nullif(current_setting('app.left', true), ''), current_setting('app.tenant'),
                    pg_current_xact_id_if_assigned() is null",
        )
        .fetch_one(&mut *next)
        .await
        .unwrap();
        assert_eq!(seen, (None, second.to_string(), true));
        next.commit().await.unwrap();
        assert_eq!(pool.connections.status().size, 1, "it is the same connection");
    }

    #[tokio::test]
    async fn a_committed_connection_is_there_for_the_next_one_without_a_wait() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 1).unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        for _ in 0..3 {
            pool.begin(tenant).await.unwrap().commit().await.unwrap();
            assert_eq!(pool.connections.status().available, 1);
        }
        assert_eq!(pool.connections.status().size, 1);
    }

    #[tokio::test]
    async fn an_old_connection_is_not_used_again() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 1).unwrap();
        let mut connection = pool.connections.get().await.unwrap();
        let recycle = async |connection: &mut PgConnection, age| {
            let metrics = Metrics { created: Instant::now().checked_sub(age).unwrap(), ..Metrics::default() };
            managed::Manager::recycle(pool.connections.manager(), connection, &metrics).await
        };
        assert!(recycle(&mut connection, AGE_MAX - LOOK).await.is_ok());
        assert!(recycle(&mut connection, AGE_MAX).await.is_err());
    }

    #[tokio::test]
    async fn closing_waits_for_the_transactions_in_flight() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 2).unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let tx = pool.begin(tenant).await.unwrap();
        let mut closing = Box::pin(pool.close());
        assert!(closing.as_mut().now_or_never().is_none());
        tx.commit().await.unwrap();
        closing.await;
        assert!(pool.begin(tenant).await.unwrap_err().is_transient());
    }
}
