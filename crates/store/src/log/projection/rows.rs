//! The rows of messages, parts, begun tool calls, costs and events that a projection writes with one statement.

use super::{
    charges::{ADD_SPENT, KnownCharge, SPENT, bind_sums},
    columns::{SessionColumns, set_columns},
    tool_execs,
};
use crate::{
    Tx,
    column::{json, signed},
    error::Error,
    log::{
        change::Scope,
        control::{self, RETURNS},
    },
    pool::Statement,
    rows::ledger::{self, LedgerEntry},
};
use domain::{
    conversation::{message::Message, part::Part},
    event::StoredEvent,
};
use serde_json::Value;
use sqlx::AssertSqlSafe;

/// Bytes of gathered rows beyond which they are written before the rest comes: together they may have megabytes.
const GATHERED_BYTES: usize = 256 * 1024;

/// Messages, parts, begun tool calls and costs that are not written yet. Their positions count from 1.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    messages: Vec<MessageRow>,
    parts: Vec<PartRow>,
    /// The costs of model calls.
    entries: Vec<LedgerEntry>,
    /// A charge of the session that needs no statement of its own.
    charge: Option<KnownCharge>,
    columns: SessionColumns,
    bytes: usize,
}

/// The tables that a statement writes in addition to the log. It leaves the others out, because each costs time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    None,
    Parts(Calls),
    Messages(Calls),
    /// The ledger, messages and parts.
    Ledger(Calls),
}

/// The changes of tool calls among parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    None,
    Begun,
    Ended,
    BegunAndEnded,
}

#[derive(Debug)]
struct MessageRow {
    id: String,
    /// The position of its first event.
    seq: i64,
    role: &'static str,
    info: String,
}

#[derive(Debug)]
struct PartRow {
    message_id: String,
    id: String,
    /// The position of its first event.
    seq: i64,
    kind: &'static str,
    data: String,
    /// The tool of the call that the part begins.
    begun_tool: Option<String>,
    /// Whether it is a call that is over.
    is_over: bool,
}

impl Rows {
    /// Adds a message. A newer version of a message takes the place of the one before, and keeps its position.
    pub(super) fn add_message(&mut self, message: &Message, seq: u64) -> Result<(), Error> {
        let info = json(message)?;
        self.bytes += info.len();
        let id = message.id().as_str();
        match self.messages.iter_mut().find(|row| row.id == id) {
            Some(row) => row.info = info,
            None => {
                let row = MessageRow { id: id.to_owned(), seq: signed(seq), role: message.role(), info };
                self.messages.push(row);
            }
        }
        Ok(())
    }

    /// As [`Rows::add_message`], for a part, and for the tool call that it begins or ends.
    pub(super) fn add_part(&mut self, part: &Part, seq: u64) -> Result<(), Error> {
        let mut row = PartRow {
            message_id: part.message_id.to_string(),
            id: part.id.to_string(),
            seq: signed(seq),
            kind: part.body.kind(),
            data: json(part)?,
            begun_tool: tool_execs::begun_tool(part),
            is_over: tool_execs::is_over(part),
        };
        self.bytes += row.data.len();
        let is_same =
            |earlier: &&mut PartRow| (&earlier.id, &earlier.message_id) == (&row.id, &row.message_id);
        match self.parts.iter_mut().find(is_same) {
            Some(earlier) => {
                row.seq = earlier.seq;
                *earlier = row;
            }
            None => self.parts.push(row),
        }
        Ok(())
    }

    /// Adds the cost of a model call to the ledger.
    pub(super) fn add_entry(&mut self, entry: &LedgerEntry) {
        self.entries.push(entry.clone());
    }

    /// Sets the to-do list of the session.
    pub(super) fn set_todos(&mut self, todos: &Value) -> Result<(), Error> {
        self.columns.todos = Some(json(todos)?);
        Ok(())
    }

    /// Sets the branch of the session's files.
    pub(super) fn set_branch(&mut self, branch: Option<String>) {
        self.columns.branch = Some(branch);
    }

