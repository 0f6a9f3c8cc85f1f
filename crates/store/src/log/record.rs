//! The fenced writes of a loop. One transaction updates the control row by epoch and write number, projects each change into
//! its table, and numbers the events without a gap.

use crate::{
    Store, Tx,
    column::{signed, unsigned},
    error::Error,
    log::{
        change::{Change, Scope},
        events, projection,
    },
    phase::RUNNING,
};
use domain::{
    event::StoredEvent,
    ids::{SessionId, TenantId, Timestamp},
};
use sqlx::{AssertSqlSafe, Postgres, Row as _, postgres::PgArguments, query::Query};

/// The right to write to a session: the epoch of the owner, and the number of the next write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The tenant of the session.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
    /// The number of the takeover that gave the right.
    pub epoch: u64,
    /// The number of this write: one more than that of the write before. A repeated number is the same write.
    pub write_seq: u64,
}

/// Whether a write shows progress of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The loop made progress. The count of failed attempts restarts.
    Made,
    /// No progress yet.
    None,
}

/// What a write stored, and the state of the mailbox that it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteReceipt {
    /// The events, in order, for publishing.
    pub events: Vec<StoredEvent>,
    /// The newest input of the session.
    pub input_seq: u64,
    /// The newest abort.
    pub cancel_seq: u64,
}

impl Store {
    /// Writes `changes` and acknowledges the inputs up to `ack`.
    ///
    /// # Errors
    /// `Fenced`: another worker owns the session. `Db`: stored or not; repeat the call with the same fence to find out
    /// and to finish.
    pub async fn append(
        &self,
        fence: &Fence,
        changes: &[Change],
        ack: u64,
        progress: Progress,
        at: Timestamp,
    ) -> Result<WriteReceipt, Error> {
        let mut tx = self.begin(fence.tenant).await?;
        let acknowledgement = Acknowledgement { input: ack, progress };
        let Some(advanced) = advance(&mut tx, fence, changes.len() as u64, acknowledgement).await? else {
            return read_earlier_write(tx, fence, changes).await;
        };
        let receipt = advanced.write(&mut tx, fence, changes, at).await?;
        tx.commit().await?;
        Ok(receipt)
    }

    /// Says whether `fence` still belongs to the owner of the session. The answer may be outdated immediately: only the
    /// write itself is safe.
    ///
    /// # Errors
    /// `Db`.
    pub async fn is_current(&self, fence: &Fence) -> Result<bool, Error> {
        let mut tx = self.begin(fence.tenant).await?;
        let row = sqlx::query(AssertSqlSafe(format!(
            "select 1 from session_run
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = {RUNNING}"
        )))
        .bind(fence.tenant.0)
        .bind(fence.session.as_str())
        .bind(signed(fence.epoch))
        .fetch_optional(&mut *tx)
        .await?;
        Ok(row.is_some())
    }
}

/// What a write records besides its changes.
pub(crate) struct Acknowledgement {
    /// The loop took the inputs up to this one.
    pub(crate) input: u64,
    pub(crate) progress: Progress,
}

/// The control row after a write advanced it. The transaction holds the row.
pub(crate) struct Advanced {
    event_seq: u64,
    input_seq: u64,
    cancel_seq: u64,
}

impl Advanced {
    /// Writes the changes that the row was advanced for.
    pub(crate) async fn write(
        &self,
        tx: &mut Tx,
        fence: &Fence,
        changes: &[Change],
        at: Timestamp,
    ) -> Result<WriteReceipt, Error> {
        let first = self.event_seq + 1 - changes.len() as u64;
        let scope = Scope { tenant: fence.tenant, session: &fence.session, epoch: fence.epoch, at };
        let events = projection::project(tx, &scope, changes, first).await?;
        Ok(WriteReceipt { events, input_seq: self.input_seq, cancel_seq: self.cancel_seq })
    }
}

/// Advances the control row: the first statement of every write of a loop. Returns `None` if the fence does not match.
pub(crate) async fn advance(
    tx: &mut Tx,
    fence: &Fence,
    events: u64,
    acknowledgement: Acknowledgement,
) -> Result<Option<Advanced>, Error> {
    let sql = format!(
        "update session_run set write_seq = $4, event_seq = event_seq + $5, input_ack = greatest(input_ack, $6),
                attempts = case when $7 then 0 else attempts end
          where tenant_id = $1 and session_id = $2 and {FENCE}
         returning event_seq, input_seq, cancel_seq"
    );
    let update = sqlx::query(AssertSqlSafe(sql));
    run_fenced(tx, fence, update, |update| {
        update
            .bind(signed(events))
            .bind(signed(acknowledgement.input))
            .bind(acknowledgement.progress == Progress::Made)
    })
    .await
}

/// The condition that only the owner's next write meets. `$3` is the epoch and `$4` the number of the write.
pub(crate) const FENCE: &str = "epoch = $3 and write_seq = $4 - 1";

/// Runs an update of the control row whose `$1` to `$4` are the tenant, the session, the epoch and the number of the write.
/// `bind_rest` binds the remaining parameters. Returns `None` if no row matches.
pub(crate) async fn run_fenced<'q>(
    tx: &mut Tx,
    fence: &Fence,
    update: Query<'q, Postgres, PgArguments>,
    bind_rest: impl FnOnce(Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments>,
) -> Result<Option<Advanced>, Error> {
    let update = update.bind(fence.tenant.0).bind(fence.session.to_string());
    let update = bind_rest(update.bind(signed(fence.epoch)).bind(signed(fence.write_seq)));
    let Some(row) = update.fetch_optional(&mut **tx).await? else { return Ok(None) };
    let number = |column| row.try_get::<i64, _>(column).map(unsigned);
    Ok(Some(Advanced {
        event_seq: number("event_seq")?,
        input_seq: number("input_seq")?,
        cancel_seq: number("cancel_seq")?,
    }))
}

/// Returns the result that this same write stored the first time.
///
/// # Errors
/// `Fenced`: the write is not stored, so another worker owns the session.
pub(crate) async fn read_earlier_write(
    mut tx: Tx,
    fence: &Fence,
    changes: &[Change],
) -> Result<WriteReceipt, Error> {
    let row = sqlx::query(
        "select input_seq, cancel_seq from session_run
          where tenant_id = $1 and session_id = $2 and epoch = $3 and write_seq >= $4",
    )
    .bind(fence.tenant.0)
    .bind(fence.session.as_str())
    .bind(signed(fence.epoch))
    .bind(signed(fence.write_seq))
    .fetch_optional(&mut *tx)
    .await?
    .ok_or(Error::Fenced)?;
    let ids: Vec<&str> = changes.iter().map(|change| change.id.as_str()).collect();
    let rows = sqlx::query(
        "select seq, epoch, id, kind, properties, at from session_event
          where tenant_id = $1 and session_id = $2 and id = any($3) order by seq",
    )
    .bind(fence.tenant.0)
    .bind(fence.session.as_str())
    .bind(&ids)
    .fetch_all(&mut *tx)
    .await?;
    if rows.len() < changes.len() {
        // The number was used for other changes: the caller does not know what is stored, so it must stop.
        return Err(Error::Fenced);
    }
    let events = rows.iter().map(events::from_row).collect::<Result<_, _>>()?;
    let (input_seq, cancel_seq) = (unsigned(row.try_get("input_seq")?), unsigned(row.try_get("cancel_seq")?));
    Ok(WriteReceipt { events, input_seq, cancel_seq })
}
