//! A tool call of a stream in words, from the state of its part.

use crate::terminal::paint::one_line;
use serde_json::Value;

/// Characters of a subtask's progress.
const SUBTASK_CHARS: usize = 90;

/// Returns the description of a tool call: its title, or its most telling argument.
pub(crate) fn title(state: &Value) -> String {
    let title = text_of(&state["title"]);
    if !title.is_empty() {
        return title;
    }
    let input = &state["input"];
    ["description", "command", "filePath", "pattern", "path", "prompt"]
        .iter()
        .map(|key| text_of(&input[*key]))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// Returns the progress and the session of a subtask; nothing for other tools.
pub(crate) fn subtask(state: &Value) -> String {
    let metadata = &state["metadata"];
    let (session, calls) = (text_of(&metadata["sessionId"]), metadata["summary"].as_array());
    if session.is_empty() {
        return String::new();
    }
    let calls = calls.map(Vec::as_slice).unwrap_or_default();
    let last = calls.last().filter(|_| state["status"] == "running").map(|call| text_of(&call["tool"]));
    let last = last.map(|tool| format!(", now {tool}")).unwrap_or_default();
    let calls = match calls.len() {
        0 => String::new(),
        1 => format!(", 1 call{last}"),
        count => format!(", {count} calls{last}"),
    };
    one_line(&format!("  ({session}{calls})"), SUBTASK_CHARS)
}

/// Returns what people read below a call that ended: its output, with the notes that the worker adds for them.
pub(crate) fn shown_output(state: &Value) -> String {
    let shown = &state["metadata"]["output"];
    text_of(if shown.is_string() && start_failure(state).is_some() { shown } else { &state["output"] })
}

/// Returns the code with which a command exited; `None` before its end, and if it did not run or something ended it.
pub(crate) fn exit_code(state: &Value) -> Option<u64> {
    state["metadata"]["exit"].as_u64()
}

/// Returns what went wrong at the start of the sandbox, with the first command in it.
pub(crate) fn start_failure(state: &Value) -> Option<&str> {
    state["metadata"]["start_failure"].as_str()
}

/// Returns what the worker says about a command, which stands in brackets below its output. Calls of earlier versions have it only there.
pub(crate) fn note(state: &Value) -> Option<&str> {
    state["metadata"]["note"].as_str()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