    /// Whether events set columns of the session's row. [`parked`] does not write them.
    pub(crate) fn have_columns(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Adds a charge with these entries. There is no other one.
    pub(super) fn add_charge(&mut self, charge: KnownCharge, entries: &[LedgerEntry]) {
        self.entries.extend_from_slice(entries);
        self.charge = Some(charge);
    }

    /// The charge among the rows.
    pub(crate) fn charge(&self) -> Option<&KnownCharge> {
        self.charge.as_ref()
    }

    /// Whether the rows must be written before this part is added: the end of a call closes the row that its beginning adds.
    pub(super) fn must_precede(&self, part: &Part) -> bool {
        self.parts.iter().any(|row| row.begun_tool.is_some() && row.id == part.id.as_str())
    }

    /// Whether the rows are messages and parts, and no part begins a tool call.
    pub(super) fn are_plain_messages(&self) -> bool {
        self.tables() == Tables::Messages(Calls::None)
    }

    /// Whether the rows should be written before more are added.
    pub(super) fn are_many(&self) -> bool {
        self.bytes > GATHERED_BYTES
    }

    /// Writes the gathered rows, and `events`, and forgets the rows. The positions of all of them count from after `base`.
    pub(super) async fn write(
        &mut self,
        tx: &mut Tx,
        scope: &Scope<'_>,
        base: u64,
        events: &[StoredEvent],
    ) -> Result<(), Error> {
        let rows = std::mem::take(self);
        let tables = rows.tables();
        if tables == Tables::None && events.is_empty() {
            return Ok(());
        }
        let sql = plain(&rows);
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(scope.tenant.0)
            .bind(scope.session.as_str())
            .bind(signed(scope.epoch))
            .bind(scope.at.0)
            .bind(signed(base));
        rows.bind_session(rows.bind(query, events)).execute(&mut **tx).await?;
        Ok(())
    }

    /// The parameters of the ledger follow those of messages, and these follow those of parts. So the rows of one table bring the earlier ones with them.
    fn tables(&self) -> Tables {
        let calls = self.calls();
        if !self.entries.is_empty() || self.charge.is_some() || self.have_columns() {
            Tables::Ledger(calls)
        } else if !self.messages.is_empty() {
            Tables::Messages(calls)
        } else if !self.parts.is_empty() {
            Tables::Parts(calls)
        } else {
            Tables::None
        }
    }

    fn calls(&self) -> Calls {
        let begun = self.parts.iter().any(|row| row.begun_tool.is_some());
        match (begun, self.parts.iter().any(|row| row.is_over)) {
            (false, false) => Calls::None,
            (true, false) => Calls::Begun,
            (false, true) => Calls::Ended,
            (true, true) => Calls::BegunAndEnded,
        }
    }

    /// Binds what changes the row of the session to a statement whose rows are bound.
    pub(crate) fn bind_session<'q>(&'q self, query: Statement<'q>) -> Statement<'q> {
        match &self.charge {
            None if self.have_columns() => self.columns.bind(query),
            None => query,
            Some(known) => {
                let query =
                    bind_sums(query, known.sums).bind(known.updated_at.0).bind(signed(known.event_seq));
                self.columns.bind(query)
            }
        }
    }

    /// Binds the events and the rows to a statement whose own parameters are bound.
    pub(super) fn bind<'q>(&'q self, query: Statement<'q>, events: &'q [StoredEvent]) -> Statement<'q> {
        let query = bind_events(query, events);
        match self.tables() {
            Tables::None => query,
            Tables::Parts(_) => bind_parts(query, &self.parts),
            Tables::Messages(_) => bind_messages(bind_parts(query, &self.parts), &self.messages),
            Tables::Ledger(_) => {
                let query = bind_messages(bind_parts(query, &self.parts), &self.messages);
                ledger::bind(query, &self.entries)
            }
        }
    }
}

/// The statement that writes the rows and events of a projection after it has advanced the control row of the owner, as [`control::advance_statement`] does. It
/// writes nothing if that finds no row. `$8` is the time. With a charge it also writes nothing if the session has a newer event than `$43`. The parameters of
/// [`Rows::bind_session`] follow those of the rows.
pub(crate) fn fenced(rows: &Rows) -> String {
    let tables = rows.tables();
    let parts =
        "$13::text[], $14::text[], $15::bigint[], $16::text[], $17::text[], $18::text[], $19::boolean[]";
    let messages = "$20::text[], $21::bigint[], $22::text[], $23::text[]";
    let entries = "$24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::bigint[], $30::bigint[], $31::bigint[], $32::bigint[],
                   $33::bigint[], $34::bigint[], $35::bigint[]";
    let events = insert_events("$8", "$9::bigint[], $10::text[], $11::text[], $12::text[]");
    let clauses = match (&rows.charge, rows.have_columns()) {
        (None, false) => format!(
            "with behind as ({}, event_seq - $5::bigint as base){}",
            control::advance_statement(""),
            inserts(tables, parts, messages, entries),
        ),
        (None, true) => format!(
            "with behind as ({}, event_seq - $5::bigint as base){}{}",
            control::advance_statement(""),
            ledger_inserts(rows.calls(), parts, messages, entries),
            columns_update("$36", "$37", "$38"),
        ),
        (Some(_), _) => format!(
            "with behind as ({}, event_seq - $5::bigint as base){},
             charged as (
               update session s set {ADD_SPENT}, updated_at = to_timestamp($42::float8 / 1000), {}
                 from behind, (values ($36::bigint, $37::bigint, $38::bigint, $39::bigint, $40::bigint, $41::bigint)) as spent ({SPENT})
                where s.tenant_id = $1 and s.id = $2)",
            control::advance_statement("and event_seq = $43"),
            ledger_inserts(rows.calls(), parts, messages, entries),
            set_columns("$44", "$45", "$46"),
        ),
    };
    format!("{clauses}, events as ({events}) select {RETURNS} from behind")
}

