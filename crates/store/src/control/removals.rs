//! What the sandbox must still remove: the files of deleted sessions. A worker repeats each removal until the sandbox has confirmed it.

pub mod rows;

use crate::{
    Store,
    column::{milliseconds, parse_id, signed, unsigned},
    error::Error,
};
use domain::ids::{SessionId, TenantId};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow};

/// First pause before a removal is tried again; doubled each time; milliseconds.
const RETRY_PAUSE_MS: u64 = 5_000;
/// Longest pause: a machine that returns is clean again within this time; milliseconds.
const RETRY_PAUSE_MAX_MS: u64 = 10 * 60 * 1_000;

/// Files that the sandbox must remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    pub tenant: TenantId,
    pub session: SessionId,
    /// The epoch of the removal: above those of all loops of the session.
    pub epoch: u64,
}

impl Store {
    /// Returns at most `limit` removals that are due, the longest due first, and puts off the next attempt at each. Another worker that
    /// asks at the same time gets others.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn claim_removals(&self, limit: i64) -> Result<Vec<Removal>, Error> {
        self.claim("session_id <> ''", limit).await?.iter().map(removal).collect()
    }

    /// Like [`Store::claim_removals`], for the tenants that are deleted: everything that the sandbox has of them must go.
    ///
    /// # Errors
    /// `Db`.
    pub async fn claim_tenant_removals(&self, limit: i64) -> Result<Vec<TenantId>, Error> {
        let rows = self.claim("session_id = ''", limit).await?;
        rows.iter().map(|row| Ok(TenantId(row.try_get("tenant_id")?))).collect()
    }

    async fn claim(&self, condition: &'static str, limit: i64) -> Result<Vec<PgRow>, Error> {
        let sql = format!(
            "with due as materialized (
               select tenant_id, session_id from node_removal where next_at <= now() and {condition}
                order by next_at limit $1 for update skip locked)
             update node_removal r set tries = r.tries + 1,
                    next_at = now() + least($2 * 2 ^ least(r.tries, 20), $3) * interval '1 millisecond'
               from due where r.tenant_id = due.tenant_id and r.session_id = due.session_id
             returning r.tenant_id, r.session_id, r.epoch"
        );
        let claim = sqlx::query(AssertSqlSafe(sql)).bind(limit).bind(milliseconds(RETRY_PAUSE_MS));
        Ok(claim.bind(milliseconds(RETRY_PAUSE_MAX_MS)).fetch_all(&self.system).await?)
    }

    /// Forgets a removal that the sandbox has confirmed, unless the session was deleted once more under a higher epoch.
    ///
    /// # Errors
    /// `Db`: forgotten or not; a removal that is repeated changes nothing.
    pub async fn finish_removal(&self, removal: &Removal) -> Result<(), Error> {
        sqlx::query("delete from node_removal where tenant_id = $1 and session_id = $2 and epoch = $3")
            .bind(removal.tenant.0)
            .bind(removal.session.as_str())
            .bind(signed(removal.epoch))
            .execute(&self.system)
            .await?;
        Ok(())
    }

    /// Like [`Store::finish_removal`], for everything of a tenant.
    ///
    /// # Errors
    /// `Db`: forgotten or not.
    pub async fn finish_tenant_removal(&self, tenant: TenantId) -> Result<(), Error> {
        sqlx::query("delete from node_removal where tenant_id = $1")
            .bind(tenant.0)
            .execute(&self.system)
            .await?;
        Ok(())
    }
}

fn removal(row: &PgRow) -> Result<Removal, Error> {
    Ok(Removal {
        tenant: TenantId(row.try_get("tenant_id")?),
        session: parse_id("removal", row.try_get("session_id")?)?,
        epoch: unsigned(row.try_get("epoch")?),
    })
}
