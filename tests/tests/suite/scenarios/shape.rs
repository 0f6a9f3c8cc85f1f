//! The shape of a conversation as lines: one for each message, with its role, the end of the step, and its parts. It omits what
//! differs between runs (ids, times, attempts), and the marks of the start and end of a step.

use serde_json::Value;

/// Replaces the end of an interrupted call.
const INTERRUPTED: &str = "(interrupted)";
/// Number of characters of a text in the shape.
const TEXT_CHARS: usize = 60;

pub(super) fn lines(talk: &[(Value, Vec<Value>)]) -> Vec<String> {
    talk.iter().map(|(info, parts)| line(info, parts)).collect()
}

/// Returns whether a conversation with a lost loop ended as expected. The model reads that a call was interrupted if its effect
/// is unknown or it did not start; the call is not repeated.
pub(super) fn fit(got: &[String], expected: &[&str]) -> bool {
    got.len() == expected.len() && got.iter().zip(expected).all(|(got, expected)| fits(got, expected))
}

fn fits(got: &str, expected: &str) -> bool {
    let mut pieces = got.split(INTERRUPTED);
    let Some(mut rest) = pieces.next().and_then(|first| expected.strip_prefix(first)) else { return false };
    for piece in pieces {
        let Some(at) = rest.rfind(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty()
}

fn line(info: &Value, parts: &[Value]) -> String {
    let parts: Vec<String> = parts.iter().filter_map(part).collect();
    format!("{}: {}", who(info), parts.join(", "))
}

fn who(info: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    if info["role"] == "user" {
        return "user".to_owned();
    }
    let end = if info["error"].is_null() { word(&info["finish"]) } else { word(&info["error"]["name"]) };
    let structured =
        if info["structured"].is_null() { String::new() } else { format!(" {}", info["structured"]) };
    let summary = if info["summary"] == true { " summary" } else { "" };
    format!("{} {end}{structured}{summary}", word(&info["agent"]))
}

fn part(part: &Value) -> Option<String> {
    let kind = part["type"].as_str()?;
    match kind {
        "text" if part["synthetic"] == true => Some(format!("told({})", head(&part["text"]))),
        "text" | "reasoning" => Some(format!("{kind}({})", head(&part["text"]))),
        "file" => Some(format!("file({})", part["mime"].as_str()?)),
        "agent" => Some(format!("agent({})", part["name"].as_str()?)),
        "subtask" => Some(format!("subtask({})", part["agent"].as_str()?)),
        "tool" => Some(tool(part)),
        "compaction" => Some(format!("compaction(auto={})", part["auto"])),
        // A worker that is lost between two writes may omit these, and a failed attempt is not part of the conversation.
        "step-start" | "step-finish" | "snapshot" | "patch" | "retry" => None,
        other => Some(other.to_owned()),
    }
}

fn tool(part: &Value) -> String {
    let (state, name) = (&part["state"], part["tool"].as_str().unwrap_or_default());
    let status = state["status"].as_str().unwrap_or_default();
    let output = if status == "error" { &state["error"] } else { &state["output"] };
    let output = output.as_str().unwrap_or_default();
    if output.starts_with("This c") && output.contains(" was interrupted ") {
        return format!("{name} {INTERRUPTED}");
    }
    // The id of a child differs.
    let output =
        if name == "task" { output.split_once('>').map_or(output, |(_, rest)| rest) } else { output };
    format!("{name} {status}({})", head(&Value::from(output)))
}

fn head(text: &Value) -> String {
    let line = text.as_str().unwrap_or_default().trim_start().lines().next().unwrap_or_default();
    line.chars().take(TEXT_CHARS).collect()
}

#[test]
fn an_interrupted_call_matches_any_end() {
    let expected = "build tool-calls: bash completed(a), edit completed(b)";
    for (got, want) in [
        (expected, true),
        ("build tool-calls: bash (interrupted), edit completed(b)", true),
        ("build tool-calls: bash (interrupted), edit (interrupted)", true),
        ("build tool-calls: edit (interrupted), edit completed(b)", false),
        ("build tool-calls: bash (interrupted), read completed(b)", false),
        ("build stop: bash (interrupted), edit completed(b)", false),
        ("build tool-calls: bash completed(a)", false),
    ] {
        assert_eq!(fits(got, expected), want, "{got}");
    }
}
