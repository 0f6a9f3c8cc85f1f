//! Every query that crosses tenants, and no other. They log in as `flotilla_system`, and give ids, never contents.

use crate::{Page, Store, error::Error, tenants};
use domain::{
    ids::{SessionId, TenantId},
    limits,
};
use sqlx::{Row as _, postgres::PgRow};
use tenants::Tenant;
use uuid::Uuid;

/// A session by its full name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
}

fn place(row: &PgRow) -> Result<Place, Error> {
    let session: String = row.try_get("session_id")?;
    Ok(Place {
        tenant: TenantId(row.try_get("tenant_id")?),
        session: session.parse().map_err(|error| Error::unreadable("session", error))?,
    })
}

impl Store {
    /// Finds whose key has this SHA-256; `None` for an unknown or revoked one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_key(&self, secret_sha256: &[u8]) -> Result<Option<Tenant>, Error> {
        let row = sqlx::query(
            "select t.id, t.name, t.running_max, t.created_at from api_key k join tenant t on t.id = k.tenant_id
              where k.secret_sha256 = $1 and k.revoked_at is null",
        )
        .bind(secret_sha256)
        .fetch_optional(&self.system)
        .await?;
        Ok(row.as_ref().map(tenants::from_row).transpose()?)
    }

    /// Makes a tenant, or gives the one of that name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn create_tenant(&self, id: TenantId, name: &str) -> Result<Tenant, Error> {
        let row = sqlx::query(
            "insert into tenant (id, name, running_max) values ($1, $2, $3)
             on conflict (name) do update set name = excluded.name returning id, name, running_max, created_at",
        )
        .bind(id.0)
        .bind(name)
        .bind(i32::try_from(limits::TENANT_RUNNING_MAX).unwrap_or(i32::MAX))
        .fetch_one(&self.system)
        .await?;
        Ok(tenants::from_row(&row)?)
    }

    /// Lists tenants by name; the cursor is the last name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_tenants(&self, page: &Page) -> Result<Vec<Tenant>, Error> {
        let rows = sqlx::query(
            "select id, name, running_max, created_at from tenant where name > $1 order by name limit $2",
        )
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit())
        .fetch_all(&self.system)
        .await?;
        Ok(rows.iter().map(tenants::from_row).collect::<Result<_, _>>()?)
    }

    /// Renews the lease of a worker, making it known at the first call. Gives the sessions of that worker whose abort
    /// no loop has taken.
    ///
    /// # Errors
    /// `Db`: the lease may be about to end.
    pub async fn renew_worker(
        &self,
        incarnation: Uuid,
        name: &str,
        draining: bool,
    ) -> Result<Vec<Place>, Error> {
        sqlx::query(
            "insert into worker (incarnation, name, lease_until, draining)
             values ($1, $2, now() + $3 * interval '1 millisecond', $4)
             on conflict (incarnation) do update set lease_until = excluded.lease_until, draining = excluded.draining",
        )
        .bind(incarnation)
        .bind(name)
        .bind(i32::try_from(limits::LEASE_TTL_MS).unwrap_or(i32::MAX))
        .bind(draining)
        .execute(&self.system)
        .await?;
        let rows = sqlx::query(
            "select tenant_id, session_id from session_run where phase = 2 and owner = $1 and cancel_seq > input_ack",
        )
        .bind(incarnation)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(place).collect()
    }

    /// Lists sessions that a worker owns, each with its epoch; as many as one sweep takes.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_held(&self, incarnation: Uuid) -> Result<Vec<(Place, u64)>, Error> {
        let rows = sqlx::query(
            "select tenant_id, session_id, epoch from session_run where phase = 2 and owner = $1",
        )
        .bind(incarnation)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(|row| Ok((place(row)?, crate::unsigned(row.try_get("epoch")?)))).collect()
    }

    /// Ends the lease of a worker that has no session left.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_worker(&self, incarnation: Uuid) -> Result<(), Error> {
        sqlx::query("delete from worker where incarnation = $1")
            .bind(incarnation)
            .execute(&self.system)
            .await?;
        Ok(())
    }

    /// Makes sessions runnable whose timer is over, and gives how many.
    ///
    /// # Errors
    /// `Db`.
    pub async fn wake_due(&self) -> Result<u64, Error> {
        let done = sqlx::query(
            "update session_run set phase = 1, wake_at = null, queued_at = now(), waiting_reason = null
              where wake_at <= now() and phase = 3",
        )
        .execute(&self.system)
        .await?;
        Ok(done.rows_affected())
    }

    /// Lists runnable sessions, longest waiting first.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_runnable(&self, limit: i64) -> Result<Vec<Place>, Error> {
        let rows = sqlx::query(
            "select tenant_id, session_id from session_run where phase = 1 order by queued_at nulls first limit $1",
        )
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(place).collect()
    }

    /// Lists sessions whose worker is dead by the database's clock.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_orphaned(&self, limit: i64) -> Result<Vec<Place>, Error> {
        let rows = sqlx::query(
            "select r.tenant_id, r.session_id from session_run r left join worker w on w.incarnation = r.owner
              where r.phase = 2 and (w.lease_until is null or w.lease_until <= now()) limit $1",
        )
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(place).collect()
    }

    /// Lists sessions that a living worker owns, with that worker: what a wiped Redis must be told.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_owned(&self, limit: i64) -> Result<Vec<(Place, Uuid)>, Error> {
        let rows = sqlx::query(
            "select r.tenant_id, r.session_id, r.owner from session_run r join worker w on w.incarnation = r.owner
              where r.phase = 2 and w.lease_until > now() limit $1",
        )
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(|row| Ok((place(row)?, row.try_get("owner")?))).collect()
    }

    /// Gives how long Postgres has been up, in milliseconds: right after a restart every lease looks ended.
    ///
    /// # Errors
    /// `Db`.
    pub async fn get_uptime_ms(&self) -> Result<u64, Error> {
        let row = sqlx::query(
            "select (extract(epoch from now() - pg_postmaster_start_time()) * 1000)::bigint as ms",
        )
        .fetch_one(&self.system)
        .await?;
        Ok(crate::unsigned(row.try_get("ms")?))
    }
}
