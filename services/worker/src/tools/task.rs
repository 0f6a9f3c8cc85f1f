//! `task`: a subtask in a child session. What a call means is here; the loop dispatches it.

use super::{ToolError, described, parse};
use domain::{
    agent::Agent,
    ids::{PartId, SessionId, Timestamp},
    part::{self, Span, ToolState, attached::Subtask},
};
use llm::request::ToolSpec;
use serde::Deserialize;
use serde_json::{Value, json};

/// A checked call.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) description: String,
    pub(crate) prompt: String,
    pub(crate) agent: Agent,
    /// A child that goes on.
    pub(crate) resumes: Option<SessionId>,
}

#[derive(Deserialize)]
struct Arguments {
    description: String,
    prompt: String,
    subagent_type: String,
    #[serde(default)]
    task_id: String,
}

pub(super) fn spec() -> ToolSpec {
    let agents: Vec<String> =
        Agent::SUBAGENTS.iter().map(|agent| format!("{}: {}", agent.as_str(), agent.description())).collect();
    described(
        "task",
        &format!(
            "Gives a task to another agent, which works in the same files and answers once. Several calls in one answer \
             run at the same time: give them work that does not touch the same files. The agent knows nothing of this \
             conversation, so its prompt must say everything. Agents: {}.",
            agents.join("; ")
        ),
        json!({
            "type": "object",
            "properties": {
                "description": {"type": "string", "minLength": 1, "maxLength": 200, "description": "three to five words"},
                "prompt": {"type": "string", "minLength": 1, "description": "the whole task, and what to answer"},
                "subagent_type": {"type": "string", "minLength": 1, "maxLength": 100},
                "task_id": {"type": "string", "description": "to go on with an earlier task: its id"}
            },
            "required": ["description", "prompt", "subagent_type"],
            "additionalProperties": false
        }),
    )
}

/// The call that a prompt's own task is: begun. Its id is the task's part.
pub(crate) fn call(part_id: &PartId, task: &Subtask, now: Timestamp) -> part::Tool {
    let input = json!({"prompt": task.prompt, "description": task.description, "subagent_type": task.agent});
    let time = Span { start: now, end: None };
    let state = ToolState::Running { input, title: None, metadata: None, time };
    part::Tool { call_id: part_id.to_string(), tool: "task".to_owned(), state }
}

/// Reads a call.
///
/// # Errors
/// What the model did wrong.
pub(crate) fn read(input: Value) -> Result<Task, ToolError> {
    let arguments: Arguments = parse(input)?;
    let agent = Agent::parse(&arguments.subagent_type).filter(|agent| Agent::SUBAGENTS.contains(agent));
    let agent = agent.ok_or_else(|| {
        let names: Vec<&str> = Agent::SUBAGENTS.iter().map(|agent| agent.as_str()).collect();
        let asked = domain::text::head(&arguments.subagent_type, 80).to_owned();
        ToolError::Model(format!("There is no subagent {asked:?}. There are: {}.", names.join(", ")))
    })?;
    let resumes = match arguments.task_id.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| {
            ToolError::Model("There is no task of this id. Leave task_id out for a new task.".to_owned())
        })?),
    };
    Ok(Task { description: arguments.description, prompt: arguments.prompt, agent, resumes })
}
