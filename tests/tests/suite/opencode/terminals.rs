//! The end of a terminal, also if the gateway that started it has died.

use super::{client::Client, events::Events};
use e2e::Stack;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Starts a terminal that ends with code 3 when its session has the file `go`.
async fn waiting_terminal(client: &Client) -> String {
    let script = "while [ ! -e go ]; do sleep 0.02; done; exit 3";
    let terminal = client.post("/pty", json!({"command": "bash", "args": ["-c", script]})).await;
    terminal["id"].as_str().unwrap().to_owned()
}

fn end(stack: &Stack, session: &str) {
    std::fs::write(stack.workspace(session).join("tree/go"), "").unwrap();
}

async fn until_exit(events: &mut Events, terminal: &str) -> Value {
    let is_end = |event: &Value| event["type"] == "pty.exited" && event["properties"]["id"] == terminal;
    events.until(is_end).await["properties"]["exitCode"].clone()
}

#[tokio::test]
async fn the_end_of_a_terminal_is_told_although_its_gateway_died() {
    if e2e::is_left_out(&["nats", "redis"], "notices come through NATS, and Redis knows terminals") {
        return;
    }
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({})).await;
    let mut early = Events::of(&client, "/event", "").await;
    let gateway = stack.second_gateway().await;
    let elsewhere = Client { url: gateway.url.clone(), ..client.clone() };
    let terminal = waiting_terminal(&elsewhere).await;
    early.until(|event| event["type"] == "pty.created").await;
    drop(gateway);
    let mut late = Events::of(&client, "/global/event", "").await;
    end(&stack, &session);
    assert_eq!(until_exit(&mut early, &terminal).await, 3);
    assert_eq!(until_exit(&mut late, &terminal).await, 3);
    let witness = client.session(json!({})).await;
    early.until_session("session.created", &witness).await;
    let ends = early.seen.iter().filter(|event| event["type"] == "pty.exited");
    assert_eq!(ends.count(), 1, "once");
}

/// Nobody was subscribed when the terminal started, and none when it ended.
#[tokio::test]
async fn a_client_hears_the_end_of_a_terminal_that_no_gateway_followed() {
    if e2e::is_left_out(&["nats", "redis"], "notices come through NATS, and Redis knows terminals") {
        return;
    }
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({})).await;
    let gateway = stack.second_gateway().await;
    let elsewhere = Client { url: gateway.url.clone(), ..client.clone() };
    let [first, second, removed] = [
        waiting_terminal(&elsewhere).await,
        waiting_terminal(&elsewhere).await,
        waiting_terminal(&elsewhere).await,
    ];
    elsewhere.expect(200, reqwest::Method::DELETE, &format!("/pty/{removed}"), Value::Null).await;
    drop(gateway);
    end(&stack, &session);
    let status = async || client.get(&format!("/pty/{first}")).await["status"].clone();
    while status().await != "exited" {}
    let mut events = Events::of(&client, "/event", "").await;
    // The two end at the same moment, and either may be told first.
    let mut running = BTreeSet::from([first, second]);
    while !running.is_empty() {
        let end = events.until(|event| event["type"] == "pty.exited").await["properties"].clone();
        assert_eq!(end["exitCode"], 3);
        assert!(running.remove(end["id"].as_str().unwrap()), "each once, and none that was removed: {end}");
    }
    // It was told, and a later subscriber reads the state of the terminal.
    drop(events);
    let mut later = Events::of(&client, "/event", "").await;
    let witness = client.session(json!({})).await;
    later.until_session("session.created", &witness).await;
    assert!(!later.kinds().contains("pty.exited"), "{:?}", later.kinds());
}
