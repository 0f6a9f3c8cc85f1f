//! Events: the durable facts of a session, under OpenCode's names; ours begin with `flotilla.`.

use crate::{
    conversation::{
        message::{Error, FileDiff, Message},
        part::Part,
        request::{Answer, Id, Request},
    },
    egress::PushReceipt,
    ids::{MessageId, PartId, SessionId, Timestamp},
    session::{Info, Outcome},
    wait::Wait,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One fact. The control row gives its position and epoch when it is stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    SessionCreated(Box<Info>),
    SessionUpdated(Box<Info>),
    /// A session was deleted, with its log. A tombstone outside the logs carries this event.
    SessionDeleted(Box<Info>),
    /// Busy, or waiting for the next attempt.
    SessionStatus(Status),
    /// The turn is over and everything of it is stored.
    SessionIdle(Outcome),
    SessionError(Error),
    /// A message was created or changed.
    MessageUpdated(Box<Message>),
    /// A message was removed with its parts because it was reverted.
    MessageRemoved(MessageId),
    /// All changes of the session to its files so far, file by file.
    SessionDiff(Vec<FileDiff>),
    /// A tool of the session wrote this file. Only [`Event::FilesChanged`] shows removals and the changes of commands.
    FileEdited(String),
    /// The changes that tools and commands of one step made to the files.
    FilesChanged(Vec<FileChange>),
    /// The step of this message may have changed files, and the sandbox did not give the snapshots that show how: the changes cannot
    /// be reverted alone.
    SnapshotMissed(MessageId),
    /// A person let the session continue with the files of its source, because a sandbox machine lost its workspace.
    WorkspaceRestarted,
    /// A person had the result of the session pushed to the repository that its files came from.
    SessionPushed {
        receipt: Box<PushReceipt>,
        /// The name of the person's key.
        by: String,
    },
    /// The files are on another branch; `None`: on no branch, or on one that cannot be read.
    BranchUpdated(Option<String>),
    /// The files were copied for this subtask, which works on the copy.
    WorktreeReady(SessionId),
    /// The files could not be copied for a subtask. The text is for people.
    WorktreeFailed(String),
    /// A part was created or changed. The event carries the whole part.
    PartUpdated {
        part: Box<Part>,
        /// When the part was written.
        at: Timestamp,
    },
    /// A part was removed: its attempt failed, or it was reverted.
    PartRemoved {
        message_id: MessageId,
        part_id: PartId,
    },
    /// The to-do list was replaced.
    TodoUpdated(Value),
    /// A worker took over the loop. If `attempt` is above 1, an earlier worker did not finish.
    LoopStarted {
        worker: String,
        /// The number of the takeover since the last progress.
        attempt: i16,
    },
    /// The loop ends in the middle of a turn because the worker stops or another session has a better claim to the slot. Another
    /// worker continues the turn.
    LoopHandedOver {
        worker: String,
    },
    /// The loop parks the session before the turn is over.
    SessionWaiting(Wait),
    /// The session failed too often, or an operator stopped it. It does not run until an operator releases it.
    SessionQuarantined {
        reason: String,
    },
    /// An operator released the session.
    SessionReleased,
    /// A command has succeeded or failed.
    CommandExecuted {
        name: String,
        /// The arguments of the caller.
        arguments: String,
        /// The newest message of the turn.
        message_id: MessageId,
    },
    /// A summary replaces the conversation before it.
    SessionCompacted,
    /// The session asks a person.
    RequestAsked(Box<Request>),
    /// A request has its answer.
    RequestAnswered {
        id: Id,
        answer: Answer,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Its absolute path, as tools see it.
    pub file: String,
    pub event: FileEvent,
}

/// The kinds of changes, in the words of OpenCode's watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileEvent {
    Add,
    /// The content of the file changed.
    Change,
    Unlink,
}

