//! The loan of a connection: how it is made ready, and how it comes back.

use super::connection::{Connector, Purpose};
use deadpool::managed::Object;
use shares::Permit;
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};
use tokio::runtime::Handle;

/// A statement that gets its parameters.
pub(crate) type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// Time for a rollback, and for the statement before it whose caller is gone. Postgres ends that statement soon after its connection closes.
const ROLLBACK: Duration = Duration::from_secs(5);

/// A transaction of one tenant. Dropped without a commit, it is rolled back.
#[derive(Debug)]
pub(crate) struct Tx(pub(super) Loan);

/// A connection on which each statement is a transaction of its own, of one tenant. Dropped before [`Statements::end`], it waits for the statement that is
/// under way.
#[derive(Debug)]
pub(crate) struct Statements(pub(super) Loan);

/// A connection that comes back when this value is dropped.
#[derive(Debug)]
pub(super) struct Loan {
    /// `None` only while it is dropped.
    held: Option<LentConnection>,
    /// The statement that ends what is under way; `None`: nothing is.
    undo: Option<&'static str>,
}

/// A connection with the permit of its tenant.
#[derive(Debug)]
struct LentConnection {
    // The connection comes back before the permit, so that the next holder of the permit finds it.
    connection: Object<Connector>,
    /// `None` before the transaction has begun, and in one without a tenant.
    permit: Option<Permit>,
}

impl Tx {
    /// Commits.
    ///
    /// # Errors
    /// Those of Postgres; it is then unknown whether it committed.
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.execute("commit").await?;
        self.0.undo = None;
        Ok(())
    }
}

impl Statements {
    /// Gives the connection back. The last statement is over.
    pub(crate) fn end(mut self) {
        self.0.undo = None;
    }

    /// Runs the only statement, and returns its rows.
    pub(crate) async fn fetch_all(mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        let rows = statement.fetch_all(&mut *self).await?;
        self.end();
        Ok(rows)
    }

    /// Runs the only statement, and returns its first row if it has any.
    pub(crate) async fn fetch_optional(
        mut self,
        statement: Statement<'_>,
    ) -> Result<Option<PgRow>, sqlx::Error> {
        let row = statement.fetch_optional(&mut *self).await?;
        self.end();
        Ok(row)
    }

    /// Runs the only statement, and returns its first row.
    ///
    /// # Errors
    /// Those of Postgres; `RowNotFound`.
    pub(crate) async fn fetch_one(self, statement: Statement<'_>) -> Result<PgRow, sqlx::Error> {
        self.fetch_optional(statement).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// Runs the only statement, and returns the number of rows that it changed. If an error is that of the connection, it is unknown whether it changed them.
    pub(crate) async fn run(mut self, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
        let result = statement.execute(&mut *self).await?;
        self.end();
        Ok(result.rows_affected())
    }
}

impl Loan {
    pub(super) fn new(connection: Object<Connector>, purpose: Purpose) -> Self {
        Self { held: Some(LentConnection { connection, permit: None }), undo: Some(purpose.undo()) }
    }

    /// The same, with the permit of a tenant.
    pub(super) fn with(mut self, permit: Permit) -> Self {
        if let Some(held) = &mut self.held {
            held.permit = Some(permit);
        }
        self
    }

    pub(super) async fn prepare(&mut self, purpose: Purpose) -> Result<(), sqlx::Error> {
        let Some(LentConnection { connection, .. }) = &mut self.held else { return Ok(()) };
        let tenant = match purpose {
            Purpose::Statements(tenant) => Some(tenant),
            // A setting of a transaction ends with it.
            Purpose::Transaction(_) | Purpose::TransactionWithoutTenant => connection.tenant,
        };
        // Unknown until Postgres has answered.
        connection.tenant = None;
        connection.postgres.execute(AssertSqlSafe(purpose.statement())).await?;
        connection.tenant = tenant;
        Ok(())
    }

    /// Closes the connection, which ends what is under way.
    pub(super) fn discard(mut self) {
        if let Some(held) = self.held.take() {
            held.discard();
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        match self.undo {
            None => held.connection.postgres.shrink_buffers(),
            // At once: a transaction may hold locks.
            Some(undo) if Handle::try_current().is_ok() => drop(tokio::spawn(held.end(undo))),
            Some(_) => held.discard(),
        }
    }
}

impl LentConnection {
    /// Ends what is under way, whatever the last statement was doing.
    async fn end(mut self, undo: &'static str) {
        match tokio::time::timeout(ROLLBACK, self.connection.postgres.execute(undo)).await {
            Ok(Ok(_)) => self.connection.postgres.shrink_buffers(),
            Ok(Err(_)) | Err(_) => self.discard(),
        }
    }

    /// Closes the connection instead of giving it back. Postgres may have closed the others too.
    fn discard(self) {
        if let Some(pool) = Object::pool(&self.connection) {
            pool.manager().note_discarded();
        }
        drop(Object::take(self.connection));
    }
}

impl Deref for Loan {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.held {
            Some(held) => &held.connection.postgres,
            None => unreachable!("a connection is used that was given back"),
        }
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.held {
            Some(held) => &mut held.connection.postgres,
            None => unreachable!("a connection is used that was given back"),
        }
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

impl Deref for Statements {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Statements {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}
