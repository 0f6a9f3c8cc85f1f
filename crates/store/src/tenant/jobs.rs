//! The mailboxes and the states of jobs. `control::jobs` finds those that are due.

use crate::{
    Store,
    column::{milliseconds, signed, unsigned},
    error::Error,
};
use domain::ids::TenantId;
use sqlx::Row as _;

/// Inputs that one round of a job takes. Further ones come with the next.
const INPUTS_TAKEN_MAX: i64 = 100;

/// The right to write a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFence {
    pub tenant: TenantId,
    pub id: String,
    pub epoch: u64,
}

/// A job that is to exist, with its first state.
#[derive(Debug, Clone, Copy)]
pub struct NewJob<'a> {
    pub id: &'a str,
    pub kind: &'a str,
    /// JSON.
    pub state: &'a str,
}

/// An input that a job has not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobInput {
    pub seq: u64,
    /// JSON.
    pub body: String,
}

/// What a job leaves behind when it rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobRest {
    /// The signals that it has looked at. If there are more by now, it wakes at once.
    pub seen_signals: u64,
    /// When it wakes without an input or a signal.
    pub wake_after_ms: Option<u64>,
}

impl Store {
    /// Creates a job unless it exists, and puts an input into its mailbox unless it is there. It wakes at once.
    ///
    /// # Errors
    /// `Db`: stored or not; the same again changes nothing.
    pub async fn send_to_job(
        &self,
        tenant: TenantId,
        new: NewJob<'_>,
        dedupe: &str,
        body: &str,
    ) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query(
            "insert into job (tenant_id, id, kind, state) values ($1, $2, $3, $4::json) on conflict do nothing",
        )
        .bind(tenant.0)
        .bind(new.id)
        .bind(new.kind)
        .bind(new.state)
        .execute(&mut *tx)
        .await?;
        // The row lock orders the inputs.
        sqlx::query("select 1 from job where tenant_id = $1 and id = $2 for update")
            .bind(tenant.0)
            .bind(new.id)
            .execute(&mut *tx)
            .await?;
        let inserted = sqlx::query(
            "insert into job_input (tenant_id, job_id, seq, dedupe, body)
             select tenant_id, id, input_seq + 1, $3, $4::json from job where tenant_id = $1 and id = $2
             on conflict (tenant_id, job_id, dedupe) do nothing",
        )
        .bind(tenant.0)
        .bind(new.id)
        .bind(dedupe)
        .bind(body)
        .execute(&mut *tx)
        .await?;
        if inserted.rows_affected() > 0 {
            sqlx::query(
                "update job set input_seq = input_seq + 1, attempts = 0, wake_at = least(coalesce(wake_at, now()), now())
                  where tenant_id = $1 and id = $2",
            )
            .bind(tenant.0)
            .bind(new.id)
            .execute(&mut *tx)
            .await?;
        }
        Ok(tx.commit().await?)
    }

    /// Lists the inputs of a job after `ack`, in order.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_job_inputs(&self, fence: &JobFence, ack: u64) -> Result<Vec<JobInput>, Error> {
        let query = sqlx::query(
            "select seq, body::text as body from job_input where tenant_id = $1 and job_id = $2 and seq > $3 order by seq limit $4",
        )
        .bind(fence.tenant.0)
        .bind(&fence.id)
        .bind(signed(ack))
        .bind(INPUTS_TAKEN_MAX);
        let rows = self.statements(fence.tenant).await?.fetch_all(query).await?;
        let input = |row: &sqlx::postgres::PgRow| {
            Ok(JobInput { seq: unsigned(row.try_get("seq")?), body: row.try_get("body")? })
        };
        rows.iter().map(input).collect()
    }

    /// Stores the state of a job, and that it has taken its inputs up to `ack`. This is progress: earlier failures count no longer.
    ///
    /// # Errors
    /// `Fenced`: another worker has the job; `Db`: stored or not.
    pub async fn save_job(&self, fence: &JobFence, state: &str, ack: u64) -> Result<(), Error> {
        let update = sqlx::query(
            "update job set state = $4::json, input_ack = $5, attempts = 0, failure = ''
              where tenant_id = $1 and id = $2 and epoch = $3 and owner is not null",
        )
        .bind(fence.tenant.0)
        .bind(&fence.id)
        .bind(signed(fence.epoch))
        .bind(state)
        .bind(signed(ack));
        check_fence(self.statements(fence.tenant).await?.run(update).await?)
    }

    /// Gives a job back that has nothing to do at this moment.
    ///
    /// # Errors
    /// `Fenced`; `Db`: given back or not.
    pub async fn rest_job(&self, fence: &JobFence, rest: JobRest) -> Result<(), Error> {
        let update = sqlx::query(
            "update job set owner = null, wake_at = case
                 when signals <> $4 or input_seq > input_ack then now()
                 else now() + $5::double precision * interval '1 millisecond' end
              where tenant_id = $1 and id = $2 and epoch = $3 and owner is not null",
        )
        .bind(fence.tenant.0)
        .bind(&fence.id)
        .bind(signed(fence.epoch))
        .bind(signed(rest.seen_signals))
        .bind(rest.wake_after_ms.map(milliseconds));
        check_fence(self.statements(fence.tenant).await?.run(update).await?)
    }

    /// Gives a job back whose action failed. It wakes after `pause_ms`.
    ///
    /// # Errors
    /// `Fenced`; `Db`.
    pub async fn fail_job(&self, fence: &JobFence, failure: &str, pause_ms: u64) -> Result<(), Error> {
        let update = sqlx::query(
            "update job set owner = null, failure = $4, attempts = least(attempts + 1, 1000)::smallint,
                    wake_at = now() + $5 * interval '1 millisecond'
              where tenant_id = $1 and id = $2 and epoch = $3 and owner is not null",
        )
        .bind(fence.tenant.0)
        .bind(&fence.id)
        .bind(signed(fence.epoch))
        .bind(failure)
        .bind(milliseconds(pause_ms));
        check_fence(self.statements(fence.tenant).await?.run(update).await?)
    }
}

fn check_fence(rows: u64) -> Result<(), Error> {
    if rows == 0 { Err(Error::Fenced) } else { Ok(()) }
}
