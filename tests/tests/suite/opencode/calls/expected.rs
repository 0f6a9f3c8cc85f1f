//! The shapes of OpenCode's answers, written down in `expected.json`: for every tool, also those that no recording shows.

use super::super::client::Client;
use super::{Difference, FILES, Reply, Script, differences as compare, play, text};
use crate::tools::PAGE;
use e2e::Stack;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A call, and what OpenCode shows of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedCall {
    tool: String,
    input: Value,
    /// The name of the tool in the first state, if it is another one.
    called: Option<String>,
    /// The arguments that clients see, if they are others.
    shown_input: Option<Value>,
    /// The further members of the state while the call runs.
    #[serde(default)]
    running: Value,
    /// The members of the last state.
    completed: Option<Value>,
    error: Option<Value>,
}

impl ExpectedCall {
    fn states(&self) -> Vec<Value> {
        let part = |tool: &str, state: Value| {
            json!({
                "id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": "tool", "tool": tool, "callID": "call",
                "state": state,
            })
        };
        let input = self.shown_input.as_ref().unwrap_or(&self.input);
        let state = |status: &str, time: Value, members: &Value| {
            let mut state = json!({"status": status, "input": input, "time": time});
            state.as_object_mut().unwrap().extend(members.as_object().cloned().unwrap_or_default());
            part(&self.tool, state)
        };
        let (running, over) = (json!({"start": 1}), json!({"start": 1, "end": 2}));
        let last = match (&self.completed, &self.error) {
            (Some(completed), None) => state("completed", over, completed),
            (None, Some(error)) => state("error", over, error),
            _ => panic!("{self:?} has one end"),
        };
        let called = self.called.as_ref().unwrap_or(&self.tool);
        let pending = part(called, json!({"status": "pending", "input": {}, "raw": ""}));
        vec![pending, state("running", running, &self.running), last]
    }
}

/// Plays the calls in one session, in order.
pub(super) async fn differences(stack: &Stack, client: &Client) -> BTreeSet<Difference> {
    let calls = include_str!("expected.json").replace("<page>", PAGE);
    let calls: Vec<ExpectedCall> = serde_json::from_str(&calls).unwrap();
    let prompt: String = calls
        .iter()
        .map(|call| format!("@tool {} {}\n", call.called.as_ref().unwrap_or(&call.tool), call.input))
        .collect();
    let script = Script {
        rules: vec![],
        files: &FILES,
        requests: vec![("message", text(prompt + "@text over"))],
        replies: vec![Reply { action: "reply", body: json!({"answers": [["A"]]}) }],
        aborts_at: None,
    };
    let played = play(stack, client, script).await;
    let theirs: Vec<Vec<Value>> = calls.iter().map(ExpectedCall::states).collect();
    compare("expected.json", &theirs, &played)
}
