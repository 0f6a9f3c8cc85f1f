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

/// Messages, parts and begun tool calls that are not written yet.
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

    /// Writes the gathered rows, and `events`, and forgets the rows.
    pub(super) async fn write(
        &mut self,
        tx: &mut Tx,
        scope: &Scope<'_>,
        events: &[StoredEvent],
    ) -> Result<(), Error> {
        let Self { messages, parts, begun, .. } = std::mem::take(self);
        if messages.is_empty() && parts.is_empty() && events.is_empty() {
            return Ok(());
        }
        // A statement with all of them needs one round trip, and leaves out what it does not write, because each table costs time. Postgres
        // checks that a part has its message when the statement ends.
        let sql = statement(!messages.is_empty(), !parts.is_empty(), !begun.is_empty());
        let mut query = bind_events(sqlx::query(AssertSqlSafe(sql)), scope, events);
        if !messages.is_empty() {
            query = bind_messages(query, &messages);
        }
        if !parts.is_empty() {
            query = bind_parts(query, &parts);
        }
        if !begun.is_empty() {
            query = bind_begun(query, &begun);
        }
        query.execute(&mut **tx).await?;
        Ok(())
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))?)
}

/// The statement that writes events, and messages, parts and begun tool calls if there are any. A tool call is a part.
fn statement(with_messages: bool, with_parts: bool, with_begun: bool) -> String {
    let with = match (with_messages, with_parts, with_begun) {
        (false, false, _) => String::new(),
        (true, false, _) => format!("with {MESSAGES} "),
        (false, true, false) => {
            format!("with {} ", parts("$9::text[], $10::text[], $11::bigint[], $12::text[], $13::text[]"))
        }
        (true, true, false) => {
            let parts = parts("$13::text[], $14::text[], $15::bigint[], $16::text[], $17::text[]");
            format!("with {MESSAGES}, {parts} ")
        }
        (false, true, true) => {
            let parts = parts("$9::text[], $10::text[], $11::bigint[], $12::text[], $13::text[]");
            let begun = begun("$14::text[], $15::text[]");
            format!("with {parts}, {begun} ")
        }
        (true, true, true) => {
            let parts = parts("$13::text[], $14::text[], $15::bigint[], $16::text[], $17::text[]");
            let begun = begun("$18::text[], $19::text[]");
            format!("with {MESSAGES}, {parts}, {begun} ")
        }
    };
    format!(
        "{with}insert into session_event (tenant_id, session_id, epoch, at, seq, id, kind, properties)
         select $1, $2, $3, to_timestamp($4::float8 / 1000), e.seq, e.id, e.kind, e.properties
           from unnest($5::bigint[], $6::text[], $7::text[], $8::text[]) as e (seq, id, kind, properties)"
    )
}

/// Writes messages.
const MESSAGES: &str = "messages as (
    insert into message (tenant_id, session_id, id, seq, role, info)
    select $1, $2, m.id, m.seq, m.role, m.info::json
      from unnest($9::text[], $10::bigint[], $11::text[], $12::text[]) as m (id, seq, role, info)
    on conflict (tenant_id, session_id, id) do update set info = excluded.info)";

/// Writes parts, whose columns are the parameters `columns`.
fn parts(columns: &str) -> String {
    format!(
        "parts as (
           insert into part (tenant_id, session_id, message_id, id, seq, kind, data, size_bytes)
           select $1, $2, p.message_id, p.id, p.seq, p.kind, p.data::json, octet_length(p.data)
             from unnest({columns}) as p (message_id, id, seq, kind, data)
           on conflict (tenant_id, session_id, message_id, id) do update
              set kind = excluded.kind, data = excluded.data, size_bytes = excluded.size_bytes)"
    )
}

/// Writes begun tool calls, whose columns are the parameters `columns`. A call that an earlier loop began keeps the epoch of that loop.
fn begun(columns: &str) -> String {
    format!(
        "begun as (
           insert into tool_exec (tenant_id, session_id, exec_id, tool, epoch, state)
           select $1, $2, b.exec_id, b.tool, $3, 'executing' from unnest({columns}) as b (exec_id, tool)
           on conflict do nothing)"
    )
}

type Statement<'q> = Query<'q, Postgres, PgArguments>;

fn bind_events<'q>(query: Statement<'q>, scope: &Scope<'q>, events: &'q [StoredEvent]) -> Statement<'q> {
    let texts = |of: fn(&StoredEvent) -> &str| events.iter().map(of).collect::<Vec<_>>();
    query
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(signed(scope.epoch))
        .bind(scope.at.0)
        .bind(events.iter().map(|event| signed(event.seq)).collect::<Vec<_>>())
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
