//! Reads the content of Postgres with separate SQL, because an observer must not use the code that it checks.
//! Everything logs in as the superuser, who bypasses row-level security.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{PgConnection, Row as _, postgres::PgRow, types::Json};
use std::collections::BTreeMap;

/// A session with all its stored rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its tenant; 32 hexadecimal digits.
    pub tenant_id: String,
    pub id: String,
    /// The parent session, if it is a subtask.
    pub parent_id: Option<String>,
    /// The outcome of its last turn.
    pub last_outcome: Option<String>,
    pub run: Run,
    /// Its mailbox, oldest first.
    pub inputs: Vec<Input>,
    /// Its log, oldest first.
    pub events: Vec<Event>,
    /// Its messages, oldest first.
    pub messages: Vec<Message>,
    /// Their parts, oldest first.
    pub parts: Vec<Part>,
    /// Its tool calls whose effect may have started.
    pub execs: Vec<Exec>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The epoch of the newest takeover.
    pub epoch: i64,
    /// Position of the newest event.
    pub event_seq: i64,
    /// Position of the newest input.
    pub input_seq: i64,
    /// Position of the newest input that a loop took.
    pub input_ack: i64,
    /// 0 idle, 1 runnable, 2 running, 3 waiting, 4 quarantined.
    pub phase: i16,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub seq: i64,
    /// `prompt`, `abort`, …
    pub kind: String,
    pub dedupe: String,
    /// The message of a prompt.
    pub message_id: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub seq: i64,
    /// The epoch of the loop that wrote it.
    pub epoch: i64,
    /// `evt_…`.
    pub id: String,
    /// The value of `type`.
    pub kind: String,
    /// The properties as clients get them.
    pub properties: Value,
    /// When it was written, by the writer's clock; milliseconds since 1970.
    pub at_ms: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `msg_…`.
    pub id: String,
    /// Position of its first event.
    pub seq: i64,
    /// `user` or `assistant`.
    pub role: String,
    /// As clients get it.
    pub info: Value,
}

/// A part of a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// `prt_…`.
    pub id: String,
    pub message_id: String,
    /// `text`, `tool`, …
    pub kind: String,
    /// As clients get it.
    pub data: Value,
}

/// A tool call whose effect may have started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The id of the call's part.
    pub exec_id: String,
    pub tool: String,
    /// The epoch of the loop that stored the intent.
    pub epoch: i64,
    /// `executing` or `done`.
    pub state: String,
}

/// A session that is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    pub session_id: String,
    /// See [`Run::phase`].
    pub phase: i16,
    pub epoch: i64,
    /// Number of inputs that no loop has taken.
    pub waiting: i64,
}

/// The current holder of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub session_id: String,
    /// See [`Run::phase`].
    pub phase: i16,
    pub epoch: i64,
    /// The name of the worker that owns it and is alive by the database's clock.
    pub worker: Option<String>,
    /// Whether a tool call may be running.
    pub acts: bool,
}

/// The connections of a server, without the caller's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    pub all: i64,
    /// Connections that have been idle in an open transaction for more than two seconds.
    pub idle_in_transaction: i64,
}

/// Adds a row to its session.
type RowReader = fn(&mut Session, &PgRow) -> Result<(), sqlx::Error>;

