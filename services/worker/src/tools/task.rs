//! `task`: a subtask in a child session. This file defines the meaning of a call; the loop dispatches it.

use super::{
    outcome::ToolError,
    spec::{parse_arguments, tool_spec},
};
use domain::policy::tool;
use domain::{
    conversation::part::{self, Span, ToolState, attached::Subtask},
    ids::{PartId, SessionId, Timestamp},
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) description: String,
    pub(crate) prompt: String,
    pub(crate) agent: String,
    /// The existing child to continue.
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

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "task",
        "Gives a task to another agent, which works in the same files, unless its description says that it has its own copy, and \
         answers once. Several calls in one answer run at the same time: give agents that work in the same files work that does \
         not touch the same files. When an agent with its own copy is done, its changes are merged into your files, and you read which files have conflicts. The agent knows nothing of this conversation, \
         so the prompt must contain everything that it needs.",
        json!({
            "type": "object",
            "properties": {
                "description": {"type": "string", "minLength": 1, "maxLength": 200, "description": "three to five words"},
                "prompt": {"type": "string", "minLength": 1, "description": "the whole task, and what to answer"},
                "subagent_type": {"type": "string", "minLength": 1, "maxLength": 100},
                "task_id": {"type": "string", "description": "to continue an earlier task: its id"}
            },
            "required": ["description", "prompt", "subagent_type"],
            "additionalProperties": false
        }),
    )
}

/// The started call for a prompt's own task. Its id is the id of the task's part.
pub(crate) fn call(part_id: &PartId, task: &Subtask, now: Timestamp) -> part::Tool {
    let input = json!({"prompt": task.prompt, "description": task.description, "subagent_type": task.agent});
    let time = Span { start: now, end: None };
    let state = ToolState::Running { input, title: None, metadata: None, time };
    part::Tool { call_id: part_id.to_string(), tool: "task".to_owned(), state }
}

/// Adds the available agents to the description, with name and purpose.
pub(crate) fn with_list(mut spec: tool::Spec, agents: &[(String, String)]) -> tool::Spec {
    let agents: Vec<String> = agents
        .iter()
        .map(|(name, description)| match description.as_str() {
            "" => name.clone(),
            words => format!("{name}: {}", words.split_whitespace().collect::<Vec<_>>().join(" ")),
        })
        .collect();
    spec.description.push_str(&format!(" Agents: {}.", agents.join("; ")));
    spec
}

/// Reads a call; a subtask may name any of `agents`.
///
/// # Errors
/// The model's mistake, as a sentence.
pub(crate) fn read(input: Value, agents: &[(String, String)]) -> Result<Task, ToolError> {
    let arguments: Arguments = parse_arguments(input)?;
    let agent = arguments.subagent_type;
    if !agents.iter().any(|(name, _)| *name == agent) {
        let names: Vec<&str> = agents.iter().map(|(name, _)| name.as_str()).collect();
        let name = domain::text::head(&agent, 80);
        return Err(ToolError::Model(format!(
            "There is no subagent {name:?}. Available subagents: {}.",
            names.join(", ")
        )));
    }
    let resumes = match arguments.task_id.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| {
            ToolError::Model("There is no task with this id. Omit task_id for a new task.".to_owned())
        })?),
    };
    Ok(Task { description: arguments.description, prompt: arguments.prompt, agent, resumes })
}