/// The clauses that write rows and events behind the position of the clause `behind`, for the statement that ends a loop. `$1` to `$3` are the tenant, the
/// session and the epoch, and `$20` is the time.
pub(crate) fn parked(rows: &Rows) -> String {
    let parts =
        "$25::text[], $26::text[], $27::bigint[], $28::text[], $29::text[], $30::text[], $31::boolean[]";
    let messages = "$32::text[], $33::bigint[], $34::text[], $35::text[]";
    let entries = "$36::text[], $37::text[], $38::text[], $39::text[], $40::text[], $41::bigint[], $42::bigint[], $43::bigint[], $44::bigint[],
                   $45::bigint[], $46::bigint[], $47::bigint[]";
    format!(
        "{}, events as ({})",
        inserts(rows.tables(), parts, messages, entries),
        insert_events("$20", "$21::bigint[], $22::text[], $23::text[], $24::text[]"),
    )
}

/// The clauses that write messages, parts and events behind the position of the clause `behind`, for the statement that stores a prompt. `$1` to `$3` are the
/// tenant, the session and the epoch, and `$14` is the time.
pub(crate) fn message_inserts() -> String {
    let parts =
        "$19::text[], $20::text[], $21::bigint[], $22::text[], $23::text[], $24::text[], $25::boolean[]";
    let messages = "$26::text[], $27::bigint[], $28::text[], $29::text[]";
    format!(
        "{}{}, events as ({})",
        insert_parts(parts),
        insert_messages(messages),
        insert_events("$14", "$15::bigint[], $16::text[], $17::text[], $18::text[]"),
    )
}

/// The statement that writes rows and events behind the position `$5`. `$4` is the time.
fn plain(rows: &Rows) -> String {
    let parts =
        "$10::text[], $11::text[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::boolean[]";
    let messages = "$17::text[], $18::bigint[], $19::text[], $20::text[]";
    let entries = "$21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::bigint[], $27::bigint[], $28::bigint[], $29::bigint[],
                   $30::bigint[], $31::bigint[], $32::bigint[]";
    let inserts = match rows.have_columns() {
        false => inserts(rows.tables(), parts, messages, entries),
        true => format!(
            "{}{}",
            ledger_inserts(rows.calls(), parts, messages, entries),
            columns_update("$33", "$34", "$35"),
        ),
    };
    format!(
        "with behind as (select $5::bigint as base){inserts} {}",
        insert_events("$4", "$6::bigint[], $7::text[], $8::text[], $9::text[]"),
    )
}

/// The clauses that write messages, parts, tool calls and costs. One statement writes all of them, in one round trip: Postgres checks that a
/// part has its message when the statement ends. `$1` to `$3` are the tenant, the session and the epoch; `behind` has the position that all others count from.
/// Each clause reads `behind`, so that it writes nothing if the fence does not match.
fn inserts(tables: Tables, parts: &str, messages: &str, entries: &str) -> String {
    match tables {
        Tables::None => String::new(),
        Tables::Parts(calls) => part_inserts(calls, parts),
        Tables::Messages(calls) => format!("{}{}", part_inserts(calls, parts), insert_messages(messages)),
        Tables::Ledger(calls) => ledger_inserts(calls, parts, messages, entries),
    }
}

fn ledger_inserts(calls: Calls, parts: &str, messages: &str, entries: &str) -> String {
    format!("{}{}{}", part_inserts(calls, parts), insert_messages(messages), insert_costs(entries))
}

