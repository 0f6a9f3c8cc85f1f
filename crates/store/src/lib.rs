//! Postgres: the only truth, and the only crate with SQL. Every function takes the tenant first; `control` holds the few queries
//! that cross tenants. Row-level security is the second lock: a query with a forgotten filter returns nothing.

pub mod audit;
pub mod broker;
pub mod control;
pub mod error;
pub mod log;
pub mod loop_start;
pub mod migrate;
pub mod people;
pub mod rows;
pub mod schema;
pub mod session;
pub mod tenant;

mod column;
mod phase;
mod pool;

use domain::{ids::TenantId, limits};
use error::Error;
use pool::{Statements, TenantPool, Tx};
use sqlx::{PgConnection, PgPool};
use std::sync::Arc;

/// Connections of the role that sees all tenants. Its queries come from loops of our own.
const SYSTEM_CONNECTIONS: u32 = 4;

/// A handle to the database. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Store {
    /// Logs in as `flotilla_app`, which sees one tenant at a time.
    app: TenantPool,
    /// Logs in as `flotilla_system`, which sees all tenants. Only `control` uses it.
    system: PgPool,
    /// Who changes something through this handle; `None`: the service itself.
    actor: Option<Arc<Actor>>,
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

/// The person or program in whose name something changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of its key.
    pub name: String,
    /// The public first part of the key; empty for the operator's.
    pub key: String,
}

impl Actor {
    /// Names the actor to the triggers of the audit until the end of a transaction.
    pub(crate) async fn act_in(&self, tx: &mut PgConnection) -> Result<(), Error> {
        sqlx::query(
            "select set_config('flotilla.actor', $1, true), set_config('flotilla.actor_key', $2, true)",
        )
        .bind(&self.name)
        .bind(&self.key)
        .execute(tx)
        .await?;
        Ok(())
    }
}

impl Store {
    /// Creates a handle that connects with its first query, so this succeeds even while Postgres is down.
    ///
    /// # Errors
    /// `Db`: a URL is malformed.
    pub fn connect(app_url: &str, system_url: &str, connections_max: u32) -> Result<Self, Error> {
        let app = TenantPool::new(app_url, connections_max)?;
        Ok(Self { app, system: pool::connect(system_url, SYSTEM_CONNECTIONS)?, actor: None })
    }

    /// Begins a transaction that sees only the rows of `tenant`: for several writes, and for rows that are locked until a later statement. Every access
    /// to the rows of a tenant goes through it, or through [`Store::statements`].
    async fn begin(&self, tenant: TenantId) -> Result<Tx, Error> {
        let mut tx = self.app.begin(tenant).await?;
        if let Some(actor) = &self.actor {
            actor.act_in(&mut tx).await?;
        }
        Ok(tx)
    }

    /// Gives a connection for statements that each are a transaction of their own and see only the rows of `tenant`: for a single write, and for reads,
    /// also of several statements, because each statement of a transaction sees what is committed when it begins, too.
    ///
    /// If Postgres closed the connection just now, the first statement fails, where [`Store::begin`] would have taken another connection. The caller gets a
    /// transient error, as if Postgres had closed the connection during the statement. The pool tests its other connections before it lends them again.
    async fn statements(&self, tenant: TenantId) -> Result<Statements, Error> {
        self.app.statements(tenant).await
    }

    /// Checks that both roles can reach the database.
    ///
    /// # Errors
    /// `Db`: at least one of them cannot.
    pub async fn ping(&self) -> Result<(), Error> {
        self.app.ping().await?;
        pool::ping(&self.system).await
    }

    /// Closes all connections, after the queries in flight have ended.
    pub async fn close(&self) {
        self.app.close().await;
        self.system.close().await;
    }
}
