//! The fenced writes of a loop. One transaction updates the control row by epoch and write number, projects each change into
//! its table, and numbers the events without a gap.

use crate::{
    Statements, Store, Tx,
    column::{signed, unsigned},
    error::Error,
    log::{
        change::{Change, ChangeBody, Scope},
        control, events,
        projection::{self, Projection, Statement},
    },
    phase::RUNNING,
    session::{row, tree::ledger::Entry},
};
use domain::{
    event::StoredEvent,
    ids::{SessionId, TenantId, Timestamp},
    session::Info,
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

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
        let acknowledgement = Acknowledgement { input: ack, progress };
        let scope = Scope { tenant: fence.tenant, session: &fence.session, epoch: fence.epoch, at };
        let mut projection = Projection::default();
        let rest = projection.gather(&scope, changes)?;
        if rest.is_empty() {
            let mut statements = self.statements(fence.tenant).await?;
            let written = write_at_once(&mut statements, fence, acknowledgement, projection, at).await?;
            let receipt = match written {
                Some(receipt) => receipt,
                None => read_earlier_write(&mut statements, fence, changes).await?,
            };
            statements.end();
            return Ok(receipt);
        }
        let (mut tx, count) = (self.begin(fence.tenant).await?, changes.len() as u64);
        let advanced = match find_only_charge(changes) {
            Some(entries) => advance_and_charge(&mut tx, fence, count, acknowledgement, entries).await?,
            None => advance(&mut tx, fence, count, acknowledgement).await?,
        };
        let Some(mut advanced) = advanced else {
            return read_earlier_write(&mut tx, fence, changes).await;
        };
        let projection = projection.with_charged(advanced.charged.take());
        let events = projection.project(&mut tx, &scope, rest, advanced.first(changes)).await?;
        tx.commit().await?;
        Ok(advanced.receipt(events))
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
    /// The session with its new sums, if the same statement charged it.
    charged: Option<Box<Info>>,
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
        let scope = Scope { tenant: fence.tenant, session: &fence.session, epoch: fence.epoch, at };
        let events = projection::project(tx, &scope, changes, self.first(changes)).await?;
        Ok(self.receipt(events))
    }

    /// The number of the first of the new events.
    fn first(&self, changes: &[Change]) -> u64 {
        self.event_seq + 1 - changes.len() as u64
    }

    fn receipt(&self, events: Vec<StoredEvent>) -> WriteReceipt {
        WriteReceipt { events, input_seq: self.input_seq, cancel_seq: self.cancel_seq }
    }

    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(Self {
            event_seq: number("event_seq")?,
            input_seq: number("input_seq")?,
            cancel_seq: number("cancel_seq")?,
            charged: None,
        })
    }
}

fn bind_advance<'q>(update: Statement<'q>, events: u64, acknowledgement: &Acknowledgement) -> Statement<'q> {
    update
        .bind(signed(events))
        .bind(signed(acknowledgement.input))
        .bind(acknowledgement.progress == Progress::Made)
}

/// Advances the control row and writes a whole projection, in one statement. Returns `None`, and writes nothing, if the fence does not match.
async fn write_at_once(
    statements: &mut Statements,
    fence: &Fence,
    acknowledgement: Acknowledgement,
    projection: Projection,
    at: Timestamp,
) -> Result<Option<WriteReceipt>, Error> {
    let count = projection.len();
    let sql = projection::fenced(projection.rows());
    let write = sqlx::query(AssertSqlSafe(sql));
    let advanced = run_fenced(statements, fence, write, |write| {
        projection.bind(bind_advance(write, count, &acknowledgement).bind(at.0))
    })
    .await?;
    Ok(advanced.map(|advanced| {
        let first = advanced.event_seq + 1 - count;
        advanced.receipt(projection.written_from(first))
    }))
}

/// Advances the control row: the first statement of every write of a loop. Returns `None` if the fence does not match.
pub(crate) async fn advance(
    tx: &mut Tx,
    fence: &Fence,
    events: u64,
    acknowledgement: Acknowledgement,
) -> Result<Option<Advanced>, Error> {
    let update = sqlx::query(AssertSqlSafe(control::advance_statement()));
    run_fenced(tx, fence, update, |update| bind_advance(update, events, &acknowledgement)).await
}

/// As [`advance`], and charges the session.
async fn advance_and_charge(
    tx: &mut Tx,
    fence: &Fence,
    events: u64,
    acknowledgement: Acknowledgement,
    entries: &[Entry],
) -> Result<Option<Advanced>, Error> {
    let update = sqlx::query(AssertSqlSafe(projection::fenced_charge()));
    let row = fetch_fenced(tx, fence, update, |update| {
        projection::bind_charge(bind_advance(update, events, &acknowledgement), entries)
    })
    .await?;
    let Some(row) = row else { return Ok(None) };
    let charged = Some(Box::new(row::read_info(&row)?));
    Ok(Some(Advanced { charged, ..Advanced::from_row(&row)? }))
}

/// The entries of the only change that a write makes to the row of the session. `None` if there are more such changes: the event of each shows the session
/// after it. Other events change no column that this event shows.
fn find_only_charge(changes: &[Change]) -> Option<&[Entry]> {
    let mut charge = None;
    for change in changes {
        match &change.body {
            ChangeBody::Spend(entries) if charge.is_none() => charge = Some(entries.as_slice()),
            ChangeBody::Spend(_) | ChangeBody::Title(_) | ChangeBody::FileSummary(_) => return None,
            ChangeBody::Event(_) | ChangeBody::Answer { .. } => {}
        }
    }
    charge
}

/// Runs an update of the control row: see [`fetch_fenced`].
pub(crate) async fn run_fenced<'q>(
    connection: &mut PgConnection,
    fence: &Fence,
    update: Statement<'q>,
    bind_rest: impl FnOnce(Statement<'q>) -> Statement<'q>,
) -> Result<Option<Advanced>, Error> {
    let row = fetch_fenced(connection, fence, update, bind_rest).await?;
    Ok(row.as_ref().map(Advanced::from_row).transpose()?)
}

/// Runs an update of the control row whose `$1` to `$4` are the tenant, the session, the epoch and the number of the write.
/// `bind_rest` binds the remaining parameters. Returns `None` if no row matches.
async fn fetch_fenced<'q>(
    connection: &mut PgConnection,
    fence: &Fence,
    update: Statement<'q>,
    bind_rest: impl FnOnce(Statement<'q>) -> Statement<'q>,
) -> Result<Option<PgRow>, Error> {
    let update = update.bind(fence.tenant.0).bind(fence.session.to_string());
    let update = bind_rest(update.bind(signed(fence.epoch)).bind(signed(fence.write_seq)));
    Ok(update.fetch_optional(&mut *connection).await?)
}

/// Returns the result that this same write stored the first time.
///
/// # Errors
/// `Fenced`: the write is not stored, so another worker owns the session.
pub(crate) async fn read_earlier_write(
    connection: &mut PgConnection,
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
    .fetch_optional(&mut *connection)
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
    .fetch_all(&mut *connection)
    .await?;
    if rows.len() < changes.len() {
        // The number was used for other changes: the caller does not know what is stored, so it must stop.
        return Err(Error::Fenced);
    }
    let events = rows.iter().map(events::from_row).collect::<Result<_, _>>()?;
    let (input_seq, cancel_seq) = (unsigned(row.try_get("input_seq")?), unsigned(row.try_get("cancel_seq")?));
    Ok(WriteReceipt { events, input_seq, cancel_seq })
}
