//! Edits of a conversation by a person.

use super::{
    super::{client::Client, events::Events},
    refused,
};
use e2e::turn::bash;
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
