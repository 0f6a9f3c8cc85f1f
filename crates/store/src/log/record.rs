//! The fenced writes of a loop. One statement, or one transaction, updates the control row by epoch and write number, projects each change into
//! its table, and numbers the events without a gap.

use crate::{
    Statements, Store, Tx,
    column::{signed, unsigned},
    error::Error,
    log::{
        change::{Change, Scope},
        control, events,
        projection::{self, Projection, ProjectionResult},
    },
    phase::RUNNING,
    pool::Statement,
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
#[derive(Debug, Clone, PartialEq)]
pub struct WriteReceipt {
    /// The events, in order, for publishing.
    pub events: Vec<StoredEvent>,
    /// The session after the write, if one of these events contains all of it.
    pub session: Option<Box<Info>>,
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
        if projection.gather(&scope, changes)? {
            let mut statements = self.statements(fence.tenant).await?;
            let written = write_at_once(&mut statements, fence, acknowledgement, projection, at).await?;
            statements.end();
            if let Some(receipt) = written {
                return Ok(receipt);
            }
        }
        let mut tx = self.begin(fence.tenant).await?;
        let Some(advanced) = advance(&mut tx, fence, changes.len() as u64, acknowledgement).await? else {
            return read_earlier_write(&mut tx, fence, changes).await;
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
        let query = sqlx::query(AssertSqlSafe(format!(
            "select 1 from session_run
              where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = {RUNNING}"
        )))
        .bind(fence.tenant.0)
        .bind(fence.session.as_str())
        .bind(signed(fence.epoch));
        Ok(self.statements(fence.tenant).await?.fetch_optional(query).await?.is_some())
    }
}

/// What a write records besides its changes.
#[derive(Clone, Copy)]
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
        let scope = Scope { tenant: fence.tenant, session: &fence.session, epoch: fence.epoch, at };
        let first = self.first(changes.len() as u64);
        Ok(self.receipt(Projection::default().project(tx, &scope, changes, first).await?))
    }

    /// The receipt of the statement that advanced the row and wrote this projection.
    pub(crate) fn written(&self, projection: Projection) -> WriteReceipt {
        let first = self.first(projection.len());
        self.receipt(projection.written_from(first))
    }

    /// The number of the first of the new events.
    fn first(&self, events: u64) -> u64 {
        self.event_seq + 1 - events
    }

    fn receipt(&self, result: ProjectionResult) -> WriteReceipt {
        let ProjectionResult { events, session } = result;
        WriteReceipt { events, session, input_seq: self.input_seq, cancel_seq: self.cancel_seq }
    }

    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(Self {
            event_seq: number("event_seq")?,
            input_seq: number("input_seq")?,
            cancel_seq: number("cancel_seq")?,
        })
    }
}

fn bind_advance<'q>(update: Statement<'q>, events: u64, acknowledgement: &Acknowledgement) -> Statement<'q> {
    update
        .bind(signed(events))
        .bind(signed(acknowledgement.input))
        .bind(acknowledgement.progress == Progress::Made)
}

/// Advances the control row and writes a whole projection, in one statement. Returns `None`, and writes nothing, if the fence does not match, or if the session
/// that is charged has changed.
async fn write_at_once(
    statements: &mut Statements,
    fence: &Fence,
    acknowledgement: Acknowledgement,
    projection: Projection,
    at: Timestamp,
) -> Result<Option<WriteReceipt>, Error> {
    let count = projection.len();
    let write = sqlx::query(AssertSqlSafe(projection::fenced(projection.rows())));
    let advanced = run_fenced(statements, fence, write, |write| {
        projection
            .rows()
            .bind_session(projection.bind(bind_advance(write, count, &acknowledgement).bind(at.0)))
    })
    .await?;
    Ok(advanced.map(|advanced| advanced.written(projection)))
}

/// Advances the control row: the first statement of a transaction of a loop. Returns `None` if the fence does not match.
pub(crate) async fn advance(
    tx: &mut Tx,
    fence: &Fence,
    events: u64,
    acknowledgement: Acknowledgement,
) -> Result<Option<Advanced>, Error> {
    let update = sqlx::query(AssertSqlSafe(control::advance_statement("")));
    run_fenced(tx, fence, update, |update| bind_advance(update, events, &acknowledgement)).await
}

/// Runs an update of the control row whose `$1` to `$4` are the tenant, the session, the epoch and the number of the write.
/// `bind_rest` binds the remaining parameters. Returns `None` if no row matches.
pub(crate) async fn run_fenced<'q>(
    connection: &mut PgConnection,
    fence: &Fence,
    update: Statement<'q>,
    bind_rest: impl FnOnce(Statement<'q>) -> Statement<'q>,
) -> Result<Option<Advanced>, Error> {
    let update = update.bind(fence.tenant.0).bind(fence.session.to_string());
    let update = bind_rest(update.bind(signed(fence.epoch)).bind(signed(fence.write_seq)));
    let row = update.fetch_optional(&mut *connection).await?;
    Ok(row.as_ref().map(Advanced::from_row).transpose()?)
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
    Ok(WriteReceipt { events, session: None, input_seq, cancel_seq })
}
