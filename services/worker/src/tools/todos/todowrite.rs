//! `todowrite`: replaces the todo list, which clients show.

use crate::tools::{
    outcome::{Output, ToolError},
    spec::tool_spec,
};
use domain::policy::tool;
use serde_json::{Map, Value, json};

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "todowrite",
        "Replaces your to-do list. Use it for work with three or more steps, keep one entry in progress, and \
         mark entries completed as soon as they are.",
        json!({
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "maxItems": 200,
                    "items": {
                        "type": "object",
                        "properties": {
                            "content": {"type": "string", "minLength": 1},
                            "status": {"type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"]},
                            "priority": {"type": "string", "enum": ["high", "medium", "low"]}
                        },
                        "required": ["content", "status", "priority"]
                    }
                }
            },
            "required": ["todos"],
            "additionalProperties": false
        }),
    )
}

pub(crate) fn run(mut input: Value) -> Result<Output, ToolError> {
    let todos = input.get_mut("todos").map(Value::take).unwrap_or_default();
    Ok(Output { todos: Some(todos.clone()), ..shown(todos) })
}

/// A list as its tools answer it, in OpenCode's shape: the title counts the entries that are not completed.
pub(super) fn shown(todos: Value) -> Output {
    let left = todos.as_array().map_or(0, |list| {
        list.iter().filter(|todo| todo.get("status").and_then(Value::as_str) != Some("completed")).count()
    });
    let text = serde_json::to_string_pretty(&todos).unwrap_or_default();
    let metadata = Map::from_iter([("todos".to_owned(), todos)]);
    Output { title: format!("{left} todos"), text, metadata, ..Output::default() }
}
