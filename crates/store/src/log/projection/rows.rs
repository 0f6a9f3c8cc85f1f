//! The rows of messages, parts, begun tool calls and events that a projection writes with one statement.

use super::tool_execs::BegunExec;
use crate::{Tx, column::signed, error::Error, log::change::Scope};
use domain::{
    conversation::{message::Message, part::Part},
    event::StoredEvent,
};
use sqlx::{AssertSqlSafe, Postgres, postgres::PgArguments, query::Query};

/// Bytes of gathered rows beyond which they are written before the rest comes: together they may have megabytes.
const GATHERED_BYTES: usize = 256 * 1024;

/// A statement that gets its parameters.
pub(crate) type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// A statement that counts the events of a session, as the first part of a larger one.
pub(crate) struct Advance {
    /// It returns `event_seq`, the number of the newest event after it. `$1` to `$3` are the tenant, the session and the epoch.
    pub(crate) sql: String,
    /// The columns that the whole statement returns of it.
    pub(crate) returns: &'static str,
    /// Its parameter with the number of the new events.
    pub(crate) count: &'static str,
    /// A parameter with the time, which it does not use.
    pub(crate) at: &'static str,
    /// The number of its parameters.
    pub(crate) parameters: usize,
}

/// Messages, parts and begun tool calls that are not written yet. Their positions count from 1.
#[derive(Debug, Default)]
pub(super) struct Rows {
    messages: Vec<MessageRow>,
    parts: Vec<PartRow>,
    begun: Vec<BegunExec>,
    bytes: usize,
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

    /// As [`Rows::add_message`], for a part, and for the tool call that it begins.
    pub(super) fn add_part(&mut self, part: &Part, seq: u64) -> Result<(), Error> {
        self.begun.extend(BegunExec::of(part));
        let (data, kind) = (json(part)?, part.body.kind());
        self.bytes += data.len();
        let (message_id, id) = (part.message_id.as_str(), part.id.as_str());
        match self.parts.iter_mut().find(|row| row.id == id && row.message_id == message_id) {
            Some(row) => (row.data, row.kind) = (data, kind),
            None => self.parts.push(PartRow {
                message_id: message_id.to_owned(),
                id: id.to_owned(),
                seq: signed(seq),
                kind,
                data,
            }),
        }
        Ok(())
    }

    /// Whether the rows must be written before this part is added: the end of a call closes the row that its beginning adds.
    pub(super) fn must_precede(&self, part: &Part) -> bool {
        self.begun.iter().any(|begun| begun.id == part.id.as_str())
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
        if rows.messages.is_empty() && rows.parts.is_empty() && events.is_empty() {
            return Ok(());
        }
        let (with, insert) = rows.statement(Shape { at: "$4", base: "$5::bigint", from: "", parameters: 5 });
        let with = if with.is_empty() { String::new() } else { format!("with {} ", with.join(", ")) };
        let query = sqlx::query(AssertSqlSafe(format!("{with}{insert}")))
            .bind(scope.tenant.0)
            .bind(scope.session.as_str())
            .bind(signed(scope.epoch))
            .bind(scope.at.0)
            .bind(signed(base));
        rows.bind(query, events).execute(&mut **tx).await?;
        Ok(())
    }

    /// The statement that writes the rows and events behind those of `advance`, a statement that counts the events of the session. It writes nothing if `advance`
    /// finds no row.
    pub(super) fn behind(&self, advance: &Advance) -> String {
        let Advance { sql, returns, at, count, parameters } = advance;
        let base = format!("advanced.event_seq - {count}");
        let shape = Shape { at, base: &base, from: ", advanced", parameters: *parameters };
        let (with, insert) = self.statement(shape);
        let with: String = with.iter().map(|part| format!("{part}, ")).collect();
        format!("with advanced as ({sql}), {with}events as ({insert}) select {returns} from advanced")
    }

