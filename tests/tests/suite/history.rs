//! The states of a session's files: kept at every step, compared, taken back, and the start of another session.

mod forks;
mod reverts;
mod steps;
mod told;

use e2e::{Stack, turn::run};
use serde_json::{Value, json};

/// A call of `write`, as a directive for the scripted model.
fn write(path: &str, content: &str) -> String {
    format!("@tool write {}", json!({"filePath": format!("/workspace/{path}"), "content": content}))
}

/// Runs a turn that must end well.
async fn done(stack: &Stack, session: &str, prompt: &str) -> e2e::turn::Transcript {
    let (outcome, seen) = run(&stack.api, session, prompt).await;
    assert_eq!(outcome, "done", "{:?}", seen.error());
    seen
}

/// The answers of a session, each with its parts.
async fn answers(stack: &Stack, session: &str) -> Vec<Vec<Value>> {
    let talk = stack.api.conversation(session).await;
    talk.into_iter().filter(|(info, _)| info["role"] == "assistant").map(|(_, parts)| parts).collect()
}

/// The one part of a kind, or `null`.
fn part(parts: &[Value], kind: &str) -> Value {
    let mut found = parts.iter().filter(|part| part["type"] == kind);
    let first = found.next().cloned().unwrap_or_default();
    assert!(found.next().is_none(), "one {kind} in {parts:?}");
    first
}
