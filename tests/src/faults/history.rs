//! The observers' record of one run, independent of the system's own view. Times are microseconds since 1970, all by
//! the clock of one machine.

use serde::Serialize;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};
use testkit::dump;

pub fn now_us() -> i64 {
    micros(SystemTime::now())
}

/// A time as microseconds since 1970.
pub(super) fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// How far two clocks may differ: each worker takes the time of its events from Postgres, over a link that the harness slows down.
pub(super) const CLOCKS_MS: i64 = 2_000;

/// Kind of the injections that are stalls of the machine. They are no fault of the system.
pub const STALL: &str = "machine stall";

/// Everything that the observers recorded.
#[derive(Debug, Clone, Default, Serialize)]
pub struct History {
    /// The content of Postgres at the end.
    pub sessions: Vec<dump::Session>,
    pub prompts: Vec<Prompt>,
    pub aborts: Vec<Abort>,
    /// The answers of people.
    pub answers: Vec<Answer>,
    /// The sessions that kill their workers.
    pub poisons: Vec<Poison>,
    pub transcripts: Vec<Transcript>,
    /// The effects of tool calls in workspaces.
    pub effects: Vec<Effect>,
    /// The requests to the model.
    pub requests: Vec<Request>,
    pub injections: Vec<Injection>,
    /// Wrong answers to clients, and processes that exited by themselves.
    pub surprises: Vec<Surprise>,
    /// The state after the last fault.
    pub final_state: FinalState,
}

/// A prompt of a client.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Prompt {
    /// The number of the tenant; tenant 0 is the heavy one.
    pub tenant: usize,
    pub session_id: String,
    pub key: String,
    /// Its name in the conversation.
    pub canary: String,
    /// The calls of its script, each with a separate canary.
    pub calls: Vec<Call>,
    /// The subtasks below it, at every depth.
    pub subtasks: Vec<Subtask>,
    /// Whether a person must allow each of its commands.
    pub asks: bool,
    /// The message id in each answer, also to repeated calls.
    pub answers: Vec<String>,
    /// When the first answer arrived.
    pub accepted_us: Option<i64>,
}

/// A tool call in the script of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// The word that it leaves in the workspace, once.
    pub canary: String,
    pub tool: &'static str,
}

/// A call of `task` in the script of a prompt or of one of its subtasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Subtask {
    /// The canary of the prompt or subtask that makes the call.
    pub within: String,
    /// The canary of the call.
    pub call: String,
    /// The canary of the child's prompt.
    pub canary: String,
    /// The calls of the child.
    pub calls: Vec<Call>,
}

/// An answer to a request of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub session_id: String,
    pub request_id: String,
    /// `once`, `reject`, or the chosen label.
    pub reply: &'static str,
    /// When it was first sent.
    pub sent_us: i64,
    /// When it was confirmed as the first answer; `None` if it was too late, or its confirmation was lost.
    pub accepted_us: Option<i64>,
}

/// A session that kills the workers that run it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Poison {
    pub session_id: String,
    /// The workers that it killed, in order.
    pub killed: Vec<String>,
}

/// An abort that was confirmed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Abort {
    pub session_id: String,
    pub sent_us: i64,
    pub accepted_us: i64,
    /// Whether a turn was active.
    pub was_active: bool,
}

/// What one subscriber received over all of its connections.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Transcript {
    /// The number of its tenant.
    pub tenant: usize,
    pub session_id: String,
    pub connections: u32,
    /// Stored events, in the order of their arrival.
    pub events: Vec<ReceivedEvent>,
    /// Deltas, in the order of their arrival.
    pub deltas: Vec<ReceivedDelta>,
}

/// An event as a subscriber received it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReceivedEvent {
    pub at_us: i64,
    pub seq: i64,
    /// The epoch of the loop that wrote it.
    pub epoch: i64,
    pub id: String,
    /// The value of `type`.
    pub kind: String,
    pub properties: Value,
}

/// A delta as a subscriber received it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReceivedDelta {
    /// The number of the connection, from 1.
    pub connection: u32,
    /// The newest event that the subscriber had received.
    pub after_seq: i64,
    pub part_id: String,
    /// Its position in the text of the part; bytes.
    pub offset: usize,
    pub text: String,
}

/// A line that a tool call left in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// The tenant whose directory contained it.
    pub tenant_id: String,
    /// The session whose directory contained it.
    pub session_id: String,
    /// The canary of the call.
    pub canary: String,
    /// When it occurred, by the clock of the command; edits leave no time.
    pub at_us: Option<i64>,
}

/// A request to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Request {
    pub at_us: i64,
    /// The session in its header.
    pub session_id: String,
    /// The canary of the newest prompt.
    pub prompt: String,
    pub canaries: Vec<String>,
}

/// A fault that was injected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Injection {
    pub kind: &'static str,
    /// The targets: `worker-2`, `postgres`, `worker-1>redis`, …
    pub target: String,
    pub began_us: i64,
    /// When the harness had repaired it: the process runs, the link passes bytes.
    pub ended_us: i64,
    /// The exit of a process that was drained.
    pub exit: Option<Exit>,
    /// More about it, for people.
    pub note: String,
}

/// The exit of a process after SIGTERM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Exit {
    /// How long it took; `None` if it had to be killed.
    pub after_ms: Option<i64>,
    pub code: Option<i32>,
}

/// A wrong behaviour that the harness itself noticed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Surprise {
    pub at_us: i64,
    /// The session or process that it concerns.
    pub subject: String,
    pub description: String,
}

/// The state of the system after every fault was repaired.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FinalState {
    /// When the last fault was repaired; no prompt was sent after that.
    pub repaired_us: i64,
    /// When no work was left; `None` if that did not happen in time.
    pub settled_us: Option<i64>,
    /// The sessions that did not settle in time.
    pub unsettled: Vec<dump::Unsettled>,
    /// Resources that were not released, in words: connections, keys, processes, memory.
    pub leftovers: Vec<String>,
}

impl History {
    /// Returns whether this session kills its workers.
    pub fn is_poison(&self, id: &str) -> bool {
        self.poisons.iter().any(|poison| poison.session_id == id)
    }

    pub fn session(&self, id: &str) -> Option<&dump::Session> {
        self.sessions.iter().find(|session| session.id == id)
    }

    /// Returns whether a fault for which `concerns` holds was active between two times.
    pub fn injected(&self, from_us: i64, to_us: i64, concerns: impl Fn(&Injection) -> bool) -> bool {
        self.injections.iter().any(|injection| {
            injection.began_us <= to_us && injection.ended_us >= from_us && concerns(injection)
        })
    }
}
