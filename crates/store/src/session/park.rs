//! The last write of a loop. It frees the session, unless an input arrived that the loop has not seen. A child that ends
//! delivers its answer to its parent in the same transaction; the last write of other sessions is mostly one statement.

use crate::{
    Store, Tx,
    column::signed,
    error::Error,
    log::{
        change::{Change, Scope},
        control::{FENCE, RETURNS},
        projection::{self, ADD_SPENT, KnownCharge, Projection, SPENT},
        record::{self, Advanced, Fence, WriteReceipt},
    },
    phase::WAITING,
    pool::Statement,
    session::tree::{
        answers::{self, ChildAnswer},
        budget, family,
    },
};
use domain::{
    ids::{SessionId, Timestamp},
    session::{Outcome, Phase},
    wait::Wait,
};
use sqlx::AssertSqlSafe;

#[derive(Debug, Clone, PartialEq)]
pub enum Park {
    Idle {
        outcome: Outcome,
        error: Option<String>,
        /// The answer of a child, and the parent that gets it.
        answer: Option<(SessionId, ChildAnswer)>,
    },
    Waiting {
        wait: Wait,
        /// The parent to notify: from now on it waits for the same reason.
        notify: Option<SessionId>,
    },
}

impl Park {
    /// The parent that the same transaction writes to.
    fn parent(&self) -> Option<&SessionId> {
        match self {
            Self::Idle { answer, .. } => answer.as_ref().map(|(parent, _)| parent),
            Self::Waiting { notify, .. } => notify.as_ref(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum ParkOutcome {
    Parked(WriteReceipt),
    /// An input arrived that the loop has not seen: nothing is written.
    NewInput,
}

impl Store {
    /// Ends the loop: writes `changes` and frees the session, unless an input arrived after `seen_input`.
    ///
    /// # Errors
    /// Like [`Store::append`].
    pub async fn park(
        &self,
        fence: &Fence,
        changes: &[Change],
        seen_input: u64,
        park: &Park,
        at: Timestamp,
    ) -> Result<ParkOutcome, Error> {
        if park.parent().is_none()
            && let Some(receipt) = self.park_at_once(fence, changes, seen_input, park, at).await?
        {
            return Ok(ParkOutcome::Parked(receipt));
        }
        let mut tx = self.begin(fence.tenant).await?;
        // Locks are taken from the root to the leaves, here and everywhere.
        let parent = match park.parent() {
            Some(parent) => family::lock_parent(&mut tx, fence.tenant, parent).await?,
            None => None,
        };
        let release = Release { park, events: changes.len() as u64, seen_input, charge: None };
        let Some(advanced) = free(&mut tx, fence, release).await? else {
            if has_newer_input(&mut tx, fence, seen_input).await? {
                return Ok(ParkOutcome::NewInput);
            }
            return record::read_earlier_write(&mut tx, fence, changes).await.map(ParkOutcome::Parked);
        };
        if let Some(parent) = parent {
            match park {
                Park::Idle { answer, .. } => {
                    if let Some((_, answer)) = answer {
                        answers::deliver(&mut tx, fence.tenant, &parent, answer).await?;
                    }
                }
                Park::Waiting { .. } => {
                    if let Some(change) = changes.last() {
                        budget::notify_parent(&mut tx, fence.tenant, &parent, change.id.as_str()).await?;
                    }
                }
            }
        }
        let receipt = advanced.write(&mut tx, fence, changes, at).await?;
        tx.commit().await?;
        Ok(ParkOutcome::Parked(receipt))
    }

    /// Parks a session with one statement. `None`: nothing is written, because a change needs a statement of its own, the fence does not match, an input
    /// arrived, or the session that is charged has changed.
    async fn park_at_once(
        &self,
        fence: &Fence,
        changes: &[Change],
        seen_input: u64,
        park: &Park,
        at: Timestamp,
    ) -> Result<Option<WriteReceipt>, Error> {
        let scope = Scope { tenant: fence.tenant, session: &fence.session, epoch: fence.epoch, at };
        let mut projection = Projection::default();
        let is_whole = projection.gather(&scope, changes)?;
        let rows = projection.rows();
        if !is_whole || rows.have_columns() {
            return Ok(None);
        }
        let release = Release { park, events: projection.len(), seen_input, charge: rows.charge() };
        let sql = format!("with {}{} select {RETURNS} from behind", freed(), projection::parked(rows));
        let mut statements = self.statements(fence.tenant).await?;
        let freed = record::run_fenced(&mut statements, fence, sqlx::query(AssertSqlSafe(sql)), |update| {
            projection.bind(release.bind(update).bind(at.0))
        })
        .await?;
        statements.end();
        Ok(freed.map(|advanced| advanced.written(projection)))
    }
}

/// What the statement that frees a session needs besides the fence.
struct Release<'a> {
    park: &'a Park,
    events: u64,
    seen_input: u64,
    charge: Option<&'a KnownCharge>,
}

impl<'a> Release<'a> {
    /// Binds the parameters `$5` to `$19` of [`freed`].
    fn bind(&self, update: Statement<'a>) -> Statement<'a> {
        let (phase, wait, end) = match self.park {
            Park::Idle { outcome, error, .. } => (Phase::Idle, None, Some((outcome, error))),
            Park::Waiting { wait, .. } => (Phase::Waiting, Some(wait), None),
        };
        let update = update
            .bind(signed(self.events))
            .bind(signed(self.seen_input))
            .bind(phase.to_i16())
            .bind(wait.map(|wait| wait.reason.as_str()))
            .bind(wait.and_then(|wait| wait.until).map(|until| until.0))
            .bind(end.map(|(outcome, _)| outcome.as_str()))
            .bind(end.and_then(|(_, error)| error.as_deref()));
        let sums = self.charge.map(|known| known.sums).unwrap_or_default();
        projection::bind_sums(update, sums)
            .bind(self.charge.is_some())
            .bind(self.charge.map(|known| signed(known.event_seq)))
    }
}

/// Checks the fence and ends the ownership. Returns `None` if the fence does not match, or if an input arrived.
async fn free(tx: &mut Tx, fence: &Fence, release: Release<'_>) -> Result<Option<Advanced>, Error> {
    let update = sqlx::query(AssertSqlSafe(format!("with {} select {RETURNS} from behind", freed())));
    record::run_fenced(tx, fence, update, |update| release.bind(update)).await
}

/// The clauses that check the fence, end the ownership, and charge the session. `$1` to `$4` are those of [`record::run_fenced`]. One round trip for both rows and
/// for the chunks of the turn, whose parts are complete, because every turn ends here. If another transaction stores a chunk at this moment, the chunk stays until
/// the next turn ends. Its part is complete, so no reader asks for it.
fn freed() -> String {
    format!(
        "behind as (
           update session_run set write_seq = $4, event_seq = event_seq + $5, input_ack = $6, phase = $7,
                  attempts = 0,
                  owner = null, owned_at = null, queued_at = null, waiting_detail = null,
                  waiting_at = case when $7::smallint = {WAITING} then now() end, waiting_reason = $8,
                  wake_at = to_timestamp($9::float8 / 1000)
            where tenant_id = $1 and session_id = $2 and {FENCE}
              and input_seq = $6 and ($19::bigint is null or event_seq = $19)
           returning {RETURNS}, event_seq - $5 as base),
         closed as (
           update session s set last_outcome = coalesce($10::text, s.last_outcome),
                  last_error = case when $10::text is null then s.last_error else $11 end,
                  {ADD_SPENT}, updated_at = date_trunc('milliseconds', now())
             from behind,
                  (values ($12::bigint, $13::bigint, $14::bigint, $15::bigint, $16::bigint, $17::bigint)) as spent ({SPENT})
            where s.tenant_id = $1 and s.id = $2 and ($10::text is not null or $18::boolean)),
         cleared as (
           delete from part_chunk using behind
            where tenant_id = $1 and session_id = $2 and epoch <= $3 and $10::text is not null)"
    )
}

/// Whether the fence still matches, so that only a newer input prevented freeing the session.
async fn has_newer_input(tx: &mut Tx, fence: &Fence, seen_input: u64) -> Result<bool, Error> {
    let row = sqlx::query(
        "select 1 from session_run where tenant_id = $1 and session_id = $2 and epoch = $3
            and write_seq = $4 - 1 and input_seq > $5",
    )
    .bind(fence.tenant.0)
    .bind(fence.session.as_str())
    .bind(signed(fence.epoch))
    .bind(signed(fence.write_seq))
    .bind(signed(seen_input))
    .fetch_optional(&mut **tx)
    .await?;
    Ok(row.is_some())
}
