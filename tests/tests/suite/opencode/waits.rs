//! Calls that wait for a turn, and the status of a session that waits.

use super::{client::Client, events::Events};
use e2e::{
    Stack,
    turn::{Watch, bash},
};
use serde_json::json;

#[tokio::test]
async fn calls_that_wait_for_one_turn_get_the_same_answer() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let mut events = Events::of(&client, "/event", "").await;
    let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
    let session = client.session(json!({"permission": [rule]})).await;
    let first = async { client.prompt(&session, &format!("{}\n@text first", bash("true"))).await };
    let second = async {
        let request = events.until_session("permission.asked", &session).await;
        let prompt = client.prompt(&session, "@text second");
        let answer = async {
            events
                .until(|event| {
                    let part = &event["properties"]["part"];
                    part["sessionID"] == session && part["text"] == "@text second"
                })
                .await;
            let reply = format!("/permission/{}/reply", request["properties"]["id"].as_str().unwrap());
            client.post(&reply, json!({"reply": "once"})).await
        };
        futures::future::join(prompt, answer).await.0
    };
    let (first, second) = futures::future::join(first, second).await;
    assert_eq!(first, second);
    let texts = first["parts"].as_array().unwrap().iter().filter(|part| part["type"] == "text");
    assert_eq!(texts.map(|part| part["text"].as_str().unwrap()).collect::<Vec<_>>(), ["second"]);
}

#[tokio::test]
async fn a_shell_command_is_answered_with_its_own_result() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({})).await;
    let command = "echo out; touch begun; until test -e go; do sleep 0.02; done";
    let shell = json!({"agent": "build", "command": command});
    let at = format!("/session/{session}/shell");
    let shell = client.post(&at, shell);
    let prompt = async {
        let tree = stack.workspace(&session).join("tree");
        testkit::eventually("the command runs", async || tree.join("begun").exists()).await;
        client.prompt_async(&session, "@text later").await;
        std::fs::write(tree.join("go"), "").unwrap();
    };
    let (answer, ()) = futures::future::join(shell, prompt).await;
    let state = answer["parts"].as_array().unwrap().iter().find_map(|part| part["state"].as_object());
    assert_eq!(state.map(|state| &state["output"]), Some(&json!("out\n")), "{answer}");
}

#[tokio::test]
async fn a_session_that_waits_to_call_the_model_again_has_the_status_retry() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({})).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    client.prompt_async(&session, "@status 429 retry-after=30 times=1\n@text never").await;
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    let status = client.get("/session/status").await[&session].clone();
    assert_eq!((&status["type"], &status["attempt"]), (&json!("retry"), &json!(1)), "{status}");
    assert!(status["message"].as_str().is_some_and(|message| !message.is_empty()), "{status}");
    assert!(status["next"].as_u64().is_some_and(|next| next > 1_700_000_000_000), "{status}");
    // A client that connects now reads the same.
    let mut events = Events::of(&client, "/global/event", "").await;
    let event = events.until_session("session.status", &session).await;
    assert_eq!(event["properties"]["status"], status);
}
