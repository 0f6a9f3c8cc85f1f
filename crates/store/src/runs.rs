//! The control row: taking a session over, and giving it back.

use crate::{Store, error::Error, record::Fence, signed, unsigned};
use domain::{
    ids::{SessionId, TenantId},
    limits,
};
use sqlx::Row as _;
use uuid::Uuid;

/// A session that was taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The right to write, before the first write.
    pub fence: Fence,
    /// The newest input that a loop has taken.
    pub input_ack: u64,
    /// Take-overs since the last progress, with this one.
    pub attempts: i16,
}

impl Store {
    /// Takes a session for the worker `owner`: from runnable, or from a worker that is dead by the database's clock.
    /// Gives `None` when it is not to be had. After too many attempts without progress it is quarantined instead.
    ///
    /// # Errors
    /// `Db`: taken or not; what was taken in doubt is found by [`Store::list_held`].
    pub async fn take_session(
        &self,
        tenant: TenantId,
        session: &SessionId,
        owner: Uuid,
    ) -> Result<Option<Taken>, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "update session_run r set
                epoch = case when attempts < $4 then epoch + 1 else epoch end,
                write_seq = case when attempts < $4 then 0 else write_seq end,
                phase = case when attempts < $4 then 2 else 4 end,
                owner = case when attempts < $4 then $3 end,
                waiting_reason = case when attempts < $4 then null
                                      else 'its loop ended ' || attempts || ' times without progress' end,
                attempts = attempts + case when attempts < $4 then 1 else 0 end,
                wake_at = null
              where r.tenant_id = $1 and r.session_id = $2
                and (r.phase = 1 or (r.phase = 2 and not coalesce(worker_alive(r.owner), false)))
             returning phase, epoch, input_ack, attempts",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(owner)
        .bind(limits::ATTEMPTS_MAX)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        let Some(row) = row else { return Ok(None) };
        if row.try_get::<i16, _>("phase")? != 2 {
            return Ok(None);
        }
        let epoch = unsigned(row.try_get("epoch")?);
        Ok(Some(Taken {
            fence: Fence { tenant, session: session.clone(), epoch, write_seq: 0 },
            input_ack: unsigned(row.try_get("input_ack")?),
            attempts: row.try_get("attempts")?,
        }))
    }

    /// Gives a session back so that another worker goes on with it at once. A clean hand-over is no failed attempt.
    /// Nothing happens when somebody else has it already.
    ///
    /// # Errors
    /// `Db`.
    pub async fn hand_over(&self, fence: &Fence) -> Result<(), Error> {
        let mut tx = self.begin(fence.tenant).await?;
        sqlx::query(
            "update session_run set phase = 1, owner = null, queued_at = now(), attempts = greatest(attempts - 1, 0)
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = 2",
        )
        .bind(fence.tenant.0)
        .bind(fence.session.as_str())
        .bind(signed(fence.epoch))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Gives a session back whose loop failed on this worker; the attempt counts.
    /// Nothing happens when somebody else has it already.
    ///
    /// # Errors
    /// `Db`.
    pub async fn fail_attempt(&self, tenant: TenantId, session: &SessionId, epoch: u64) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query(
            "update session_run set phase = 1, owner = null, queued_at = now()
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = 2",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(epoch))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Gives the place of a runnable session in its tenant's queue, from 1; 0 when it is not runnable.
    ///
    /// # Errors
    /// `Db`.
    pub async fn get_queue_position(&self, tenant: TenantId, session: &SessionId) -> Result<u32, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "select count(q.session_id) as position from session_run r
               join session_run q on q.tenant_id = r.tenant_id and q.phase = 1
                and (q.queued_at, q.session_id) <= (r.queued_at, r.session_id)
              where r.tenant_id = $1 and r.session_id = $2 and r.phase = 1",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_one(&mut *tx)
        .await?;
        Ok(u32::try_from(row.try_get::<i64, _>("position")?).unwrap_or(u32::MAX))
    }
}
