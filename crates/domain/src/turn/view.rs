//! The stored state of a session, as far as a turn's decisions depend on it.

use super::call::CallId;
use crate::{
    ids::{MessageId, Timestamp},
    session::Outcome,
};

/// The stored state, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    /// The newest prompt.
    pub newest_user: Option<MessageId>,
    /// The newest step.
    pub last: Option<LastStep>,
    /// Whether a client requested an abort that no loop has taken yet.
    pub aborted: bool,
    /// Steps since the newest prompt.
    pub steps: u32,
    /// How many of the newest tool calls are identical and got the same answer, counted since a person last allowed the
    /// repetition.
    pub repeated_calls: usize,
    /// What the worker must do before it answers the prompt.
    pub due: Due,
    /// Whether the newest finished step, unless it is a summary, left no room for another one.
    pub is_full: bool,
    /// Steps that finished since the newest summary; `None`: there is no summary.
    pub steps_since_summary: Option<u32>,
    /// Whether the session and its subtasks have used up their budget.
    pub out_of_budget: bool,
    /// When the newest prompt or step was written.
    pub active_at: Timestamp,
    /// Whether the loop must give up the session at the next step boundary, because the worker is shutting down or other
    /// sessions have waited longer.
    pub leaving: bool,
}

/// What the worker must do before it answers a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Due {
    /// Nothing.
    #[default]
    Nothing,
    /// Read what the decision needs from the repository: the templates of its commands, its rules for summaries.
    Preparation,
    /// Run the calls that the prompt itself requests: tasks for subagents, a shell command.
    Calls,
    /// Write the requested summary.
    Summary,
}

/// The newest assistant message.
#[derive(Debug, Clone, PartialEq)]
pub struct LastStep {
    /// The prompt that it answers.
    pub parent: MessageId,
    /// Whether the model's answer is stored as complete.
    pub answered: bool,
    /// Whether the step is closed: all its tools have answers.
    pub closed: bool,
    /// Whether the model wants another step; for a summary, whether the turn continues after it.
    pub continues: bool,
    /// Whether it is a summary.
    pub is_summary: bool,
    /// Whether it failed because the conversation is too long.
    pub overflowed: bool,
    /// How it failed.
    pub failed: Option<Outcome>,
    /// Whether a person rejected one of its calls without telling the model what to do instead.
    pub rejected: bool,
    /// Tool calls without an answer.
    pub open: Vec<CallId>,
    /// Attempts at the model call that failed, for a step without an answer.
    pub retries: u32,
}

impl View {
    /// Whether the newest summary, if there is one, freed enough room. If the first step after it fills the context
    /// again, another summary would not help.
    pub(super) fn gained_room(&self) -> bool {
        self.steps_since_summary.is_none_or(|steps| steps > 1)
    }
}
