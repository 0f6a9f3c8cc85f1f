//! The connections of one role, shared between tenants: the transactions of one cannot take them all.

mod connection;
mod loan;

pub(crate) use self::loan::{Statement, Statements, Tx};
use self::{
    connection::{Connector, Purpose, address},
    loan::Loan,
};
use crate::error::Error;
use deadpool::{
    Runtime,
    managed::{Manager as _, Pool, PoolError, QueueMode},
};
use domain::ids::TenantId;
use shares::{Permit, Shares};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Time that a query waits for a connection before it fails as if Postgres were down.
const ACQUIRE: Duration = Duration::from_secs(5);
/// A connection that no transaction has used for this time closes when the next transaction of the process begins.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);
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

impl TenantPool {
    /// Connects with its first query.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub(crate) fn new(url: &str, connections_max: u32) -> Result<Self, sqlx::Error> {
        let connections = Pool::builder(Connector::new(url)?)
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
        let permit = self.permit(tenant).await?;
        Ok(Tx(self.lend(Purpose::Transaction(tenant)).await?.with(permit)))
    }

    /// Begins a transaction that sees the rows of no tenant.
    ///
    /// # Errors
    /// `Db`: Postgres is down, or no connection became free in time.
    pub(crate) async fn begin_without_tenant(&self) -> Result<Tx, Error> {
        Ok(Tx(self.lend(Purpose::TransactionWithoutTenant).await?))
    }

    /// Gives a connection for single statements that see only the rows of `tenant`. Such a statement costs one round trip instead of the three of a
    /// transaction, if the connection was used for the same tenant just before.
    ///
    /// # Errors
    /// `Db`: Postgres is down, or no connection became free in time.
    pub(crate) async fn statements(&self, tenant: TenantId) -> Result<Statements, Error> {
        let permit = self.permit(tenant).await?;
        Ok(Statements(self.lend(Purpose::Statements(tenant)).await?.with(permit)))
    }

    /// Makes a connection in addition to those of the pool, for a lock that lasts longer than a transaction. Dropped, it closes.
    ///
    /// # Errors
    /// `Db`: Postgres is down.
    pub(crate) async fn connect_apart(&self) -> Result<PgConnection, Error> {
        let connecting = Box::pin(self.connections.manager().create());
        let connected = tokio::time::timeout(ACQUIRE, connecting).await;
        Ok(connected.map_err(|_| sqlx::Error::PoolTimedOut)??.postgres)
    }

    /// Checks that the role can reach the database.
    ///
    /// # Errors
    /// `Db`: it cannot.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        Ok(self.begin_without_tenant().await?.commit().await?)
    }

    async fn permit(&self, tenant: TenantId) -> Result<Permit, sqlx::Error> {
        // On the heap: the wait is rare, and every function with a transaction would have it in its future.
        let permit = Box::pin(self.shares.acquire(tenant, ACQUIRE)).await;
        permit.map_err(|_| sqlx::Error::PoolTimedOut)
    }

    /// Lends a connection that is ready for `purpose`.
    async fn lend(&self, purpose: Purpose) -> Result<Loan, sqlx::Error> {
        self.close_unused();
        let mut closed_max = self.connections.status().max_size;
        // The pool does not test a connection before: its first statement is the test.
        loop {
            let connection = Box::pin(self.connections.get()).await.map_err(acquire_error)?;
            let is_ready = purpose.is_met_by(&connection);
            let mut loan = Loan::new(connection, purpose);
            if is_ready {
                return Ok(loan);
            }
            let Err(error) = loan.prepare(purpose).await else { return Ok(loan) };
            loan.discard();
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt as _;
    use sqlx::{Executor as _, Row as _};

    /// Has Postgres close the connections of the pool. Returns which are gone.
    async fn end_connections(migrator: &mut PgConnection) -> Vec<bool> {
        let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
                    where datname = current_database() and usename = 'flotilla_app'";
        sqlx::query_scalar(end).fetch_all(migrator).await.unwrap()
    }

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
        let mut migrator = PgConnection::connect(&database.migrator_url).await.unwrap();
        assert_eq!(end_connections(&mut migrator).await, [true; 4]);
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
    async fn a_statement_sees_its_tenant_whatever_its_connection_was_used_for() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 1).unwrap();
        let [first, second] = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let seen = async |connection: &mut PgConnection| -> String {
            let setting = "select coalesce(current_setting('app.tenant', true), 'none')";
            sqlx::query_scalar(setting).fetch_one(connection).await.unwrap()
        };
        for tenant in [first, first, second, first] {
            let mut statements = pool.statements(tenant).await.unwrap();
            assert_eq!(seen(&mut statements).await, tenant.to_string());
            statements.end();
        }
        let mut tx = pool.begin(second).await.unwrap();
        assert_eq!(seen(&mut tx).await, second.to_string());
        tx.commit().await.unwrap();
        let mut tx = pool.begin_without_tenant().await.unwrap();
        assert_eq!(seen(&mut tx).await, "", "no tenant has this id");
        drop(tx);
        let mut statements = pool.statements(first).await.unwrap();
        assert!(statements.execute("select pg_sleep(0.1)").now_or_never().is_none());
        drop(statements);
        for tenant in [first, second] {
            let mut statements = pool.statements(tenant).await.unwrap();
            assert_eq!(seen(&mut statements).await, tenant.to_string());
        }
        pool.shares.all_free().await;
        assert_eq!(pool.connections.status().size, 1, "it is the same connection");
    }

    #[tokio::test]
    async fn the_connection_of_a_single_statement_is_there_for_the_next_one_without_a_wait() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 1).unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let given_back = || assert_eq!(pool.connections.status().available, 1);
        let (two, none) = ("select number from generate_series(1, 2) number", "select 1 limit 0");
        let statements = pool.statements(tenant).await.unwrap();
        assert_eq!(statements.fetch_all(sqlx::query(two)).await.unwrap().len(), 2);
        given_back();
        let statements = pool.statements(tenant).await.unwrap();
        assert!(statements.fetch_optional(sqlx::query(none)).await.unwrap().is_none());
        given_back();
        let statements = pool.statements(tenant).await.unwrap();
        let first: i32 = statements.fetch_one(sqlx::query(two)).await.unwrap().get(0);
        assert_eq!(first, 1);
        given_back();
        let statements = pool.statements(tenant).await.unwrap();
        let missing = statements.fetch_one(sqlx::query(none)).await.unwrap_err();
        assert!(matches!(missing, sqlx::Error::RowNotFound), "{missing:?}");
        given_back();
        let statements = pool.statements(tenant).await.unwrap();
        assert_eq!(statements.run(sqlx::query(two)).await.unwrap(), 2);
        given_back();
        assert_eq!(pool.connections.status().size, 1);
    }

    #[tokio::test]
    async fn a_statement_on_a_connection_that_postgres_closed_fails_once_at_most() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 1).unwrap();
        let tenants = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let mut migrator = PgConnection::connect(&database.migrator_url).await.unwrap();
        for (tenant, is_tested) in [(tenants[1], true), (tenants[0], false)] {
            pool.statements(tenants[0]).await.unwrap().end();
            end_connections(&mut migrator).await;
            let mut statements = pool.statements(tenant).await.unwrap();
            let answer = statements.execute("select 1").await;
            // The pool does not test a connection that the same tenant used just now.
            assert!(answer.is_ok() || !is_tested, "{answer:?}");
            drop(statements);
            pool.shares.all_free().await;
            let mut again = pool.statements(tenants[0]).await.unwrap();
            again.execute("select 1").await.unwrap();
            again.end();
        }
    }

    #[tokio::test]
    async fn after_a_statement_that_failed_the_pool_tests_its_other_connections() {
        let database = testkit::database().await;
        let pool = TenantPool::new(&database.app_url, 4).unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let mut migrator = PgConnection::connect(&database.migrator_url).await.unwrap();
        for held in futures::future::try_join_all([(); 3].map(|()| pool.statements(tenant))).await.unwrap() {
            held.end();
        }
        end_connections(&mut migrator).await;
        // The pool does not test a connection that was used just now.
        drop(pool.statements(tenant).await.unwrap().fetch_one(sqlx::query("select 1")).await);
        pool.shares.all_free().await;
        for _ in 0..3 {
            pool.statements(tenant).await.unwrap().fetch_one(sqlx::query("select 1")).await.unwrap();
        }
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