/// Reads every session.
///
/// # Errors
/// If Postgres does not answer, or its tables differ from the ones expected here.
pub async fn sessions(url: &str) -> Result<Vec<Session>, sqlx::Error> {
    let mut connection = connect(url).await?;
    let mut sessions = BTreeMap::new();
    let rows = sqlx::query(
        "select s.tenant_id, s.id, s.parent_id, s.last_outcome, r.epoch, r.event_seq, r.input_seq, r.input_ack, r.phase
           from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id",
    );
    for row in rows.fetch_all(&mut connection).await? {
        let session = session(&row)?;
        sessions.insert(session.id.clone(), session);
    }
    let queries: [(&'static str, RowReader); 5] = [
        ("select session_id, seq, kind, dedupe, message_id from session_input order by session_id, seq", input),
        (
            "select session_id, seq, epoch, id, kind, properties, (extract(epoch from at) * 1000)::bigint as at_ms
               from session_event order by session_id, seq",
            event,
        ),
        ("select session_id, id, seq, role, info from message order by session_id, seq", message),
        ("select session_id, id, message_id, kind, data from part order by session_id, seq, id", part),
        ("select session_id, exec_id, tool, epoch, state from tool_exec order by session_id, exec_id", exec),
    ];
    for (query, take) in queries {
        for row in sqlx::query(query).fetch_all(&mut connection).await? {
            let id: String = row.try_get("session_id")?;
            if let Some(session) = sessions.get_mut(&id) {
                take(session, &row)?;
            }
        }
    }
    Ok(sessions.into_values().collect())
}

/// Lists the sessions that are neither idle nor quarantined.
///
/// # Errors
/// If Postgres does not answer.
pub async fn unsettled(url: &str) -> Result<Vec<Unsettled>, sqlx::Error> {
    let rows = sqlx::query(
        "select session_id, phase, epoch, input_seq - input_ack as waiting from session_run where phase not in (0, 4)",
    );
    let rows = rows.fetch_all(&mut connect(url).await?).await?;
    let one = |row: &PgRow| {
        Ok(Unsettled {
            session_id: row.try_get("session_id")?,
            phase: row.try_get("phase")?,
            epoch: row.try_get("epoch")?,
            waiting: row.try_get("waiting")?,
        })
    };
    rows.iter().map(one).collect()
}

/// Returns the holders of these sessions.
///
/// # Errors
/// If Postgres does not answer.
pub async fn holders(url: &str, sessions: &[String]) -> Result<Vec<Holder>, sqlx::Error> {
    let rows = sqlx::query(
        "select r.session_id, r.phase, r.epoch, w.name,
                exists (select 1 from tool_exec e where e.tenant_id = r.tenant_id and e.session_id = r.session_id
                           and e.state = 'executing') as acts
           from session_run r left join worker w on w.incarnation = r.owner and lease_runs(w.lease_until)
          where r.session_id = any($1)",
    );
    let rows = rows.bind(sessions).fetch_all(&mut connect(url).await?).await?;
    let one = |row: &PgRow| {
        Ok(Holder {
            session_id: row.try_get("session_id")?,
            phase: row.try_get("phase")?,
            epoch: row.try_get("epoch")?,
            worker: row.try_get("name")?,
            acts: row.try_get("acts")?,
        })
    };
    rows.iter().map(one).collect()
}

/// Lists the tenant of each session: `(session, tenant)`.
///
/// # Errors
/// If Postgres does not answer.
pub async fn owners(url: &str) -> Result<Vec<(String, String)>, sqlx::Error> {
    let rows = sqlx::query("select id, tenant_id from session").fetch_all(&mut connect(url).await?).await?;
    let one = |row: &PgRow| {
        Ok((row.try_get("id")?, row.try_get::<uuid::Uuid, _>("tenant_id")?.simple().to_string()))
    };
    rows.iter().map(one).collect()
}

/// Counts the connections.
///
/// # Errors
/// If Postgres does not answer.
pub async fn connections(url: &str) -> Result<Connections, sqlx::Error> {
    let row = sqlx::query(
        "select count(*) as all, count(*) filter
                (where state like 'idle in transaction%' and state_change < now() - interval '2 seconds') as idle
           from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()",
    );
    let row = row.fetch_one(&mut connect(url).await?).await?;
    Ok(Connections { all: row.try_get("all")?, idle_in_transaction: row.try_get("idle")? })
}

/// Terminates the client connections at these positions of the list of connections, modulo its length. Returns their
/// number.
///
/// # Errors
/// If Postgres does not answer.
pub async fn terminate(url: &str, places: &[usize]) -> Result<usize, sqlx::Error> {
    let mut connection = connect(url).await?;
    let rows = sqlx::query(
        "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid() order by pid",
    );
    let rows = rows.fetch_all(&mut connection).await?;
    let mut ended = 0;
    for place in places.iter().filter(|_| !rows.is_empty()) {
        let pid: i32 = rows[place % rows.len()].try_get("pid")?;
        let row = sqlx::query("select pg_terminate_backend($1) as gone").bind(pid);
        ended += usize::from(row.fetch_one(&mut connection).await?.try_get::<bool, _>("gone")?);
    }
    Ok(ended)
}

async fn connect(url: &str) -> Result<PgConnection, sqlx::Error> {
    use sqlx::Connection as _;
    PgConnection::connect(url).await
}

fn session(row: &PgRow) -> Result<Session, sqlx::Error> {
    Ok(Session {
        tenant_id: row.try_get::<uuid::Uuid, _>("tenant_id")?.simple().to_string(),
        id: row.try_get("id")?,
        parent_id: row.try_get("parent_id")?,
        last_outcome: row.try_get("last_outcome")?,
        run: Run {
            epoch: row.try_get("epoch")?,
            event_seq: row.try_get("event_seq")?,
            input_seq: row.try_get("input_seq")?,
            input_ack: row.try_get("input_ack")?,
            phase: row.try_get("phase")?,
        },
        ..Session::default()
    })
}

fn input(session: &mut Session, row: &PgRow) -> Result<(), sqlx::Error> {
    session.inputs.push(Input {
        seq: row.try_get("seq")?,
        kind: row.try_get("kind")?,
        dedupe: row.try_get("dedupe")?,
        message_id: row.try_get("message_id")?,
    });
    Ok(())
}

fn event(session: &mut Session, row: &PgRow) -> Result<(), sqlx::Error> {
    let properties: String = row.try_get("properties")?;
    session.events.push(Event {
        seq: row.try_get("seq")?,
        epoch: row.try_get("epoch")?,
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        properties: serde_json::from_str(&properties).map_err(|error| sqlx::Error::Decode(error.into()))?,
        at_ms: row.try_get("at_ms")?,
    });
    Ok(())
}

fn message(session: &mut Session, row: &PgRow) -> Result<(), sqlx::Error> {
    session.messages.push(Message {
        id: row.try_get("id")?,
        seq: row.try_get("seq")?,
        role: row.try_get("role")?,
        info: row.try_get::<Json<Value>, _>("info")?.0,
    });
    Ok(())
}

fn part(session: &mut Session, row: &PgRow) -> Result<(), sqlx::Error> {
    session.parts.push(Part {
        id: row.try_get("id")?,
        message_id: row.try_get("message_id")?,
        kind: row.try_get("kind")?,
        data: row.try_get::<Json<Value>, _>("data")?.0,
    });
    Ok(())
}

fn exec(session: &mut Session, row: &PgRow) -> Result<(), sqlx::Error> {
    session.execs.push(Exec {
        exec_id: row.try_get("exec_id")?,
        tool: row.try_get("tool")?,
        epoch: row.try_get("epoch")?,
        state: row.try_get("state")?,
    });
    Ok(())
}
