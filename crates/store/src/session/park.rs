//! The last write of a loop: it frees the session, unless an input came that the loop has not seen. A child that ends
//! delivers its answer to its parent in the same transaction.

use crate::{
    Store,
    error::Error,
    guard::{Guard, guarded},
    log::record::{self, Advanced, Change, Fence, Written},
    session::{
        budget,
        children::{self, Answer},
    },
    signed,
};
use domain::{
    ids::{SessionId, Timestamp},
    mutant::Mutant,
    session::Outcome,
    wait::Wait,
};
use sqlx::{Postgres, Transaction};

/// How a loop ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Park {
    /// The turn is over.
    Idle {
        /// How.
        outcome: Outcome,
        /// Why it failed.
        error: Option<String>,
        /// What a child says to its parent.
        answer: Option<(SessionId, Answer)>,
    },
    /// Something else must happen first.
    Waiting {
        /// What.
        wait: Wait,
        /// The parent that must know of it: its own wait is for the same from now on.
        tells: Option<SessionId>,
    },
}

/// What parking found and left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parked {
    /// The session is free.
    Yes(Written),
    /// An input came that the loop has not seen: nothing is written.
    NewInput,
}

impl Store {
    /// Ends the loop: writes `changes` and frees the session, unless an input came after `seen_input`.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub async fn park(
        &self,
        fence: &Fence,
        changes: &[Change],
        seen_input: u64,
        park: &Park,
        at: Timestamp,
    ) -> Result<Parked, Error> {
        let mut tx = self.begin(fence.tenant).await?;
        // Locks are taken from the root to the leaf, here and everywhere.
        let parent = match park {
            Park::Idle { answer: Some((parent, _)), .. } | Park::Waiting { tells: Some(parent), .. } => {
                children::lock_parent(&mut tx, fence.tenant, parent).await?
            }
            Park::Idle { answer: None, .. } | Park::Waiting { tells: None, .. } => None,
        };
        let Some(advanced) = free(&mut tx, fence, changes.len() as u64, seen_input, park).await? else {
            if is_behind(&mut tx, fence, seen_input).await? {
                return Ok(Parked::NewInput);
            }
            return record::already_written(tx, fence, changes).await.map(Parked::Yes);
        };
        match park {
            Park::Idle { answer, .. } => {
                if let (Some(parent), Some((_, answer))) = (parent, answer) {
                    children::deliver(&mut tx, fence.tenant, &parent, answer).await?;
                }
            }
            Park::Waiting { .. } => {
                if let (Some(parent), Some(change)) = (parent, changes.last()) {
                    budget::tell(&mut tx, fence.tenant, &parent, change.id.as_str()).await?;
                }
            }
        }
        let written = advanced.write(&mut tx, fence, changes, at).await?;
        tx.commit().await?;
        Ok(Parked::Yes(written))
    }
}

/// As those of every write of a loop; and the inputs that the loop has seen.
const GUARDS: [Guard; 5] = [
    record::FENCE_GUARDS[0],
    record::FENCE_GUARDS[1],
    record::FENCE_GUARDS[2],
    (Mutant::ParkBlind, " and input_seq = $6", ""),
    (Mutant::AttemptsKept, "attempts = 0", "attempts = attempts"),
];

/// The fence and the end of ownership in one update.
async fn free(
    tx: &mut Transaction<'static, Postgres>,
    fence: &Fence,
    events: u64,
    seen_input: u64,
    park: &Park,
) -> Result<Option<Advanced>, Error> {
    let (phase, wait, end) = match park {
        Park::Idle { outcome, error, .. } => (0_i16, None, Some((outcome, error))),
        Park::Waiting { wait, .. } => (3, Some(wait), None),
    };
    // One round trip for both rows, as every turn ends here.
    let sql = guarded(
        "with freed as (
           update session_run set write_seq = $4, event_seq = event_seq + $5, input_ack = $6, attempts = 0,
                  phase = $7, owner = null, owned_at = null, queued_at = null, waiting_detail = null,
                  waiting_at = case when $7 = 3 then now() end, waiting_reason = $8,
                  wake_at = to_timestamp($9::float8 / 1000)
            where tenant_id = $1 and session_id = $2 and epoch = $3 and write_seq = $4 - 1 and input_seq = $6
           returning event_seq, input_seq, cancel_seq),
         ended as (
           update session set last_outcome = $10, last_error = $11, updated_at = date_trunc('milliseconds', now())
             from freed where tenant_id = $1 and id = $2 and $10 is not null)
         select event_seq, input_seq, cancel_seq from freed",
        &GUARDS,
    );
    let row = record::fenced(tx, sql, fence, events)
        .await?
        .bind(signed(seen_input))
        .bind(phase)
        .bind(wait.map(|wait| wait.reason.as_str()))
        .bind(wait.and_then(|wait| wait.until).map(|until| until.0))
        .bind(end.map(|(outcome, _)| outcome.as_str()))
        .bind(end.and_then(|(_, error)| error.as_deref()))
        .fetch_optional(&mut **tx)
        .await?;
    row.as_ref().map(Advanced::from_row).transpose()
}

/// Whether the right to write is still there and only a newer input stood in the way.
async fn is_behind(
    tx: &mut Transaction<'static, Postgres>,
    fence: &Fence,
    seen_input: u64,
) -> Result<bool, Error> {
    let newer = sqlx::query(
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
    Ok(newer.is_some())
}