/// The status of a session, as OpenCode's clients show it: `{"type":"busy"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Status {
    /// No turn is running.
    Idle,
    Busy,
    /// The model call is tried again.
    Retry {
        /// The number of the failed attempt, from 1.
        attempt: u32,
        message: String,
        /// When the next attempt begins.
        next: Timestamp,
    },
}

impl Event {
    /// The value of `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SessionCreated(_) => "session.created",
            Self::SessionUpdated(_) => "session.updated",
            Self::SessionDeleted(_) => DELETED,
            Self::SessionStatus(_) => "session.status",
            Self::SessionIdle(_) => IDLE,
            Self::SessionError(_) => "session.error",
            Self::MessageUpdated(_) => MESSAGE_UPDATED,
            Self::MessageRemoved(_) => "message.removed",
            Self::SessionDiff(_) => SESSION_DIFF,
            Self::FileEdited(_) => "file.edited",
            Self::FilesChanged(_) => FILES_CHANGED,
            Self::SnapshotMissed(_) => "flotilla.snapshot.missed",
            Self::WorkspaceRestarted => "flotilla.workspace.restarted",
            Self::SessionPushed { .. } => PUSHED,
            Self::BranchUpdated(_) => "vcs.branch.updated",
            Self::WorktreeReady(_) => "worktree.ready",
            Self::WorktreeFailed(_) => "worktree.failed",
            Self::PartUpdated { .. } => PART_UPDATED,
            Self::PartRemoved { .. } => "message.part.removed",
            Self::TodoUpdated(_) => "todo.updated",
            Self::LoopStarted { .. } => LOOP_STARTED,
            Self::LoopHandedOver { .. } => "flotilla.loop.handed_over",
            Self::SessionWaiting(_) => WAITING,
            Self::SessionQuarantined { .. } => QUARANTINED,
            Self::SessionReleased => "flotilla.session.released",
            Self::SessionCompacted => "session.compacted",
            Self::CommandExecuted { .. } => "command.executed",
            Self::RequestAsked(request) => match request.id {
                Id::Permission(_) => "permission.asked",
                Id::Question(_) => "question.asked",
            },
            Self::RequestAnswered { id: Id::Permission(_), .. } => "permission.replied",
            Self::RequestAnswered { id: Id::Question(_), answer: Answer::Labels { .. } } => {
                "question.replied"
            }
            Self::RequestAnswered { id: Id::Question(_), .. } => "question.rejected",
        }
    }

    /// OpenCode's `properties` object; of [`Event::FilesChanged`] one for all files:
    ///
    /// ```json
    /// {"files":[{"file":"/workspace/a.txt","event":"change"}]}
    /// ```
    pub fn properties(&self, session: &SessionId) -> Value {
        match self {
            Self::SessionCreated(info) | Self::SessionUpdated(info) | Self::SessionDeleted(info) => {
                json!({"sessionID": session, "info": info})
            }
            Self::SessionStatus(status) => json!({"sessionID": session, "status": status}),
            Self::SessionIdle(outcome) => json!({"sessionID": session, "outcome": outcome}),
            Self::SessionError(error) => json!({"sessionID": session, "error": error}),
            Self::MessageUpdated(message) => json!({"sessionID": session, "info": message}),
            Self::MessageRemoved(message_id) => json!({"sessionID": session, "messageID": message_id}),
            Self::SessionDiff(diff) => json!({"sessionID": session, "diff": diff}),
            Self::FileEdited(file) => json!({"file": file}),
            Self::FilesChanged(files) => json!({"files": files}),
            Self::SnapshotMissed(message_id) => json!({"sessionID": session, "messageID": message_id}),
            Self::SessionPushed { receipt, by } => json!({"sessionID": session, "push": receipt, "by": by}),
            Self::BranchUpdated(Some(branch)) => json!({"branch": branch}),
            Self::BranchUpdated(None) => json!({}),
            Self::WorktreeReady(child) => json!({"name": child}),
            Self::WorktreeFailed(message) => json!({"message": message}),
            Self::PartUpdated { part, at } => json!({"sessionID": session, "part": part, "time": at}),
            Self::PartRemoved { message_id, part_id } => {
                json!({"sessionID": session, "messageID": message_id, "partID": part_id})
            }
            Self::TodoUpdated(todos) => json!({"sessionID": session, "todos": todos}),
            Self::LoopStarted { worker, attempt } => {
                json!({"sessionID": session, "worker": worker, "attempt": attempt})
            }
            Self::LoopHandedOver { worker } => json!({"sessionID": session, "worker": worker}),
            Self::SessionWaiting(wait) => {
                json!({"sessionID": session, "reason": wait.reason.as_str(), "until": wait.until})
            }
            Self::SessionQuarantined { reason } => json!({"sessionID": session, "reason": reason}),
            Self::SessionReleased | Self::SessionCompacted | Self::WorkspaceRestarted => {
                json!({"sessionID": session})
            }
            Self::CommandExecuted { name, arguments, message_id } => {
                json!({"name": name, "sessionID": session, "arguments": arguments, "messageID": message_id})
            }
            Self::RequestAsked(request) => request.to_json(),
            Self::RequestAnswered { id, answer } => answered_json(session, id, answer),
        }
    }

    /// [`Event::properties`] as text. A part may have megabytes, so nothing else keeps it meanwhile.
    pub fn properties_text(&self, session: &SessionId) -> String {
        if let Self::PartUpdated { part, at } = self
            && let Ok(text) = serde_json::to_string(&PartProperties { part, session_id: session, time: *at })
        {
            return text;
        }
        self.properties(session).to_string()
    }
}