fn part_inserts(calls: Calls, parts: &str) -> String {
    match calls {
        Calls::None => insert_parts(parts),
        Calls::Begun => format!("{}{}", insert_parts(parts), insert_begun(parts)),
        Calls::Ended => format!("{}{}", insert_parts(parts), end_calls(parts)),
        Calls::BegunAndEnded => {
            format!("{}{}{}", insert_parts(parts), insert_begun(parts), end_calls(parts))
        }
    }
}

/// The clause that sets columns of the session's row.
fn columns_update(has_branch: &str, branch: &str, todos: &str) -> String {
    format!(
        ", columns as (update session s set {} from behind where s.tenant_id = $1 and s.id = $2)",
        set_columns(has_branch, branch, todos)
    )
}

fn insert_events(at: &str, columns: &str) -> String {
    format!(
        "insert into session_event (tenant_id, session_id, epoch, at, seq, id, kind, properties)
         select $1, $2, $3, to_timestamp({at}::float8 / 1000), behind.base + e.seq, e.id, e.kind, e.properties
           from behind, unnest({columns}) as e (seq, id, kind, properties)"
    )
}

fn insert_messages(columns: &str) -> String {
    format!(
        ", messages as (
           insert into message (tenant_id, session_id, id, seq, role, info)
           select $1, $2, m.id, behind.base + m.seq, m.role, m.info::json
             from behind, unnest({columns}) as m (id, seq, role, info)
           on conflict (tenant_id, session_id, id) do update set info = excluded.info)"
    )
}

/// The columns of [`bind_parts`].
const PART: &str = "message_id, id, seq, kind, data, begun_tool, is_over";

fn insert_parts(columns: &str) -> String {
    format!(
        ", parts as (
           insert into part (tenant_id, session_id, message_id, id, seq, kind, data, size_bytes)
           select $1, $2, p.message_id, p.id, behind.base + p.seq, p.kind, p.data::json, octet_length(p.data)
             from behind, unnest({columns}) as p ({PART})
           on conflict (tenant_id, session_id, message_id, id) do update
              set kind = excluded.kind, data = excluded.data, size_bytes = excluded.size_bytes)"
    )
}

/// Closes the rows of calls that are over. Other parts have none.
fn end_calls(columns: &str) -> String {
    format!(
        ", ended as (
           update tool_exec x set state = 'done', ended_at = now()
             from behind, unnest({columns}) as p ({PART})
            where x.tenant_id = $1 and x.session_id = $2 and x.exec_id = p.id and p.is_over and x.state = 'executing')"
    )
}

/// A call that an earlier loop began keeps the epoch of that loop.
fn insert_begun(columns: &str) -> String {
    format!(
        ", begun as (
           insert into tool_exec (tenant_id, session_id, exec_id, tool, epoch, state)
           select $1, $2, p.id, p.begun_tool, $3, 'executing'
             from behind, unnest({columns}) as p ({PART})
            where p.begun_tool is not null
           on conflict do nothing)"
    )
}

fn insert_costs(columns: &str) -> String {
    format!(", costs as ({})", ledger::insert_entries("behind, session s", columns))
}

fn bind_events<'q>(query: Statement<'q>, events: &'q [StoredEvent]) -> Statement<'q> {
    let texts = |of: fn(&StoredEvent) -> &str| events.iter().map(of).collect::<Vec<_>>();
    query
        .bind((1..).take(events.len()).collect::<Vec<i64>>())
        .bind(texts(|event| &event.id))
        .bind(texts(|event| &event.kind))
        .bind(texts(|event| &event.properties))
}

fn bind_messages<'q>(query: Statement<'q>, messages: &'q [MessageRow]) -> Statement<'q> {
    let texts = |of: fn(&MessageRow) -> &str| messages.iter().map(of).collect::<Vec<_>>();
    query
        .bind(texts(|row| &row.id))
        .bind(messages.iter().map(|row| row.seq).collect::<Vec<_>>())
        .bind(texts(|row| row.role))
        .bind(texts(|row| &row.info))
}

fn bind_parts<'q>(query: Statement<'q>, parts: &'q [PartRow]) -> Statement<'q> {
    let texts = |of: fn(&PartRow) -> &str| parts.iter().map(of).collect::<Vec<_>>();
    query
        .bind(texts(|row| &row.message_id))
        .bind(texts(|row| &row.id))
        .bind(parts.iter().map(|row| row.seq).collect::<Vec<_>>())
        .bind(texts(|row| row.kind))
        .bind(texts(|row| &row.data))
        .bind(parts.iter().map(|row| row.begun_tool.as_deref()).collect::<Vec<_>>())
        .bind(parts.iter().map(|row| row.is_over).collect::<Vec<_>>())
}
