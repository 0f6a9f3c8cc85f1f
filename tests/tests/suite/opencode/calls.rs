//! What OpenCode's clients see of every tool call, field by field: compared with OpenCode's own answers where its recordings are
//! next to this repository (in `../shared/contract/traces`), and always with the shapes in `calls/expected.json`.
//! `calls/differences.json` lists the differences that are meant, with their reasons. `docs/events.md` prints the list.

mod compare;
mod expected;
mod recorded;

use super::{client::Client, events::Events};
use crate::tools::stack_with_page;
use compare::{Difference, Row};
use e2e::Stack;
use rpc::v1::{self, PermissionVerdict};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

/// The files of every session, as in the recordings.
const FILES: [(&str, &str); 6] = [
    ("a.txt", "hello\n"),
    ("e.txt", "line one\nline two\n"),
    ("opencode.json", "{}"),
    ("src/b.txt", "one\ntwo\nthree\n"),
    (".opencode/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: reads PDF\n---\n\nDo it.\n"),
    (".opencode/skills/pdf/extra.txt", "x"),
];

/// A played session: the states of each of its tool calls.
struct Played {
    calls: Vec<Vec<Value>>,
}

/// How a client answers what a session asks, in order: the path below the request, and the body.
struct Reply {
    action: &'static str,
    body: Value,
}

/// What a client does in a session.
struct Script {
    /// The permission rules of the session.
    rules: Vec<(&'static str, PermissionVerdict)>,
    files: &'static [(&'static str, &'static str)],
    /// The requests of the client: the path below the session, and the body. A turn ends before the next one.
    requests: Vec<(&'static str, Value)>,
    replies: Vec<Reply>,
    /// Aborts the turn as soon as the output of a command contains this.
    aborts_at: Option<&'static str>,
}

/// Time limit for a script.
const SCRIPT_MAX: Duration = Duration::from_secs(30);

async fn play(stack: &Stack, client: &Client, script: Script) -> Played {
    let requests = json!(script.requests).to_string();
    let played = tokio::time::timeout(SCRIPT_MAX, perform(stack, client, script)).await;
    played.unwrap_or_else(|_| panic!("a script does not end: {requests}"))
}

async fn perform(stack: &Stack, client: &Client, script: Script) -> Played {
    let mut events = Events::of(client, "/global/event", "").await;
    let bundle_id = stack.api.upload(&testkit::git::repository(script.files).bundle()).await;
    let from = Some(v1::source::From::BundleId(bundle_id));
    let source = v1::Source { from, revision: String::new() };
    let session = stack.api.session_with(Some(source), &script.rules).await;
    let (mut replies, mut calls) = (script.replies.into_iter(), Vec::<Vec<Value>>::new());
    // A new stream also tells what is open, so it may ask the same twice on a busy machine.
    let mut answered = BTreeSet::new();
    for (path, body) in script.requests {
        let request = client.http.post(format!("{}/session/{session}/{path}", client.url));
        let request = request.basic_auth("anybody", Some(&client.key)).json(&body);
        let sent = tokio::spawn(async move { request.send().await.unwrap().status() });
        loop {
            let event = events.next().await;
            let properties = &event["properties"];
            let part = &properties["part"];
            match event["type"].as_str().unwrap() {
                "permission.asked" | "question.asked" if properties["sessionID"] == session => {
                    if !answered.insert(properties["id"].to_string()) {
                        continue;
                    }
                    let reply = replies.next().unwrap_or_else(|| panic!("no reply to {properties}"));
                    let kind = event["type"].as_str().unwrap().split('.').next().unwrap();
                    let id = properties["id"].as_str().unwrap();
                    client.post(&format!("/{kind}/{id}/{}", reply.action), reply.body).await;
                }
                "message.part.updated" if part["sessionID"] == session && part["type"] == "tool" => {
                    match calls.iter_mut().find(|states| states[0]["callID"] == part["callID"]) {
                        Some(states) => states.push(part.clone()),
                        None => calls.push(vec![part.clone()]),
                    }
                    let output = part["state"]["metadata"]["output"].as_str().unwrap_or_default();
                    if part["state"]["status"] == "running"
                        && script.aborts_at.is_some_and(|text| output.contains(text))
                    {
                        client.post(&format!("/session/{session}/abort"), Value::Null).await;
                    }
                }
                "session.idle" if properties["sessionID"] == session => break,
                _ => {}
            }
        }
        let status = sent.await.unwrap();
        assert!(status.is_success(), "{path}: {status}");
    }
    Played { calls }
}

/// Compares calls with the states that OpenCode shows of them.
fn differences(name: &str, theirs: &[Vec<Value>], played: &Played) -> BTreeSet<Difference> {
    let tools = |calls: &[Vec<Value>]| -> Vec<String> {
        calls.iter().map(|states| states.last().unwrap()["tool"].to_string()).collect()
    };
    assert_eq!(tools(&played.calls), tools(theirs), "{name}");
    let pairs = theirs.iter().zip(&played.calls);
    pairs.flat_map(|(theirs, ours)| compare::differences(theirs, ours)).collect()
}

#[tokio::test]
async fn every_call_looks_as_in_opencode_but_for_the_listed_differences() {
    let stack = stack_with_page("<html><head><title>T</title></head><body><h1>Head</h1></body></html>").await;
    let client = Client::new(&stack, "project");
    let rows = compare::rows();
    let own = expected::differences(&stack, &client).await;
    let recorded = recorded::differences(&stack, &client).await;
    let found: BTreeSet<Difference> = own.into_iter().chain(recorded.iter().flatten().cloned()).collect();
    let listed: BTreeSet<Difference> = rows.iter().flat_map(Row::differences).collect();
    let unlisted: Vec<&Difference> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "differences that no row explains: {unlisted:#?}");
    // Some differences show in the recordings only.
    if recorded.is_some() {
        let gone: Vec<&Difference> = listed.difference(&found).collect();
        assert!(gone.is_empty(), "rows without a difference: {gone:#?}");
    }
}

/// The body of a text prompt.
fn text(text: String) -> Value {
    json!({"parts": [{"type": "text", "text": text}]})
}
