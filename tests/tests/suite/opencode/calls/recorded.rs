//! OpenCode's recordings, if they are next to this repository.

use super::super::client::Client;
use super::{Difference, FILES, Played, Reply, Script, differences as compare, play, text};
use e2e::Stack;
use futures::{StreamExt as _, stream};
use rpc::v1::PermissionVerdict;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path};

/// The directory of the recordings, from the root of this repository.
const PLACE: &str = "../shared/contract/traces";
/// The directory of the recorded session; that of a session of ours.
const DIRECTORIES: (&str, &str) = ("/workspace/project", "/workspace");
/// The word before a call in a recorded prompt.
const CALL: &str = "MARK_TOOL ";
/// Number of recordings that are played at the same time.
const AT_ONCE: usize = 4;

struct Recording {
    name: String,
    /// The states of each call.
    calls: Vec<Vec<Value>>,
    script: Script,
}

/// Plays every recording that has tool calls. `None` without recordings.
pub(super) async fn differences(stack: &Stack, client: &Client) -> Option<BTreeSet<Difference>> {
    let recordings = read()?;
    assert!(recordings.len() > 10, "the recordings have tool calls");
    let played = stream::iter(recordings).map(|Recording { name, calls, script }| async move {
        let played: Played = play(stack, client, script).await;
        compare(&name, &calls, &played)
    });
    Some(played.buffer_unordered(AT_ONCE).flat_map(stream::iter).collect().await)
}

fn read() -> Option<Vec<Recording>> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(PLACE);
    let Ok(entries) = fs::read_dir(place) else {
        e2e::left_out::leave_unchecked(
            "OpenCode's recordings are missing: tool calls are compared with the expected shapes only",
        );
        return None;
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let recordings = paths.filter_map(|path| {
        let text = fs::read_to_string(&path).unwrap().replace(DIRECTORIES.0, DIRECTORIES.1);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Recording::parse(path.file_stem().unwrap().to_str().unwrap(), &lines)
    });
    Some(recordings.collect())
}

impl Recording {
    /// Reads a recording; `None` if it has no tool calls.
    fn parse(name: &str, lines: &[Value]) -> Option<Self> {
        let mut calls: Vec<Vec<Value>> = vec![];
        let events = lines.iter().filter(|line| line["src"] == "event").map(|line| &line["ev"]);
        let parts = events.filter(|event| event["type"] == "message.part.updated");
        for part in parts.map(|event| &event["properties"]["part"]).filter(|part| part["type"] == "tool") {
            match calls.iter_mut().find(|states| states[0]["callID"] == part["callID"]) {
                Some(states) => states.push(part.clone()),
                None => calls.push(vec![part.clone()]),
            }
        }
        let sent: Vec<&Value> =
            lines.iter().filter(|line| line["src"] == "http" && line["m"] == "POST").collect();
        let action = |line: &Value| line["p"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let asks = |line: &&&Value| {
            let path = line["p"].as_str().unwrap();
            path.starts_with("/permission/")
                || path.starts_with("/question/")
                || path.contains("/permissions/")
        };
        let rules = vec![
            ("doom_loop", PermissionVerdict::Allow),
            (
                "bash",
                if sent.iter().any(|line| asks(&line)) {
                    PermissionVerdict::Ask
                } else {
                    PermissionVerdict::Allow
                },
            ),
        ];
        let script = Script {
            rules,
            files: &FILES[..3],
            requests: sent.iter().filter_map(|line| request(line, &action(line))).collect(),
            replies: sent.iter().filter(asks).map(|line| reply(line, &action(line))).collect(),
            aborts_at: sent.iter().any(|line| action(line) == "abort").then_some("start"),
        };
        (!calls.is_empty()).then(|| Self { name: name.to_owned(), calls, script })
    }
}

/// The answer of the client to a request of the session.
fn reply(line: &Value, action: &str) -> Reply {
    match action {
        "reject" => Reply { action: "reject", body: Value::Null },
        "reply" => Reply { action: "reply", body: line["b"].clone() },
        // The older route names the permission last.
        _ => Reply { action: "reply", body: json!({"reply": line["b"]["response"]}) },
    }
}

/// A request of the client that leads to tool calls, in the words of our scripted model.
fn request(line: &Value, action: &str) -> Option<(&'static str, Value)> {
    let body = &line["b"];
    match action {
        "shell" => Some(("shell", body.clone())),
        "message" if body["parts"][0]["type"] == "subtask" => Some(("message", body.clone())),
        "message" => {
            let call = body["parts"][0]["text"].as_str()?.strip_prefix(CALL)?;
            let (call, times) = call.rsplit_once(" x").unwrap_or((call, "1"));
            let prompt = format!("@tool {call}\n").repeat(times.parse().ok()?);
            let mut body = body.clone();
            body["parts"] = text(prompt + "@text over")["parts"].clone();
            Some(("message", body))
        }
        _ => None,
    }
}
