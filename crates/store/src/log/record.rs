//! The writes of a loop: one transaction that begins with the fence (an update of the control row by epoch and write
//! number), projects each change into its table, and numbers its events without a gap.

use crate::{
    Store,
    error::Error,
    guard::{Guard, guarded},
    log::execs,
    people::requests,
    session::{
        budget, forks,
        titles::{self, Title},
        todos,
    },
    signed, unsigned,
};
use domain::{
    event::{Event, Stored},
    ids::{EventId, SessionId, TenantId, Timestamp},
    message::Message,
    money::{Tokens, UsdPicos},
    mutant::{self, Mutant},
    part::Part,
    session::Changes,
};
use sqlx::{Postgres, Row as _, SqlStr, Transaction, postgres::PgArguments, query::Query, types::Json};

/// The right to write: who wrote last, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Whose session.
    pub tenant: TenantId,
    /// Which session.
    pub session: SessionId,
    /// The number of the take-over.
    pub epoch: u64,
    /// The number of this write: one more than that of the write before. A repeated number is the same write.
    pub write_seq: u64,
}

/// One change; each gives exactly one event.
#[derive(Debug, Clone)]
pub struct Change {
    /// The id of its event.
    pub id: EventId,
    /// What changes.
    pub what: What,
}

/// What changes.
#[derive(Debug, Clone)]
pub enum What {
    /// A fact, projected into the table of its kind.
    Event(Event),
    /// The session spent this.
    Spend(Tokens, UsdPicos),
    /// The files of the session differ by so much from what they were at its beginning.
    Changes(Changes),
    /// A model named the session.
    Title(Title),
}

/// What else a write says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The loop got further: earlier crashes are forgiven.
    Made,
    /// Not yet.
    None,
}

/// What a write found and left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The events, in order, for publishing.
    pub events: Vec<Stored>,
    /// The newest input of the session.
    pub input_seq: u64,
    /// The newest abort.
    pub cancel_seq: u64,
}

impl Store {
    /// Writes `changes` and takes the inputs up to `ack`.
    ///
    /// # Errors
    /// `Fenced`: another worker owns the session. `Db`: stored or not; repeat with the same fence to find out and finish.
    pub async fn append(
        &self,
        fence: &Fence,
        changes: &[Change],
        ack: u64,
        progress: Progress,
        at: Timestamp,
    ) -> Result<Written, Error> {
        let mut tx = self.begin(fence.tenant).await?;
        let Some(advanced) = advance(&mut tx, fence, changes.len() as u64, (ack, progress)).await? else {
            return already_written(tx, fence, changes).await;
        };
        let written = advanced.write(&mut tx, fence, changes, at).await?;
        tx.commit().await?;
        Ok(written)
    }

    /// Says whether the next write of `fence` would be accepted. Orders nothing: only the write itself decides.
    ///
    /// # Errors
    /// `Db`.
    pub async fn is_current(&self, fence: &Fence) -> Result<bool, Error> {
        let mut tx = self.begin(fence.tenant).await?;
        let row = sqlx::query(
            "select 1 from session_run where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = 2",
        )
        .bind(fence.tenant.0)
        .bind(fence.session.as_str())
        .bind(signed(fence.epoch))
        .fetch_optional(&mut *tx)
        .await?;
        Ok(row.is_some())
    }
}

/// The control row after a write advanced it; this transaction holds it.
pub(crate) struct Advanced {
    event_seq: u64,
    input_seq: u64,
    cancel_seq: u64,
}

impl Advanced {
    pub(crate) fn from_row(row: &sqlx::postgres::PgRow) -> Result<Self, Error> {
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(Self {
            event_seq: number("event_seq")?,
            input_seq: number("input_seq")?,
            cancel_seq: number("cancel_seq")?,
        })
    }

    /// Writes the changes that the row was advanced for.
    pub(crate) async fn write(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        fence: &Fence,
        changes: &[Change],
        at: Timestamp,
    ) -> Result<Written, Error> {
        let first = self.event_seq + 1 - changes.len() as u64;
        let scope = Scope { tenant: fence.tenant, session: &fence.session, epoch: fence.epoch, at };
        let events = project(tx, &scope, changes, first).await?;
        Ok(Written { events, input_seq: self.input_seq, cancel_seq: self.cancel_seq })
    }
}

