//! `flotilla admin`: waiting and running work of all tenants, and the operator's commands.

mod init;

use super::tenant::{self, OperatorArgs};
use crate::{
    client::{Client, Paged, all_pages, call},
    exit::Exit,
    terminal::{
        output::{ListText, Output},
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
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create the first tenant and print a key of an admin in it: what a new deployment needs.
    Init {
        /// The name of the tenant: letters, digits and dashes.
        #[arg(long, default_value = "default", value_name = "NAME")]
        tenant: String,
        /// The name of the key.
        #[arg(long, default_value = "admin", value_name = "NAME")]
        key_name: String,
    },
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

pub(crate) async fn run(client: &Client, output: &Output, arguments: AdminArgs) -> Result<Exit> {
    match arguments.command {
        Command::Init { tenant, key_name } => init::run(client, output, &tenant, &key_name).await?,
        Command::Queue => {
            let text = ListText { to_json: queue_json, table: &queue_table, none: "no session has work" };
            output.list(&queue(client).await?, &text)?;
        }
        Command::Workers => {
            let request = || ListWorkersRequest { page: Some(first_page()) };
            let answer =
                call("list workers", || async { client.admin().list_workers(request()).await }).await?;
            let table = |workers: &[Worker], paint: Paint| workers_table(workers, show::now_ms(), paint);
            let text = ListText { to_json: worker_json, table: &table, none: "no workers" };
            output.list(&answer.workers, &text)?;
        }
        Command::Sessions { state } => {
            let table = |sessions: &[Control], paint: Paint| sessions_table(sessions, show::now_ms(), paint);
            let none = if state.is_some() { "no session is in this state" } else { "no session has work" };
            let text = ListText { to_json: control_json, table: &table, none };
            output.list(&sessions(client, state).await?, &text)?;
        }
        Command::Usage { tenant } => {
            let usages = usage::read(client, &tenant_id(client, tenant.as_deref()).await?).await?;
            let text = ListText { to_json: usage::to_json, table: &usage::table, none: "no tenants" };
            output.list(&usages, &text)?;
        }
        Command::Drain { worker, undo } => {
            let request = || DrainWorkerRequest { worker: worker.clone(), undo };
            let answer =
                call("drain the worker", || async { client.admin().drain_worker(request()).await }).await?;
            let what = if undo { "take sessions again" } else { "hand over their sessions" };
            let object = json!({"type": "drain", "asked": answer.asked});
            output.result(&format!("{} asked to {what}", answer.asked), &object)?;
        }
        Command::Release { id, tenant } => {
            let tenant_id = tenant_id(client, tenant.as_deref()).await?;
            let request = || ReleaseSessionRequest { session_id: id.clone(), tenant_id: tenant_id.clone() };
            call("release the session", || async { client.admin().release_session(request()).await }).await?;
            output.result(&format!("{id} is released"), &json!({"type": "release", "released": id}))?;
        }
        Command::Kill { id, reason, tenant } => {
            let tenant_id = tenant_id(client, tenant.as_deref()).await?;
            let request = KillSessionRequest { session_id: id.clone(), reason, tenant_id };
            let kill = async || client.admin().kill_session(request.clone()).await;
            let subtasks = call("stop the session", kill).await?.subtasks;
            let named = tenant.map_or_else(String::new, |tenant| format!(" --tenant {tenant}"));
            let text =
                format!("{id} is stopped{}; {}{named}", and_subtasks(subtasks), show::release_command(&id));
            output.result(&text, &json!({"type": "kill", "killed": id, "subtasks": subtasks}))?;
        }
    }
    Ok(Exit::Done)
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

fn first_page() -> Page {
    Page { limit: limits::PAGE_MAX, cursor: String::new() }
}

async fn queue(client: &Client) -> Result<Vec<QueueLine>> {
    all_pages(async |page| {
        let request = ListQueueRequest { page: Some(page) };
        let list = async || client.admin().list_queue(request.clone()).await;
        let answer = call("list the queue", list).await?;
        Ok(Paged { entries: answer.lines, next_cursor: answer.next_cursor })
    })
    .await
}

async fn sessions(client: &Client, state: Option<State>) -> Result<Vec<Control>> {
    let all = [State::Quarantined, State::Waiting, State::Queued, State::Running];
    let states = state.map_or(all.to_vec(), |state| vec![state]);
    let mut sessions = Vec::new();
    for state in states {
        let mut request = ListControlRequest { state: 0, page: Some(first_page()) };
        request.set_state(state.to_wire());
        let control = async || client.admin().list_control(request.clone()).await;
        sessions.extend(call("list sessions", control).await?.sessions);
    }
    Ok(sessions)
}

fn queue_table(lines: &[QueueLine], paint: Paint) -> String {
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
        "type": "queue_line", "tenant_id": line.tenant_id, "tenant": line.tenant_name, "class": show::class_word(line.class()),
        "queued": line.queued, "oldest_ms": line.oldest_ms, "running": line.running, "waiting": line.waiting,
        "quarantined": line.quarantined, "running_max": line.running_max, "weight": line.weight,
    })
}

fn worker_json(worker: &Worker) -> Value {
    json!({
        "type": "worker", "incarnation": worker.incarnation, "name": worker.name, "version": worker.version, "state": life(worker),
        "started_at_ms": worker.started_at_ms, "lease_ms": worker.lease_ms, "draining": worker.draining,
        "slots": worker.slots, "running": worker.running,
    })
}

fn control_json(session: &Control) -> Value {
    json!({
        "type": "control", "tenant_id": session.tenant_id, "id": session.session_id, "state": show::state_word(session.state()),
        "class": show::class_word(session.class()), "worker": session.owner, "owned_at_ms": session.owned_at_ms,
        "queued_at_ms": session.queued_at_ms, "waiting_at_ms": session.waiting_at_ms, "epoch": session.epoch, "attempts": session.attempts,
        "waiting_reason": session.waiting_reason, "waiting_detail": session.waiting_detail,
    })
}

mod usage;

#[cfg(test)]
mod tests;
