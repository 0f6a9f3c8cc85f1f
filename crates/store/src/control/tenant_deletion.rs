//! Deletes tenants with everything that belongs to them. An operator's call only marks the tenant; workers do the rest in batches, because a tenant
//! may have millions of rows.

use crate::{
    Store,
    column::parse_id,
    error::{Entity, Error},
};
use domain::ids::{SessionId, TenantId};
use sqlx::{AssertSqlSafe, Row as _};

impl Store {
    /// Marks a tenant as deleted: from now on its keys are unknown, its secrets are gone, and lists omit it. Its name can be used again.
    ///
    /// # Errors
    /// `NotFound`: there is no such tenant, or it is deleted already. `Db`: repeat the call to find out.
    pub async fn delete_tenant(&self, tenant: TenantId) -> Result<(), Error> {
        let mut tx = self.begin_system().await?;
        // Names have no colon, so no other tenant can have this one.
        let marked = sqlx::query(
            "update tenant set deleted_at = now(), name = 'deleted:' || id where id = $1 and deleted_at is null",
        )
        .bind(tenant.0)
        .execute(&mut *tx)
        .await?;
        if marked.rows_affected() == 0 {
            return Err(Error::NotFound(Entity::Tenant));
        }
        for deletion in
            ["delete from api_key where tenant_id = $1", "delete from secret where tenant_id = $1"]
        {
            sqlx::query(deletion).bind(tenant.0).execute(&mut *tx).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Lists at most `limit` tenants that are marked as deleted, the oldest deletion first.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_deleted_tenants(&self, limit: i64) -> Result<Vec<TenantId>, Error> {
        let rows = sqlx::query_scalar(
            "select id from tenant where deleted_at is not null order by deleted_at, id limit $1",
        )
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        Ok(rows.into_iter().map(TenantId).collect())
    }

    /// Lists at most `limit` root sessions of a tenant.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_roots(&self, tenant: TenantId, limit: i64) -> Result<Vec<SessionId>, Error> {
        let rows = sqlx::query(
            "select id from session where tenant_id = $1 and parent_id is null order by id limit $2",
        )
        .bind(tenant.0)
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(|row| parse_id("session", row.try_get("id")?)).collect()
    }

    /// Deletes a batch of a deleted tenant's rows that belong to no session. Returns their number; 0 at the end.
    ///
    /// # Errors
    /// `Db`: some of them.
    pub async fn delete_tenant_rows(&self, tenant: TenantId) -> Result<u64, Error> {
        let mut deleted = 0;
        // Tables with many rows that belong to the tenant and to none of its sessions, and how many rows of each are deleted at once.
        for (deletion, limit) in [
            // A bundle may have 256 MiB, in 130,000 rows of Postgres' own.
            (deletion("bundle"), 4_i64),
            (deletion("ledger"), 10_000),
            (deletion("session_tombstone"), 10_000),
        ] {
            let result =
                sqlx::query(AssertSqlSafe(deletion)).bind(tenant.0).bind(limit).execute(&self.system).await?;
            deleted += result.rows_affected();
        }
        Ok(deleted)
    }

    /// Deletes the tenant itself with the rows that are left, and orders the removal of all of its files.
    ///
    /// # Errors
    /// `NotFound`: it is not marked as deleted. `Db`: repeat the call.
    pub async fn finish_tenant_deletion(&self, tenant: TenantId) -> Result<(), Error> {
        let mut tx = self.system.begin().await?;
        sqlx::query("delete from node_removal where tenant_id = $1").bind(tenant.0).execute(&mut *tx).await?;
        sqlx::query(
            "insert into node_removal (tenant_id, session_id, epoch, next_at) values ($1, '', 0, now())
             on conflict do nothing",
        )
        .bind(tenant.0)
        .execute(&mut *tx)
        .await?;
        let deleted = sqlx::query("delete from tenant where id = $1 and deleted_at is not null")
            .bind(tenant.0)
            .execute(&mut *tx)
            .await?;
        if deleted.rows_affected() == 0 {
            return Err(Error::NotFound(Entity::Tenant));
        }
        Ok(tx.commit().await?)
    }
}

/// The statement that deletes some rows of a deleted tenant.
fn deletion(table: &str) -> String {
    format!(
        "delete from {table} where ctid = any (array(
           select r.ctid from {table} r join tenant t on t.id = r.tenant_id
            where r.tenant_id = $1 and t.deleted_at is not null limit $2))"
    )
}
