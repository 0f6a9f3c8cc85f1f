//! The session of an issue or a pull request, as far as it is shown at the forge.

use crate::{money::UsdPicos, session::Outcome};

/// What a session does, and what it has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    pub state: SessionState,
    /// The id of the newest message of its agent; empty: none.
    pub answer_id: String,
    /// The text of that message.
    pub answer: String,
    /// Of the session with its subtasks.
    pub cost: UsdPicos,
    /// Files that it has changed, with their lines; `None`: nothing.
    pub changes: Option<ChangedLines>,
}

/// Numbers of changed files and lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedLines {
    pub files: u64,
    pub additions: u64,
    pub deletions: u64,
}

/// What a session does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionState {
    /// It waits for a worker. The position in the queue of its tenant, from 1; 0: unknown.
    Queued {
        position: u32,
    },
    Working,
    /// It waits for something else; the reason is one of `domain::wait`, the sentence is for people.
    Waiting {
        reason: String,
        sentence: String,
    },
    /// Its last turn has ended.
    Ended {
        outcome: Outcome,
        error: String,
    },
    /// It failed too often, and waits for an operator.
    Quarantined,
    /// Somebody deleted it.
    Deleted,
}

impl SessionState {
    /// Whether its last turn did what was asked.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Ended { outcome: Outcome::Done, .. })
    }

    /// The reason code that people and programs read.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::Working => "working",
            Self::Waiting { .. } => "waiting",
            Self::Ended { outcome, .. } => outcome.as_str(),
            Self::Quarantined => "quarantined",
            Self::Deleted => "deleted",
        }
    }

    /// One sentence for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Queued { position: 0 } => "It waits for a worker.".to_owned(),
            Self::Queued { position } => {
                format!("It waits for a worker, at position {position} of the queue.")
            }
            Self::Working => "It works on it.".to_owned(),
            Self::Waiting { reason, sentence } => {
                if sentence.is_empty() {
                    format!("It waits: {reason}.")
                } else {
                    sentence.clone()
                }
            }
            Self::Ended { outcome: Outcome::Done, .. } => "It is done.".to_owned(),
            Self::Ended { outcome: Outcome::Aborted, .. } => "Somebody stopped it.".to_owned(),
            Self::Ended { outcome: Outcome::NeedsHuman, error } => {
                format!("It needs a person to go on. {error}")
            }
            Self::Ended { outcome: Outcome::Failed, error } => format!("It failed. {error}"),
            Self::Quarantined => "It failed too often, and waits for an operator of Flotilla.".to_owned(),
            Self::Deleted => "Its session was deleted.".to_owned(),
        }
    }
}
