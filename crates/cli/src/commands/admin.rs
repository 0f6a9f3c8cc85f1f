//! `flotilla admin`: waiting and running work of all tenants, and the operator's commands.

use super::tenant::{self, OperatorArgs};
use crate::{
    client::{Client, call},
    exit::Exit,
    terminal::{
        out,
        paint::Paint,
        show,
        table::{Side, Table},
    },
};
use anyhow::Result;
use domain::limits;
use rpc::v1::{
    Control, DrainWorkerRequest, KillSessionRequest, ListControlRequest, ListQueueRequest,
    ListWorkersRequest, Page, QueueLine, ReleaseSessionRequest, SessionState, Worker,
};
use serde_json::{Value, json};

/// Characters of a tenant's name in a table.
const TENANT_CHARS: usize = 16;
/// Characters of a worker's name in a table.
const WORKER_CHARS: usize = 24;

/// `flotilla admin`.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
    /// One JSON object per line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List waiting and running sessions, by tenant and class.
    Queue,
    /// List workers, the newest first.
    Workers,
    /// List sessions that have work, the longest in their state first; at most 200 of each state.
    Sessions {
        /// Only sessions in this state.
        #[arg(long, value_enum)]
        state: Option<State>,
    },
    /// List what tenants store, and their quotas.
    Usage {
        /// Only this tenant, by name or id.
        tenant: Option<String>,
    },
    /// Ask a worker to hand over its sessions and to take no more.
    Drain {
        /// Its name or its incarnation.
        worker: String,
        /// Let it take sessions again.
        #[arg(long)]
        undo: bool,
    },
    /// Release a quarantined session and reset its attempts.
    Release {
        /// The session.
        id: String,
        /// Its tenant, by name or id; needed if several tenants have a session with this id.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Take a session away from its worker, quarantine it, and abort its subtasks.
    Kill {
        /// The session.
        id: String,
        /// Shown to clients that watch the session.
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
        /// Its tenant, by name or id; needed if several tenants have a session with this id.
        #[arg(long)]
        tenant: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum State {
    Queued,
    Running,
    Waiting,
    Quarantined,
}

impl State {
    fn to_wire(self) -> SessionState {
        match self {
            Self::Queued => SessionState::Queued,
            Self::Running => SessionState::Running,
            Self::Waiting => SessionState::Waiting,
            Self::Quarantined => SessionState::Quarantined,
        }
    }
}

pub(crate) async fn run(client: &Client, arguments: AdminArgs) -> Result<Exit> {
    let json = arguments.json;
    match arguments.command {
        Command::Queue => list(json, &queue(client).await?, queue_table, queue_json, "no session has work"),
        Command::Workers => {
            let request = || ListWorkersRequest { page: Some(page("")) };
            let answer =
                call("list workers", || async { client.admin().list_workers(request()).await }).await?;
            list(json, &answer.workers, workers_table, worker_json, "no workers")
        }
        Command::Sessions { state } => {
            list(json, &sessions(client, state).await?, sessions_table, control_json, "no such session")
        }
        Command::Usage { tenant } => {
            let usages = usage::read(client, &tenant_id(client, tenant.as_deref()).await?).await?;
            list(json, &usages, usage::table, usage::to_json, "no tenants")
        }
        Command::Drain { worker, undo } => {
            let request = || DrainWorkerRequest { worker: worker.clone(), undo };
            let answer =
                call("drain the worker", || async { client.admin().drain_worker(request()).await }).await?;
            let what = if undo { "take sessions again" } else { "hand over their sessions" };
            done(json, &format!("{} asked to {what}", answer.asked), json!({"asked": answer.asked}))
        }
        Command::Release { id, tenant } => {
            let tenant_id = tenant_id(client, tenant.as_deref()).await?;
            let request = || ReleaseSessionRequest { session_id: id.clone(), tenant_id: tenant_id.clone() };
            call("release the session", || async { client.admin().release_session(request()).await }).await?;
            done(json, &format!("{id} is released"), json!({"released": id}))
        }
        Command::Kill { id, reason, tenant } => {
            let tenant_id = tenant_id(client, tenant.as_deref()).await?;
            let request = KillSessionRequest { session_id: id.clone(), reason, tenant_id };
            let kill = async || client.admin().kill_session(request.clone()).await;
            let subtasks = call("stop the session", kill).await?.subtasks;
            let named = tenant.map_or_else(String::new, |tenant| format!(" --tenant {tenant}"));
            let text =
                format!("{id} is stopped{}; {}{named}", and_subtasks(subtasks), show::release_command(&id));
            done(json, &text, json!({"killed": id, "subtasks": subtasks}))
        }
    }
}

fn and_subtasks(count: u32) -> String {
    match count {
        0 => String::new(),
        1 => " and its subtask".to_owned(),
        count => format!(" and its {count} subtasks"),
    }
}

/// The id of the tenant that the operator names; empty: none.
async fn tenant_id(client: &Client, named: Option<&str>) -> Result<String> {
    match named {
        Some(named) => Ok(tenant::get(client, named).await?.id),
        None => Ok(String::new()),
    }
}

fn page(cursor: &str) -> Page {
    Page { limit: limits::PAGE_MAX, cursor: cursor.to_owned() }
}

fn done(json: bool, text: &str, value: Value) -> Result<Exit> {
    if json {
        out::line(&value.to_string())?
    } else {
        out::line(text)?
    }
    Ok(Exit::Done)
}

/// Prints a list as JSON lines or as a table.
fn list<T>(
    json: bool,
    list: &[T],
    table: fn(&[T], i64, Paint) -> String,
    to_json: fn(&T) -> Value,
    none: &str,
) -> Result<Exit> {
    if json {
        for entry in list {
            out::line(&to_json(entry).to_string())?;
        }
    } else if list.is_empty() {
        out::note(none);
    } else {
        out::write(&table(list, show::now_ms(), Paint::for_stdout()))?;
    }
    Ok(Exit::Done)
}

async fn queue(client: &Client) -> Result<Vec<QueueLine>> {
    let (mut lines, mut cursor) = (Vec::new(), String::new());
    loop {
        let request = || ListQueueRequest { page: Some(page(&cursor)) };
        let answer = call("list the queue", || async { client.admin().list_queue(request()).await }).await?;
        lines.extend(answer.lines);
        cursor = answer.next_cursor;
        if cursor.is_empty() {
            return Ok(lines);
        }
    }
}

async fn sessions(client: &Client, state: Option<State>) -> Result<Vec<Control>> {
    let all = [State::Quarantined, State::Waiting, State::Queued, State::Running];
    let states = state.map_or(all.to_vec(), |state| vec![state]);
    let mut sessions = Vec::new();
    for state in states {
        let mut request = ListControlRequest { state: 0, page: Some(page("")) };
        request.set_state(state.to_wire());
        let control = async || client.admin().list_control(request.clone()).await;
        sessions.extend(call("list sessions", control).await?.sessions);
    }
    Ok(sessions)
}

fn queue_table(lines: &[QueueLine], _: i64, paint: Paint) -> String {
    let mut table = Table::new([
        ("TENANT", Side::Left),
        ("CLASS", Side::Left),
        ("QUEUED", Side::Right),
        ("OLDEST", Side::Right),
        ("RUNNING", Side::Right),
        ("WAITING", Side::Right),
        ("STOPPED", Side::Right),
        ("SHARE", Side::Right),
    ]);
    for line in lines {
        let oldest = if line.queued > 0 { show::span(line.oldest_ms) } else { "-".to_owned() };
        table.push([
            crate::terminal::paint::one_line(&line.tenant_name, TENANT_CHARS),
            show::class_word(line.class()),
            line.queued.to_string(),
            oldest,
            format!("{}/{}", line.running, line.running_max),
            line.waiting.to_string(),
            line.quarantined.to_string(),
            line.weight.to_string(),
        ]);
    }
    table.text(paint)
}

fn workers_table(workers: &[Worker], now_ms: i64, paint: Paint) -> String {
    let mut table = Table::new([
        ("WORKER", Side::Left),
        ("STATE", Side::Left),
        ("RUNNING", Side::Right),
        ("LEASE", Side::Right),
        ("STARTED", Side::Right),
        ("VERSION", Side::Left),
    ]);
    for worker in workers {
        let lease = if worker.lease_ms > 0 { show::span(worker.lease_ms) } else { "-".to_owned() };
        table.push([
            crate::terminal::paint::one_line(&worker.name, WORKER_CHARS),
            life(worker).to_owned(),
            format!("{}/{}", worker.running, worker.slots),
            lease,
            show::age(now_ms.saturating_sub(worker.started_at_ms)),
            worker.version.clone(),
        ]);
    }
    table.text(paint)
}

fn life(worker: &Worker) -> &'static str {
    match worker {
        Worker { lease_ms: ..=0, .. } => "dead",
        Worker { draining: true, .. } => "draining",
        _ => "alive",
    }
}

fn sessions_table(sessions: &[Control], now_ms: i64, paint: Paint) -> String {
    let mut table = Table::new([
        ("SESSION", Side::Left),
        ("STATE", Side::Left),
        ("SINCE", Side::Right),
        ("TRIES", Side::Right),
        ("WORKER OR REASON", Side::Left),
    ]);
    for session in sessions {
        let since = match session.state() {
            SessionState::Running => session.owned_at_ms,
            SessionState::Queued => session.queued_at_ms,
            SessionState::Waiting | SessionState::Quarantined => session.waiting_at_ms,
            SessionState::Idle | SessionState::Unspecified => 0,
        };
        let since = if since > 0 { show::span(now_ms.saturating_sub(since)) } else { "-".to_owned() };
        let reasons = [&session.owner, &session.waiting_reason, &session.waiting_detail];
        let reasons: Vec<_> = reasons.into_iter().filter(|reason| !reason.is_empty()).cloned().collect();
        table.push([
            session.session_id.clone(),
            show::state_word(session.state()),
            since,
            session.attempts.to_string(),
            reasons.join(": "),
        ]);
    }
    table.text(paint)
}

fn queue_json(line: &QueueLine) -> Value {
    json!({
        "tenant_id": line.tenant_id, "tenant": line.tenant_name, "class": show::class_word(line.class()),
        "queued": line.queued, "oldest_ms": line.oldest_ms, "running": line.running, "waiting": line.waiting,
        "quarantined": line.quarantined, "running_max": line.running_max, "weight": line.weight,
    })
}

fn worker_json(worker: &Worker) -> Value {
    json!({
        "incarnation": worker.incarnation, "name": worker.name, "version": worker.version, "state": life(worker),
        "started_at_ms": worker.started_at_ms, "lease_ms": worker.lease_ms, "draining": worker.draining,
        "slots": worker.slots, "running": worker.running,
    })
}

fn control_json(session: &Control) -> Value {
    json!({
        "tenant_id": session.tenant_id, "id": session.session_id, "state": show::state_word(session.state()),
        "class": show::class_word(session.class()), "worker": session.owner, "owned_at_ms": session.owned_at_ms,
        "queued_at_ms": session.queued_at_ms, "waiting_at_ms": session.waiting_at_ms, "epoch": session.epoch, "attempts": session.attempts,
        "waiting_reason": session.waiting_reason, "waiting_detail": session.waiting_detail,
    })
}

mod usage;

#[cfg(test)]
mod tests;
