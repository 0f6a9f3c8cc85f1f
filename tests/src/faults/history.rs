//! The observers' record of one run, independent of the system's own view. Times are microseconds since 1970, all by
//! the clock of one machine.

use serde::Serialize;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};
use testkit::dump;

/// The time.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Everything that was seen.
#[derive(Debug, Clone, Default, Serialize)]
pub struct History {
    /// What Postgres holds at the end.
    pub sessions: Vec<dump::Session>,
    /// What clients sent.
    pub prompts: Vec<Prompt>,
    /// What clients stopped.
    pub aborts: Vec<Abort>,
    /// What people answered.
    pub answers: Vec<Answer>,
    /// The sessions whose calls end the worker that runs them.
    pub poisons: Vec<Poison>,
    /// What subscribers got.
    pub transcripts: Vec<Transcript>,
    /// What was done in workspaces.
    pub effects: Vec<Effect>,
    /// What the model was asked.
    pub requests: Vec<Request>,
    /// What was done to the system.
    pub injections: Vec<Injection>,
    /// Answers that no client should get, and processes that ended by themselves; in words.
    pub surprises: Vec<Surprise>,
    /// How it was afterwards.
    pub end: End,
}

/// A prompt of a client.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Prompt {
    /// The number of the tenant; the first one is the heavy one.
    pub tenant: usize,
    /// To which session.
    pub session_id: String,
    /// The idempotency key.
    pub key: String,
    /// What names it in the conversation.
    pub canary: String,
    /// The calls that its script makes, each with a canary of its own.
    pub calls: Vec<Call>,
    /// The subtasks below it, at every depth.
    pub subtasks: Vec<Subtask>,
    /// Whether a person must allow each of its commands.
    pub asks: bool,
    /// The message of each answer: of the first call and of those that repeated it.
    pub answers: Vec<String>,
    /// When the first answer was there.
    pub accepted_us: Option<i64>,
}

/// A tool call that a prompt's script makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// What it leaves in the world, once.
    pub canary: String,
    /// Which tool.
    pub tool: &'static str,
}

/// A call of `task` that a prompt's script makes, or that a subtask of it makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Subtask {
    /// What names the prompt or subtask that makes the call.
    pub within: String,
    /// What names the call.
    pub call: String,
    /// What names the child's prompt.
    pub canary: String,
    /// The calls that the child makes.
    pub calls: Vec<Call>,
}

/// An answer to a request of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Of which session.
    pub session_id: String,
    /// To which request.
    pub request_id: String,
    /// `once`, `reject`, or the label that was chosen.
    pub said: &'static str,
    /// When it was sent first.
    pub sent_us: i64,
    /// When it was confirmed as the one that counts; `None` if it came too late, or the answer to it was lost.
    pub accepted_us: Option<i64>,
}

/// A session whose call ends the worker that runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Poison {
    /// Which.
    pub session_id: String,
    /// The workers that it ended, in order.
    pub ended: Vec<String>,
}

/// An abort that was confirmed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Abort {
    /// Of which session.
    pub session_id: String,
    /// When it was sent.
    pub sent_us: i64,
    /// When the answer was there.
    pub accepted_us: i64,
    /// Whether there was something to stop.
    pub was_active: bool,
}

/// What one subscriber got, over all of its connections.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Transcript {
    /// The number of the tenant whose key it had.
    pub tenant: usize,
    /// Of which session.
    pub session_id: String,
    /// Connections that it made.
    pub connections: u32,
    /// Durable facts, in the order of their arrival.
    pub events: Vec<SeenEvent>,
    /// Live fragments, in the order of their arrival.
    pub deltas: Vec<SeenDelta>,
}

/// An event as it came.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SeenEvent {
    /// When.
    pub at_us: i64,
    /// Its position.
    pub seq: i64,
    /// Which loop wrote it.
    pub epoch: i64,
    /// Its id.
    pub id: String,
    /// The value of `type`.
    pub kind: String,
    /// What it says.
    pub properties: Value,
}

/// A delta as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SeenDelta {
    /// On which connection, from 1.
    pub connection: u32,
    /// The newest event that the subscriber had then.
    pub after_seq: i64,
    /// Of which part.
    pub part_id: String,
    /// Where in the part's text; bytes.
    pub offset: usize,
    /// What.
    pub text: String,
}

/// A line that a tool call left in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// The directories that it stood in.
    pub tenant_id: String,
    /// See `tenant_id`.
    pub session_id: String,
    /// Which call.
    pub canary: String,
    /// When, by the command's own clock; edits leave no time.
    pub at_us: Option<i64>,
}

/// A request to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Request {
    /// When it arrived.
    pub at_us: i64,
    /// Whose conversation it is, by its header.
    pub session_id: String,
    /// The canary of the newest prompt.
    pub prompt: String,
    /// Every canary in it.
    pub canaries: Vec<String>,
}

/// Something that was done to the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Injection {
    /// Which kind.
    pub kind: &'static str,
    /// To what: `worker-2`, `postgres`, `worker-1>redis`, …
    pub target: String,
    /// When it began.
    pub began_us: i64,
    /// When everything was mended as far as the harness does it: a process runs, a link passes.
    pub ended_us: i64,
    /// How a process ended that was asked to.
    pub exit: Option<Exit>,
    /// What else is worth knowing.
    pub note: String,
}

/// The end of a process that was asked for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Exit {
    /// How long it took; `None` if it had to be killed.
    pub after_ms: Option<i64>,
    /// Its exit code.
    pub code: Option<i32>,
}

/// Something that must not happen, seen by the harness itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Surprise {
    /// When.
    pub at_us: i64,
    /// Whose: a session or a process.
    pub whose: String,
    /// What.
    pub what: String,
}

/// How it was after everything was mended.
#[derive(Debug, Clone, Default, Serialize)]
pub struct End {
    /// When the last fault was mended and no prompt was sent any more.
    pub mended_us: i64,
    /// When nothing was left to do; `None` if that never came.
    pub settled_us: Option<i64>,
    /// The sessions that were not at rest when waiting ended.
    pub unsettled: Vec<dump::Unsettled>,
    /// What was still held then, in words: connections, keys, processes, memory.
    pub leftovers: Vec<String>,
}

impl History {
    /// Whether this session ends its workers.
    pub fn is_poison(&self, id: &str) -> bool {
        self.poisons.iter().any(|poison| poison.session_id == id)
    }

    /// The session with this id.
    pub fn session(&self, id: &str) -> Option<&dump::Session> {
        self.sessions.iter().find(|session| session.id == id)
    }

    /// Whether something was done to the system between two times that `concerns` says is of interest.
    pub fn injected(&self, from_us: i64, to_us: i64, concerns: impl Fn(&Injection) -> bool) -> bool {
        self.injections.iter().any(|injection| {
            injection.began_us <= to_us && injection.ended_us >= from_us && concerns(injection)
        })
    }
}
