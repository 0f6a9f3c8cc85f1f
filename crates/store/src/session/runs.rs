//! The control row: taking a session over, and giving it back.

use crate::{Store, error::Error, guard::guarded, log::record::Fence, signed, unsigned};
use domain::{
    ids::{SessionId, TenantId},
    limits,
    mutant::Mutant,
    wait::Reason,
};
use sqlx::{Postgres, Row as _, Transaction};
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

impl Taken {
    /// Whether its loop ended more than once without progress: it may be what ends its worker.
    pub fn is_suspect(&self) -> bool {
        self.attempts > limits::ATTEMPTS_SUSPECT
    }
}

/// What a take-over found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// It is ours.
    Yes(Taken),
    /// Somebody else has it, or it needs no worker.
    No,
    /// It is a suspect, and this worker has one already.
    Suspect,
    /// It was tried too often: it is to be quarantined.
    Exhausted {
        /// How often.
        attempts: i16,
    },
}

/// Whether a worker takes a suspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspects {
    /// It has none.
    Taken,
    /// It has one.
    Left,
}

impl Store {
    /// Takes a session for the worker `owner`: from runnable, or from a worker that is dead by the database's clock.
    ///
    /// # Errors
    /// `Db`: taken or not; what was taken in doubt is found by [`Store::list_held`].
    pub async fn take_session(
        &self,
        tenant: TenantId,
        session: &SessionId,
        owner: Uuid,
        suspects: Suspects,
    ) -> Result<Take, Error> {
        let attempts_max = match suspects {
            Suspects::Taken => limits::ATTEMPTS_MAX,
            Suspects::Left => limits::ATTEMPTS_SUSPECT,
        };
        let mut tx = self.begin(tenant).await?;
        let sql = guarded(
            "update session_run r set epoch = epoch + 1, write_seq = 0, phase = 2, owner = $3, owned_at = now(),
                    waiting_reason = null, waiting_detail = null, attempts = attempts + 1, wake_at = null
              where r.tenant_id = $1 and r.session_id = $2 and r.attempts < $4
                and (r.phase = 1 or (r.phase = 2 and not coalesce(worker_alive(r.owner), false)))
             returning epoch, input_ack, attempts",
            &[(Mutant::AliveUnchecked, "not coalesce(worker_alive(r.owner), false)", "r.owner <> $3")],
        );
        let row = sqlx::query(sql)
            .bind(tenant.0)
            .bind(session.as_str())
            .bind(owner)
            .bind(attempts_max)
            .fetch_optional(&mut *tx)
            .await?;
        let Some(row) = row else { return why_not(tx, tenant, session).await };
        tx.commit().await?;
        let epoch = unsigned(row.try_get("epoch")?);
        Ok(Take::Yes(Taken {
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
            "update session_run set phase = 1, owner = null, queued_at = coalesce(owned_at, now()), owned_at = null,
                    attempts = greatest(attempts - 1, 0)
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

    /// Gives a session back whose loop failed on this worker; the attempt counts, and a suspect pauses first, unless an
    /// abort that no loop has taken waits for its end. Nothing happens when somebody else has it already.
    ///
    /// # Errors
    /// `Db`.
    pub async fn fail_attempt(&self, tenant: TenantId, session: &SessionId, epoch: u64) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query(
            "update session_run set owner = null, owned_at = null, queued_at = now(),
                    phase = case when attempts < $4 or cancel_seq > input_ack then 1 else 3 end, waiting_at = now(),
                    waiting_reason = case when attempts < $4 or cancel_seq > input_ack then null else $6 end,
                    wake_at = case when attempts < $4 or cancel_seq > input_ack then null
                                   else now() + $5 * power(2, attempts - $4) * interval '1 millisecond' end
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = 2",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(epoch))
        .bind(limits::ATTEMPTS_SUSPECT)
        .bind(milliseconds(limits::SUSPECT_PAUSE_MS))
        .bind(Reason::FailedAttempt.as_str())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Leaves a session to a worker of another version: what is stored cannot be read here. It is no failed attempt.
    ///
    /// # Errors
    /// `Db`.
    pub async fn refuse(&self, fence: &Fence, why: &str) -> Result<(), Error> {
        let mut tx = self.begin(fence.tenant).await?;
        sqlx::query(
            "update session_run set phase = 3, owner = null, owned_at = null, attempts = greatest(attempts - 1, 0),
                    waiting_reason = $4, waiting_detail = $5, waiting_at = now(), wake_at = now() + $6 * interval '1 millisecond'
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = 2",
        )
        .bind(fence.tenant.0)
        .bind(fence.session.as_str())
        .bind(signed(fence.epoch))
        .bind(Reason::NewerWorker.as_str())
        .bind(why)
        .bind(milliseconds(limits::UNREADABLE_PAUSE_MS))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }
}

pub(crate) fn milliseconds(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Why a session could not be taken.
async fn why_not(
    mut tx: Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Take, Error> {
    let row = sqlx::query(
        "select attempts from session_run r where r.tenant_id = $1 and r.session_id = $2
            and (r.phase = 1 or (r.phase = 2 and not coalesce(worker_alive(r.owner), false)))",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(Take::No) };
    let attempts = row.try_get("attempts")?;
    Ok(if attempts >= limits::ATTEMPTS_MAX {
        Take::Exhausted { attempts }
    } else if attempts >= limits::ATTEMPTS_SUSPECT {
        Take::Suspect
    } else {
        // It became free between the two queries; the next look takes it.
        Take::No
    })
}
