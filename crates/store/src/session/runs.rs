//! Taking a session over, and giving it back.

use crate::{
    Statements, Store,
    column::{milliseconds, signed, unsigned},
    error::{Entity, Error},
    log::record::Fence,
    phase::{RUNNABLE, RUNNING, WAITING},
    rows::session_row::{self, SETTINGS_COLUMNS, SETTINGS_JOIN, SessionWithSettings},
};
use domain::{
    ids::{SessionId, TenantId},
    limits,
    wait::Reason,
};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

/// A worker's new ownership of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOver {
    /// The right to write, for the first write.
    pub fence: Fence,
    /// The newest input that a loop has taken.
    pub input_ack: u64,
    /// Takeovers since the last progress, including this one.
    pub attempts: i16,
}

impl TakeOver {
    /// Whether earlier loops of the session ended more than once without progress: the session may be what crashes
    /// workers.
    pub fn is_suspect(&self) -> bool {
        self.attempts > limits::ATTEMPTS_SUSPECT
    }
}

/// A session that a worker has taken over.
#[derive(Debug)]
pub struct TakenSession {
    pub take_over: TakeOver,
    /// The session as it was taken, or `Unreadable` for data of a newer version. If a client changed it just then, it may be that of before, with the position
    /// of before.
    pub stored: Result<SessionWithSettings, Error>,
}

/// The result of an attempt to take a session over.
#[derive(Debug)]
pub enum TakeResult {
    /// The worker owns the session.
    Taken(Box<TakenSession>),
    /// Another worker owns the session, or the session needs no worker.
    Unavailable,
    /// The session is a suspect, and this worker already runs one.
    Suspect,
    /// The session failed too often: the worker must quarantine it.
    Exhausted { attempts: i16 },
}

/// Whether a worker takes a suspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspectPolicy {
    /// The worker runs no suspect, so it takes one.
    Accept,
    /// The worker runs a suspect, so it takes no other.
    Skip,
}

impl Store {
    /// Takes a session for the worker `owner`: a runnable session, or one whose worker is dead by the database's clock. Returns what its loop needs of its row.
    ///
    /// # Errors
    /// `Db`: taken or not; [`Store::list_held`] finds a session whose takeover was in doubt.
    pub async fn take_session(
        &self,
        tenant: TenantId,
        session: &SessionId,
        owner: Uuid,
        suspects: SuspectPolicy,
    ) -> Result<TakeResult, Error> {
        let attempts_max = match suspects {
            SuspectPolicy::Accept => limits::ATTEMPTS_MAX,
            SuspectPolicy::Skip => limits::ATTEMPTS_SUSPECT,
        };
        let mut statements = self.statements(tenant).await?;
        let update = format!(
            "update session_run r set epoch = epoch + 1, write_seq = 0, phase = {RUNNING}, owner = $3, owned_at = now(),
                    waiting_reason = null, waiting_detail = null, attempts = attempts + 1, wake_at = null
              where r.tenant_id = $1 and r.session_id = $2 and r.attempts < $4
                and (r.phase = {RUNNABLE} or r.phase = {RUNNING} and not coalesce(worker_alive(r.owner), false))"
        );
        let columns = format!("{SETTINGS_COLUMNS}, r.input_ack, seen.event_seq as seen_event_seq");
        let joins =
            format!("{SETTINGS_JOIN} join session_run seen on seen.tenant_id = $1 and seen.session_id = $2");
        let rows = sqlx::query(session_row::write_and_select(&update, &columns, &joins))
            .bind(tenant.0)
            .bind(session.as_str())
            .bind(owner)
            .bind(attempts_max)
            .fetch_all(&mut *statements)
            .await?;
        let Some(row) = rows.first() else { return refusal(statements, tenant, session).await };
        statements.end();
        let epoch = unsigned(row.try_get("epoch")?);
        let take_over = TakeOver {
            fence: Fence { tenant, session: session.clone(), epoch, write_seq: 0 },
            input_ack: unsigned(row.try_get("input_ack")?),
            attempts: row.try_get("attempts")?,
        };
        let mut stored = SessionWithSettings::from_rows(&rows)
            .and_then(|stored| stored.ok_or(Error::NotFound(Entity::Session)));
        if let Ok(stored) = &mut stored {
            // If the update waited for a client, it found a newer control row than the select, which sees the session as it was when the statement began.
            stored.session.event_seq = unsigned(row.try_get("seen_event_seq")?);
        }
        Ok(TakeResult::Taken(Box::new(TakenSession { take_over, stored })))
    }