/// The properties of [`Event::PartUpdated`].
#[derive(Serialize)]
struct PartProperties<'a> {
    part: &'a Part,
    #[serde(rename = "sessionID")]
    session_id: &'a SessionId,
    time: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its position in the session.
    pub seq: u64,
    /// The loop that wrote it.
    pub epoch: u64,
    pub id: String,
    /// The value of `type`.
    pub kind: String,
    /// The `properties` object, as clients get it.
    pub properties: String,
    pub at: Timestamp,
}

pub const DELETED: &str = "session.deleted";
pub const IDLE: &str = "session.idle";
pub const MESSAGE_UPDATED: &str = "message.updated";
pub const PART_UPDATED: &str = "message.part.updated";
pub const SESSION_DIFF: &str = "session.diff";
/// The kind of [`Event::FilesChanged`].
pub const FILES_CHANGED: &str = "file.watcher.updated";
/// An event whose content a later version of the same message or part replaces. It keeps its position; no client gets it.
pub const SUPERSEDED: &str = "flotilla.superseded";
/// See [`Event::LoopStarted`]: it raises the epoch that subscribers accept.
pub const LOOP_STARTED: &str = "flotilla.loop.started";
pub const PUSHED: &str = "flotilla.session.pushed";
pub const WAITING: &str = "flotilla.session.waiting";
/// The kind of a notice, which is in no log: what the opening of a workspace does.
pub const WORKSPACE_PROGRESS: &str = "flotilla.workspace.progress";
pub const QUARANTINED: &str = "flotilla.session.quarantined";

fn answered_json(session: &SessionId, id: &Id, answer: &Answer) -> Value {
    let request = id.as_str();
    match answer {
        Answer::Once => json!({"sessionID": session, "requestID": request, "reply": "once"}),
        Answer::Always { .. } => json!({"sessionID": session, "requestID": request, "reply": "always"}),
        Answer::Reject { .. } | Answer::Expired => match id {
            Id::Permission(_) => json!({"sessionID": session, "requestID": request, "reply": "reject"}),
            Id::Question(_) => json!({"sessionID": session, "requestID": request}),
        },
        Answer::Labels { labels } => json!({"sessionID": session, "requestID": request, "answers": labels}),
    }
}