/// What every write of a loop is guarded by, and what stands there without it.
pub(crate) const FENCE_GUARDS: [Guard; 3] = [
    (Mutant::EpochUnchecked, FENCE, "epoch >= $3"),
    (Mutant::EpochBySelect, FENCE, "epoch >= $3"),
    (Mutant::WriteSeqUnchecked, FENCE, "epoch = $3 and write_seq >= $4 - 1"),
];
const GUARDS: [Guard; 4] = [
    FENCE_GUARDS[0],
    FENCE_GUARDS[1],
    FENCE_GUARDS[2],
    (Mutant::AttemptsKept, "when $7 then 0", "when $7 then attempts"),
];
const FENCE: &str = "epoch = $3 and write_seq = $4 - 1";

/// The fence as a read, which orders nothing: only for the mutant of that name.
pub(crate) async fn look_at_fence(
    tx: &mut Transaction<'static, Postgres>,
    fence: &Fence,
) -> Result<(), Error> {
    let row = sqlx::query(
        "select 1 from session_run where tenant_id = $1 and session_id = $2 and epoch = $3 and write_seq = $4 - 1",
    )
    .bind(fence.tenant.0)
    .bind(fence.session.as_str())
    .bind(signed(fence.epoch))
    .bind(signed(fence.write_seq))
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|_| ()).ok_or(Error::Fenced)
}

/// The fence: the first statement of every write of a loop. Gives `None` when the row does not match.
pub(crate) async fn advance(
    tx: &mut Transaction<'static, Postgres>,
    fence: &Fence,
    events: u64,
    (ack, progress): (u64, Progress),
) -> Result<Option<Advanced>, Error> {
    let sql = guarded(
        "update session_run set write_seq = $4, event_seq = event_seq + $5, input_ack = greatest(input_ack, $6),
                attempts = case when $7 then 0 else attempts end
          where tenant_id = $1 and session_id = $2 and epoch = $3 and write_seq = $4 - 1
         returning event_seq, input_seq, cancel_seq",
        &GUARDS,
    );
    let update = fenced(tx, sql, fence, events).await?.bind(signed(ack)).bind(progress == Progress::Made);
    let row = update.fetch_optional(&mut **tx).await?;
    row.as_ref().map(Advanced::from_row).transpose()
}

/// An update of the control row that only who may write matches: `$1` to `$4` name the right and this write, `$5` is how
/// many events it adds.
pub(crate) async fn fenced(
    tx: &mut Transaction<'static, Postgres>,
    sql: SqlStr,
    fence: &Fence,
    events: u64,
) -> Result<Query<'static, Postgres, PgArguments>, Error> {
    if mutant::on(Mutant::EpochBySelect) {
        look_at_fence(tx, fence).await?;
    }
    let update = sqlx::query(sql).bind(fence.tenant.0).bind(fence.session.to_string());
    Ok(update.bind(signed(fence.epoch)).bind(signed(fence.write_seq)).bind(signed(events)))
}

/// The fence matched no row: either this very write is stored already, or somebody else owns the session.
pub(crate) async fn already_written(
    mut tx: Transaction<'static, Postgres>,
    fence: &Fence,
    changes: &[Change],
) -> Result<Written, Error> {
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
        // The number was used for other changes: whoever asks does not know what is stored.
        return Err(Error::Fenced);
    }
    let events = rows.iter().map(crate::log::events::from_row).collect::<Result<_, _>>()?;
    let (input_seq, cancel_seq) = (unsigned(row.try_get("input_seq")?), unsigned(row.try_get("cancel_seq")?));
    Ok(Written { events, input_seq, cancel_seq })
}

/// Where a batch of changes is written.
pub(crate) struct Scope<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) session: &'a SessionId,
    pub(crate) epoch: u64,
    pub(crate) at: Timestamp,
}

/// Writes each change into its table and all events at once, numbered from `first`.
pub(crate) async fn project(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    changes: &[Change],
    first: u64,
) -> Result<Vec<Stored>, Error> {
    let mut stored = Vec::with_capacity(changes.len());
    for (seq, change) in (first..).zip(changes) {
        let event = match &change.what {
            // The log tells the answer that counts, which may have come before this one.
            What::Event(Event::RequestAnswered { id, answer }) => {
                let answer = requests::close(tx, scope, id, answer).await?;
                Event::RequestAnswered { id: id.clone(), answer }
            }
            What::Event(event) => {
                project_one(tx, scope, event, seq).await?;
                event.clone()
            }
            What::Spend(tokens, cost) => Event::SessionUpdated(Box::new(
                budget::spend(tx, scope.tenant, scope.session, (*tokens, *cost)).await?,
            )),
            What::Title(title) => Event::SessionUpdated(Box::new(titles::set(tx, scope, title).await?)),
            What::Changes(changes) => {
                Event::SessionUpdated(Box::new(forks::summarize(tx, scope, changes).await?))
            }
        };
        stored.push(Stored {
            seq,
            epoch: scope.epoch,
            id: change.id.to_string(),
            kind: event.kind().to_owned(),
            properties: event.properties(scope.session).to_string(),
            at: scope.at,
        });
    }
    insert_events(tx, scope, &stored).await?;
    Ok(stored)
}

