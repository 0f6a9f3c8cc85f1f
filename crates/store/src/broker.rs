//! The broker's own tables: sealed secrets, the identities of their keys, and what sessions reached of the network. Their handle logs in as
//! `flotilla_broker`, which reaches nothing else.

pub mod accesses;
pub mod forge;
pub mod keys;
pub mod secrets;

use crate::{error::Error, pool::TenantPool};

/// A handle to the broker's tables. Clones share its connections.
#[derive(Debug, Clone)]
pub struct BrokerStore(pub(crate) TenantPool);

impl BrokerStore {
    /// Creates a handle that connects with its first query, so this succeeds even while Postgres is down.
    ///
    /// # Errors
    /// `Db`: the URL is malformed.
    pub fn connect(url: &str, connections_max: u32) -> Result<Self, Error> {
        Ok(Self(TenantPool::new(url, connections_max)?))
    }

    /// Checks that the role can reach the database.
    ///
    /// # Errors
    /// `Db`: it cannot.
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.ping().await
    }

    /// Closes all connections, after the queries in flight have ended.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