    /// The parts of a statement that writes the rows, and the one that writes events. A statement with all of them needs one round trip, and leaves out
    /// what it does not write, because each table costs time. Postgres checks that a part has its message when the statement ends.
    fn statement(&self, mut shape: Shape<'_>) -> (Vec<String>, String) {
        let events = shape.events();
        let messages = (!self.messages.is_empty()).then(|| shape.messages());
        let parts = (!self.parts.is_empty()).then(|| shape.parts());
        let begun = (!self.begun.is_empty()).then(|| shape.begun());
        (messages.into_iter().chain(parts).chain(begun).collect(), events)
    }

    /// Binds the events and the rows, in the order of [`Rows::statement`].
    pub(super) fn bind<'q>(&'q self, query: Statement<'q>, events: &'q [StoredEvent]) -> Statement<'q> {
        let mut query = bind_events(query, events);
        if !self.messages.is_empty() {
            query = bind_messages(query, &self.messages);
        }
        if !self.parts.is_empty() {
            query = bind_parts(query, &self.parts);
        }
        if !self.begun.is_empty() {
            query = bind_begun(query, &self.begun);
        }
        query
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))?)
}

/// What differs between the statements that write rows. `$1` to `$3` are the tenant, the session and the epoch.
struct Shape<'a> {
    /// The parameter of the time.
    at: &'a str,
    /// What the positions count from.
    base: &'a str,
    /// What gives the base, if it is not a parameter.
    from: &'a str,
    /// The parameters before those of the rows.
    parameters: usize,
}

impl Shape<'_> {
    fn events(&mut self) -> String {
        let (columns, at) = (self.columns(&["bigint", "text", "text", "text"]), self.at);
        let (base, from) = (self.base, self.from);
        format!(
            "insert into session_event (tenant_id, session_id, epoch, at, seq, id, kind, properties)
             select $1, $2, $3, to_timestamp({at}::float8 / 1000), {base} + e.seq, e.id, e.kind, e.properties
               from unnest({columns}) as e (seq, id, kind, properties){from}"
        )
    }

    fn messages(&mut self) -> String {
        let (columns, base, from) = (self.columns(&["text", "bigint", "text", "text"]), self.base, self.from);
        format!(
            "messages as (
               insert into message (tenant_id, session_id, id, seq, role, info)
               select $1, $2, m.id, {base} + m.seq, m.role, m.info::json
                 from unnest({columns}) as m (id, seq, role, info){from}
               on conflict (tenant_id, session_id, id) do update set info = excluded.info)"
        )
    }

    fn parts(&mut self) -> String {
        let columns = self.columns(&["text", "text", "bigint", "text", "text"]);
        let (base, from) = (self.base, self.from);
        format!(
            "parts as (
               insert into part (tenant_id, session_id, message_id, id, seq, kind, data, size_bytes)
               select $1, $2, p.message_id, p.id, {base} + p.seq, p.kind, p.data::json, octet_length(p.data)
                 from unnest({columns}) as p (message_id, id, seq, kind, data){from}
               on conflict (tenant_id, session_id, message_id, id) do update
                  set kind = excluded.kind, data = excluded.data, size_bytes = excluded.size_bytes)"
        )
    }

    /// A call that an earlier loop began keeps the epoch of that loop.
    fn begun(&mut self) -> String {
        let (columns, from) = (self.columns(&["text", "text"]), self.from);
        format!(
            "begun as (
               insert into tool_exec (tenant_id, session_id, exec_id, tool, epoch, state)
               select $1, $2, b.exec_id, b.tool, $3, 'executing' from unnest({columns}) as b (exec_id, tool){from}
               on conflict do nothing)"
        )
    }

    /// The next parameters, which are arrays of these types.
    fn columns(&mut self, types: &[&str]) -> String {
        let numbers = self.parameters + 1..;
        self.parameters += types.len();
        let columns: Vec<_> = numbers.zip(types).map(|(number, of)| format!("${number}::{of}[]")).collect();
        columns.join(", ")
    }
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
}

fn bind_begun<'q>(query: Statement<'q>, begun: &'q [BegunExec]) -> Statement<'q> {
    let texts = |of: fn(&BegunExec) -> &str| begun.iter().map(of).collect::<Vec<_>>();
    query.bind(texts(|exec| &exec.id)).bind(texts(|exec| &exec.tool))
}
