//! Snapshots of a session's files: taken at every step, compared, restored, and used as the start of a fork.

mod announcements;
mod forks;
mod kept;
mod reverts;
mod steps;

use e2e::{Stack, turn::run};
use serde_json::{Value, json};

/// Returns a directive for the scripted model: a call of `write`.
fn write(path: &str, content: &str) -> String {
    format!("@tool write {}", json!({"filePath": format!("/workspace/{path}"), "content": content}))
}

/// Runs a turn and asserts that it is done.
async fn run_to_end(stack: &Stack, session: &str, prompt: &str) -> e2e::turn::Transcript {
    let (outcome, transcript) = run(&stack.api, session, prompt).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    transcript
}

/// Returns the answers of a session, each with its parts.
async fn answers(stack: &Stack, session: &str) -> Vec<Vec<Value>> {
    let talk = stack.api.conversation(session).await;
    talk.into_iter().filter(|(info, _)| info["role"] == "assistant").map(|(_, parts)| parts).collect()
}

/// Returns the only part of a kind, or `null`.
fn part(parts: &[Value], kind: &str) -> Value {
    let mut found = parts.iter().filter(|part| part["type"] == kind);
    let first = found.next().cloned().unwrap_or_default();
    assert!(found.next().is_none(), "one {kind} in {parts:?}");
    first
}