async fn project_one(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    event: &Event,
    seq: u64,
) -> Result<(), Error> {
    match event {
        Event::MessageUpdated(message) => upsert_message(tx, scope, message, seq).await,
        Event::PartUpdated { part, .. } => {
            upsert_part(tx, scope, part, seq).await?;
            execs::project(tx, scope, part).await
        }
        Event::PartRemoved { message_id, part_id } => {
            sqlx::query(
                "delete from part where tenant_id = $1 and session_id = $2 and message_id = $3 and id = $4",
            )
            .bind(scope.tenant.0)
            .bind(scope.session.as_str())
            .bind(message_id.as_str())
            .bind(part_id.as_str())
            .execute(&mut **tx)
            .await?;
            Ok(())
        }
        Event::MessageRemoved(message_id) => {
            sqlx::query("delete from message where tenant_id = $1 and session_id = $2 and id = $3")
                .bind(scope.tenant.0)
                .bind(scope.session.as_str())
                .bind(message_id.as_str())
                .execute(&mut **tx)
                .await?;
            Ok(())
        }
        Event::TodoUpdated(todos) => todos::project(tx, scope, todos).await,
        Event::RequestAsked(request) => requests::insert(tx, scope, request).await,
        Event::BranchUpdated(branch) => forks::set_branch(tx, scope, branch.as_deref()).await,
        // Facts of the log only; the rows are changed where these are made.
        Event::RequestAnswered { .. }
        | Event::SessionCreated(_)
        | Event::SessionUpdated(_)
        | Event::SessionDeleted(_)
        | Event::SessionStatus(_)
        | Event::SessionIdle(_)
        | Event::SessionError(_)
        | Event::LoopStarted { .. }
        | Event::LoopHandedOver { .. }
        | Event::SessionWaiting(_)
        | Event::SessionQuarantined { .. }
        | Event::SessionReleased
        | Event::SessionDiff(_)
        | Event::FileEdited(_)
        | Event::FilesChanged(_)
        | Event::CommandExecuted { .. }
        | Event::SessionCompacted => Ok(()),
    }
}

async fn upsert_message(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    message: &Message,
    seq: u64,
) -> Result<(), Error> {
    // A message keeps the place of its first event.
    sqlx::query(
        "insert into message (tenant_id, session_id, id, seq, role, info) values ($1, $2, $3, $4, $5, $6)
         on conflict (tenant_id, session_id, id) do update set info = excluded.info",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(message.id().as_str())
    .bind(signed(seq))
    .bind(message.role())
    .bind(Json(message))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn upsert_part(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    part: &Part,
    seq: u64,
) -> Result<(), Error> {
    sqlx::query(
        "insert into part (tenant_id, session_id, message_id, id, seq, kind, data) values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (tenant_id, session_id, message_id, id) do update set kind = excluded.kind, data = excluded.data",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(part.message_id.as_str())
    .bind(part.id.as_str())
    .bind(signed(seq))
    .bind(part.body.kind())
    .bind(Json(part))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn insert_events(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    events: &[Stored],
) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let seqs: Vec<i64> = events.iter().map(|event| signed(event.seq)).collect();
    let ids: Vec<&str> = events.iter().map(|event| event.id.as_str()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let properties: Vec<&str> = events.iter().map(|event| event.properties.as_str()).collect();
    sqlx::query(
        "insert into session_event (tenant_id, session_id, epoch, at, seq, id, kind, properties)
         select $1, $2, $3, to_timestamp($4::float8 / 1000), e.seq, e.id, e.kind, e.properties
           from unnest($5::bigint[], $6::text[], $7::text[], $8::text[]) as e (seq, id, kind, properties)",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(signed(scope.epoch))
    .bind(scope.at.0)
    .bind(&seqs)
    .bind(&ids)
    .bind(&kinds)
    .bind(&properties)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
