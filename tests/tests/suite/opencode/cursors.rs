//! Invalid cursors: forged, stale, from the future, or another tenant's. A page of messages is refused. A stream starts anew,
//! because a client that cannot read the reason could not do anything better.

use super::{client::Client, events::Events};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use e2e::Stack;
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_returning_client_learns_of_a_deletion() {
    let stack = Stack::gateway_alone().await;
    let client = Client::new(&stack, "/home/me/project");
    let mut events = Events::of(&client, "/event", "").await;
    let session = client.session(json!({"title": "secret"})).await;
    events.until_session("session.created", &session).await;
    let cursor = events.cursor.clone();
    drop(events);
    client.expect(200, Method::DELETE, &format!("/session/{session}"), Value::Null).await;
    let mut again = Events::of(&client, "/event", &cursor).await;
    let deletion = again.until_session("session.deleted", &session).await;
    assert_eq!(deletion["properties"]["info"]["directory"], client.directory.as_str());
    assert_eq!(deletion["properties"]["info"]["title"], "", "the deletion keeps none of its content");
}

#[tokio::test]
async fn a_stream_with_a_forged_event_id_starts_at_the_head() {
    let stack = Stack::gateway_alone().await;
    let owner = Client::new(&stack, "/home/me/project");
    let stranger = Client { key: stack.other_tenant().await.key, ..owner.clone() };
    let mut witness = Events::of(&owner, "/global/event", "").await;
    let theirs = owner.session(json!({"title": "theirs"})).await;
    witness.until_session("session.created", &theirs).await;
    let own = stranger.session(json!({"title": "own"})).await;
    let long = format!("t1.{}", "1".repeat(5_000));
    let mut title = "own".to_owned();
    for forged in [
        "x",
        "t1.",
        "t1.x",
        "t1.-1",
        "t1.1.5",
        "t1.+1",
        "t2.1",
        "v1.3",
        "t1.18446744073709551615",
        "t1.18446744073709551616",
        "t1.9223372036854775808",
        "t1.0",
        "t1.1",
        &witness.cursor,
        &long,
    ] {
        for path in ["/event", "/global/event"] {
            let mut events = Events::of(&stranger, path, forged).await;
            let is_told =
                |title: String| move |event: &Value| event["properties"]["info"]["title"] == title.as_str();
            if path == "/global/event" {
                events.until(is_told(title)).await;
            }
            title = format!("{path} {}", &forged[..forged.len().min(30)]);
            stranger.expect(200, Method::PATCH, &format!("/session/{own}"), json!({"title": title})).await;
            events.until(is_told(title.clone())).await;
            let stream_text = json!(events.seen).to_string();
            assert!(!stream_text.contains(&theirs), "{path} {forged}: {stream_text}");
        }
    }
    // A cursor must be text.
    let request = stranger.request(Method::GET, "/event").header("last-event-id", &b"t1.\xff\xfe"[..]);
    let mut stream = request.send().await.unwrap();
    let first = stream.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("server.connected"));
}

#[tokio::test]
async fn a_page_of_messages_accepts_only_its_own_cursors() {
    let stack = Stack::without_sandbox().await;
    let owner = Client::new(&stack, "/home/me/project");
    let stranger = Client { key: stack.other_tenant().await.key, ..owner.clone() };
    let page = async |client: &Client, session: &str, before: &str| {
        client.send(Method::GET, &format!("/session/{session}/message?limit=1&before={before}"), "").await
    };
    let mut cursors = vec![];
    let mut sessions = vec![];
    for client in [&owner, &stranger] {
        let session = client.session(json!({})).await;
        client.prompt(&session, "@text One.").await;
        let newest = client.send(Method::GET, &format!("/session/{session}/message?limit=1"), "").await;
        cursors.push(newest.headers["x-next-cursor"].to_str().unwrap().to_owned());
        sessions.push(session);
    }
    let own = page(&stranger, &sessions[1], &cursors[1]).await;
    assert_eq!((own.status, own.body.as_array().unwrap().len()), (200, 1));
    // The cursor of another tenant reveals nothing of that tenant.
    let foreign = page(&stranger, &sessions[1], &cursors[0]).await;
    assert!(foreign.status == 400 || foreign.status == 200, "{foreign:?}");
    assert!(!foreign.body.to_string().contains(&sessions[0]), "{foreign:?}");
    assert_eq!(page(&stranger, &sessions[0], &cursors[0]).await.status, 404);
    let coded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    for forged in [
        "x".to_owned(),
        coded("x"),
        coded("{}"),
        coded("[]"),
        coded("null"),
        coded(r#"{"id":7,"time":"x"}"#),
        coded(r#"{"id":"msg_1'--","time":-1}"#),
        coded(r#"{"id":"ses_00000000000000000000000000","time":1}"#),
        "x".repeat(20_000),
        "%00".to_owned(),
        "%ff".to_owned(),
    ] {
        let refused = page(&stranger, &sessions[1], &forged).await;
        assert_eq!(refused.status, 400, "{forged:.60}: {}", refused.body);
    }
}
