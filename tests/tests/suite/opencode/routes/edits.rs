//! Edits of a conversation by a person.

use super::{
    super::{client::Client, events::Events},
    refused,
};
use e2e::{Stack, turn::bash};
use reqwest::Method;
use serde_json::{Value, json};

/// Edits a separate turn, and tries edits that are refused.
pub(super) async fn check(client: &Client, session: &str) {
    let mut events = Events::of(client, "/event", "").await;
    let answer = client.prompt(session, "@text To be changed.").await;
    let (message, prompt) =
        (answer["info"]["id"].as_str().unwrap(), answer["info"]["parentID"].as_str().unwrap());
    let part = answer["parts"].as_array().unwrap().iter().find(|part| part["type"] == "text").unwrap();
    let at = format!("/session/{session}/message/{message}");
    let own = format!("{at}/part/{}", part["id"].as_str().unwrap());
    let mut changed = part.clone();
    changed["text"] = json!("Changed.");
    assert_eq!(client.expect(200, Method::PATCH, &own, changed.clone()).await, changed);
    events.until(|event| event["properties"]["part"] == changed).await;
    let start = &answer["parts"][0];
    let of_start = format!("{at}/part/{}", start["id"].as_str().unwrap());
    refused(client, Method::PATCH, &of_start, &start.to_string()).await;
    refused(client, Method::PATCH, &of_start, &changed.to_string()).await;
    refused(client, Method::PATCH, &own, "{}").await;
    assert_eq!(client.expect(200, Method::DELETE, &own, Value::Null).await, true);
    events.until_session("message.part.removed", session).await;
    client.expect(404, Method::DELETE, &own, Value::Null).await;
    client.expect(404, Method::PATCH, &own, changed).await;
    for message in [message, prompt] {
        let at = format!("/session/{session}/message/{message}");
        assert_eq!(client.expect(200, Method::DELETE, &at, Value::Null).await, true);
        let gone = events.until_session("message.removed", session).await;
        assert_eq!(gone["properties"]["messageID"], message);
        client.expect(404, Method::DELETE, &at, Value::Null).await;
        client.expect(404, Method::GET, &at, Value::Null).await;
    }
    busy(client).await;
}

#[tokio::test]
async fn a_turn_has_everything_before_it_once_and_as_people_have_edited_it() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({"title": "edits"})).await;
    let answer = client.prompt(&session, "@text To be changed.").await;
    let mut part =
        answer["parts"].as_array().unwrap().iter().find(|part| part["type"] == "text").unwrap().clone();
    part["text"] = json!("Changed.");
    let message = answer["info"]["id"].as_str().unwrap();
    let at = format!("/session/{session}/message/{message}/part/{}", part["id"].as_str().unwrap());
    client.expect(200, Method::PATCH, &at, part).await;
    client.prompt(&session, "@text Second.").await;
    client.prompt(&session, "@text Third.").await;
    let requests = stack.model.journal.requests();
    let of = |turn: usize| requests[turn].body["messages"].to_string();
    assert_eq!(requests.len(), 3, "one for each turn");
    for (turn, text, times) in [(1, "Changed.", 1), (1, "Second.", 1), (2, "Changed.", 1), (2, "Second.", 2)]
    {
        assert_eq!(of(turn).matches(text).count(), times, "{text} in the request of turn {turn}");
    }
}

/// A busy session cannot be edited.
async fn busy(client: &Client) {
    let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
    let session = client.session(json!({"permission": [rule]})).await;
    let mut events = Events::of(client, "/event", "").await;
    client.prompt_async(&session, &bash("true")).await;
    events.until_session("permission.asked", &session).await;
    let talk = client.get(&format!("/session/{session}/message")).await;
    let message = talk[0]["info"]["id"].as_str().unwrap();
    let at = format!("/session/{session}/message/{message}");
    let busy = client.expect(409, Method::DELETE, &at, Value::Null).await;
    assert_eq!((&busy["_tag"], &busy["sessionID"]), (&json!("SessionBusyError"), &json!(session)));
    client.post(&format!("/session/{session}/abort"), Value::Null).await;
    events.until_session("session.idle", &session).await;
    client.expect(200, Method::DELETE, &format!("/session/{session}"), Value::Null).await;
}
