//! Events: the durable facts of a session, under OpenCode's names; ours begin with `flotilla.`.

use crate::{
    ids::{MessageId, PartId, SessionId, Timestamp},
    message::{Error, Message},
    part::Part,
    session::{Info, Outcome},
};
use serde_json::{Value, json};

/// One fact. Its position and epoch are given by the control row when it is stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A session was made.
    SessionCreated(Box<Info>),
    /// A session changed.
    SessionUpdated(Box<Info>),
    /// Busy, or waiting for the next attempt.
    SessionStatus(Status),
    /// The turn is over and everything of it is stored.
    SessionIdle(Outcome),
    /// A turn failed.
    SessionError(Error),
    /// A message was made or changed.
    MessageUpdated(Box<Message>),
    /// A part was made or changed; carries the whole part.
    PartUpdated {
        /// The part.
        part: Box<Part>,
        /// When.
        at: Timestamp,
    },
    /// A part is gone: the attempt that made it failed.
    PartRemoved {
        /// Which message.
        message_id: MessageId,
        /// Which part.
        part_id: PartId,
    },
    /// The list of things to do was replaced.
    TodoUpdated(Value),
    /// A worker took over the loop. `attempt` above 1: after another one that did not finish.
    LoopStarted {
        /// The worker's name.
        worker: String,
        /// Which take-over since the last progress.
        attempt: i16,
    },
}

/// What a session is doing, as OpenCode's clients show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Nothing.
    Idle,
    /// A turn is running.
    Busy,
    /// The model call is tried again.
    Retry {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// Why.
        message: String,
        /// When the next one begins.
        next: Timestamp,
    },
}

impl Event {
    /// The value of `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SessionCreated(_) => "session.created",
            Self::SessionUpdated(_) => "session.updated",
            Self::SessionStatus(_) => "session.status",
            Self::SessionIdle(_) => IDLE,
            Self::SessionError(_) => "session.error",
            Self::MessageUpdated(_) => "message.updated",
            Self::PartUpdated { .. } => "message.part.updated",
            Self::PartRemoved { .. } => "message.part.removed",
            Self::TodoUpdated(_) => "todo.updated",
            Self::LoopStarted { .. } => LOOP_STARTED,
        }
    }

    /// OpenCode's `properties` object.
    pub fn properties(&self, session: &SessionId) -> Value {
        match self {
            Self::SessionCreated(info) | Self::SessionUpdated(info) => {
                json!({"sessionID": session, "info": info})
            }
            Self::SessionStatus(status) => json!({"sessionID": session, "status": status_json(status)}),
            Self::SessionIdle(outcome) => json!({"sessionID": session, "outcome": outcome}),
            Self::SessionError(error) => json!({"sessionID": session, "error": error}),
            Self::MessageUpdated(message) => json!({"sessionID": session, "info": message}),
            Self::PartUpdated { part, at } => json!({"sessionID": session, "part": part, "time": at}),
            Self::PartRemoved { message_id, part_id } => {
                json!({"sessionID": session, "messageID": message_id, "partID": part_id})
            }
            Self::TodoUpdated(todos) => json!({"sessionID": session, "todos": todos}),
            Self::LoopStarted { worker, attempt } => {
                json!({"sessionID": session, "worker": worker, "attempt": attempt})
            }
        }
    }
}

/// Ends a turn; see [`Event::SessionIdle`].
pub const IDLE: &str = "session.idle";
/// Raises the epoch that subscribers accept; see [`Event::LoopStarted`].
pub const LOOP_STARTED: &str = "flotilla.loop.started";

fn status_json(status: &Status) -> Value {
    match status {
        Status::Idle => json!({"type": "idle"}),
        Status::Busy => json!({"type": "busy"}),
        Status::Retry { attempt, message, next } => {
            json!({"type": "retry", "attempt": attempt, "message": message, "next": next})
        }
    }
}
