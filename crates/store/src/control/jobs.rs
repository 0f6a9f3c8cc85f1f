//! Finds the jobs that are due, and claims them: first one of each tenant, then a second one, and so on. So a tenant with ten thousand of them delays nobody.

use crate::{
    Store,
    column::{signed, unsigned},
    error::Error,
    tenant::jobs::JobFence,
};
use domain::ids::TenantId;
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

/// A job that the caller is to perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedJob {
    pub fence: JobFence,
    pub kind: String,
    /// JSON.
    pub state: String,
    /// The position up to which it has taken its inputs.
    pub input_ack: u64,
    pub signals: u64,
    /// Failures since the last progress.
    pub attempts: i16,
}

impl Store {
    /// Claims jobs that are due, or whose worker is dead, for the worker `owner`.
    ///
    /// # Errors
    /// `Unreadable`; `Db`: claimed or not. Those that were claimed without an answer stay with the worker until [`Store::release_jobs`].
    pub async fn claim_jobs(&self, owner: Uuid, limit: u32) -> Result<Vec<ClaimedJob>, Error> {
        let rows = sqlx::query(
            "with due as (
               select tenant_id, id, wake_at from job
                where wake_at <= now() and (owner is null or not coalesce(worker_alive(owner), false))),
                  ranked as (
               select tenant_id, id, row_number() over (partition by tenant_id order by wake_at, id) as place, wake_at from due),
                  chosen as (
               select j.tenant_id, j.id from job j join ranked r on r.tenant_id = j.tenant_id and r.id = j.id
                where j.wake_at <= now() and (j.owner is null or not coalesce(worker_alive(j.owner), false))
                order by r.place, r.wake_at limit $2 for update of j skip locked)
             update job j set owner = $1, epoch = epoch + 1 from chosen c where j.tenant_id = c.tenant_id and j.id = c.id
             returning j.tenant_id, j.id, j.kind, j.epoch, j.state::text as state, j.input_ack, j.signals, j.attempts",
        )
        .bind(owner)
        .bind(i64::from(limit))
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(claimed).collect()
    }

    /// Gives back the jobs of a worker that it does not perform: an answer was lost, or it stops. `performed` are the others.
    ///
    /// # Errors
    /// `Db`.
    pub async fn release_jobs(&self, owner: Uuid, performed: &[JobFence]) -> Result<u64, Error> {
        let tenants: Vec<Uuid> = performed.iter().map(|fence| fence.tenant.0).collect();
        let ids: Vec<&str> = performed.iter().map(|fence| fence.id.as_str()).collect();
        let epochs: Vec<i64> = performed.iter().map(|fence| signed(fence.epoch)).collect();
        let released = sqlx::query(
            "update job set owner = null where owner = $1 and not exists (
               select 1 from unnest($2::uuid[], $3::text[], $4::bigint[]) as p (tenant_id, id, epoch)
                where p.tenant_id = job.tenant_id and p.id = job.id and p.epoch = job.epoch)",
        )
        .bind(owner)
        .bind(tenants)
        .bind(ids)
        .bind(epochs)
        .execute(&self.system)
        .await?;
        Ok(released.rows_affected())
    }
}

fn claimed(row: &PgRow) -> Result<ClaimedJob, Error> {
    let (tenant, id) = (TenantId(row.try_get("tenant_id")?), row.try_get("id")?);
    Ok(ClaimedJob {
        fence: JobFence { tenant, id, epoch: unsigned(row.try_get("epoch")?) },
        kind: row.try_get("kind")?,
        state: row.try_get("state")?,
        input_ack: unsigned(row.try_get("input_ack")?),
        signals: unsigned(row.try_get("signals")?),
        attempts: row.try_get("attempts")?,
    })
}