    /// Releases a session so that another worker continues it at once. A clean hand-over is not a failed attempt. Does nothing
    /// if another worker already owns the session.
    ///
    /// # Errors
    /// `Db`.
    pub async fn hand_over(&self, fence: &Fence) -> Result<(), Error> {
        let sql = format!(
            "update session_run set phase = {RUNNABLE}, owner = null, queued_at = coalesce(owned_at, now()),
                    owned_at = null, attempts = greatest(attempts - 1, 0)
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = {RUNNING}"
        );
        let update = sqlx::query(AssertSqlSafe(sql))
            .bind(fence.tenant.0)
            .bind(fence.session.as_str())
            .bind(signed(fence.epoch));
        self.statements(fence.tenant).await?.run(update).await?;
        Ok(())
    }

    /// Releases a session that this loop owns although the sandbox knows an epoch above its own, `highest`: the database was restored from an older copy. The next
    /// loop has an epoch above it. It counts as an attempt, so that two deployments with one sandbox cannot do this to each other for ever. Returns false if another
    /// worker already owns the session.
    ///
    /// # Errors
    /// `Db`.
    pub async fn raise_epoch(&self, fence: &Fence, highest: u64) -> Result<bool, Error> {
        let sql = format!(
            "update session_run set epoch = greatest(epoch, $4), phase = {RUNNABLE}, owner = null,
                    queued_at = coalesce(owned_at, now()), owned_at = null
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = {RUNNING}"
        );
        let update = sqlx::query(AssertSqlSafe(sql))
            .bind(fence.tenant.0)
            .bind(fence.session.as_str())
            .bind(signed(fence.epoch))
            .bind(signed(highest));
        Ok(self.statements(fence.tenant).await?.run(update).await? > 0)
    }

    /// Releases a session whose loop failed on this worker. The attempt counts. A suspect pauses first, unless its mailbox
    /// holds an untaken abort. Does nothing if another worker already owns the session.
    ///
    /// # Errors
    /// `Db`.
    pub async fn fail_attempt(&self, tenant: TenantId, session: &SessionId, epoch: u64) -> Result<(), Error> {
        let goes_on = "attempts < $4 or cancel_seq > input_ack";
        let sql = format!(
            "update session_run set owner = null, owned_at = null, queued_at = now(), waiting_at = now(),
                    phase = case when {goes_on} then {RUNNABLE} else {WAITING} end,
                    waiting_reason = case when {goes_on} then null else $6 end,
                    wake_at = case when {goes_on} then null
                                   else now() + $5 * power(2, attempts - $4) * interval '1 millisecond' end
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = {RUNNING}"
        );
        let update = sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.0)
            .bind(session.as_str())
            .bind(signed(epoch))
            .bind(limits::ATTEMPTS_SUSPECT)
            .bind(milliseconds(limits::SUSPECT_PAUSE_MS))
            .bind(Reason::FailedAttempt.as_str());
        self.statements(tenant).await?.run(update).await?;
        Ok(())
    }

    /// Leaves a session to a worker of another version, because this version cannot read its rows. It does not count as a
    /// failed attempt.
    ///
    /// # Errors
    /// `Db`.
    pub async fn refuse(&self, fence: &Fence, why: &str) -> Result<(), Error> {
        let sql = format!(
            "update session_run set phase = {WAITING}, owner = null, owned_at = null,
                    attempts = greatest(attempts - 1, 0), waiting_reason = $4, waiting_detail = $5, waiting_at = now(),
                    wake_at = now() + $6 * interval '1 millisecond'
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = {RUNNING}"
        );
        let update = sqlx::query(AssertSqlSafe(sql))
            .bind(fence.tenant.0)
            .bind(fence.session.as_str())
            .bind(signed(fence.epoch))
            .bind(Reason::NewerWorker.as_str())
            .bind(why)
            .bind(milliseconds(limits::UNREADABLE_PAUSE_MS));
        self.statements(fence.tenant).await?.run(update).await?;
        Ok(())
    }
}

/// Finds out why a session could not be taken.
async fn refusal(
    mut statements: Statements,
    tenant: TenantId,
    session: &SessionId,
) -> Result<TakeResult, Error> {
    let sql = format!(
        "select attempts from session_run r where r.tenant_id = $1 and r.session_id = $2
            and (r.phase = {RUNNABLE} or (r.phase = {RUNNING} and not coalesce(worker_alive(r.owner), false)))"
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&mut *statements)
        .await?;
    statements.end();
    let Some(row) = row else { return Ok(TakeResult::Unavailable) };
    let attempts = row.try_get("attempts")?;
    Ok(if attempts >= limits::ATTEMPTS_MAX {
        TakeResult::Exhausted { attempts }
    } else if attempts >= limits::ATTEMPTS_SUSPECT {
        TakeResult::Suspect
    } else {
        // The session became free between the two queries. The next attempt takes it.
        TakeResult::Unavailable
    })
}
