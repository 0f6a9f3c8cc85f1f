//! Sessions, prompts, logs and requests of the newer API.

use super::super::{
    super::{client::Client, events::Events},
    NOBODY, refused,
};
use e2e::turn::bash;
use reqwest::Method;
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

/// The id that the client chooses for its session.
const OWN: &str = "ses_0123456789abABCDEFGHIJKLMN";

/// Calls every route below `/api/session` and of requests, in a separate directory.
pub(super) async fn check(client: &Client) {
    let client = Client { directory: "/home/me/newer".to_owned(), ..client.clone() };
    let at = create_session(&client).await;
    prompts(&client, &at).await;
    log(&client, &at).await;
    check_messages(&client, &at).await;
    requests(&client, &at).await;
    points(&client, &at).await;
    for (method, path) in [
        (Method::GET, ""),
        (Method::GET, "/context"),
        (Method::GET, "/history"),
        (Method::GET, "/event"),
        (Method::GET, "/message"),
        (Method::GET, "/permission"),
        (Method::GET, "/question"),
        (Method::POST, "/interrupt"),
        (Method::POST, "/wait"),
        (Method::POST, "/compact"),
        (Method::POST, "/revert/clear"),
        (Method::POST, "/revert/commit"),
    ] {
        let none = client.expect(404, method, &format!("/api/session/{NOBODY}{path}"), Value::Null).await;
        assert_eq!(
            (&none["_tag"], &none["sessionID"]),
            (&json!("SessionNotFoundError"), &json!(NOBODY)),
            "{path}"
        );
    }
}

async fn empty(client: &Client, path: &str, body: Value) {
    client.expect(204, Method::POST, path, body).await;
}

async fn create_session(client: &Client) -> String {
    let location = json!({"directory": client.directory});
    let new_session =
        client.post("/api/session", json!({"id": OWN, "location": location})).await["data"].clone();
    assert_eq!((&new_session["id"], &new_session["location"]), (&json!(OWN), &location));
    let again = client.post("/api/session", json!({"id": OWN, "agent": "plan", "location": location})).await;
    assert_eq!(again["data"], new_session, "one session for one id");
    let at = format!("/api/session/{OWN}");
    assert_eq!(client.get(&at).await["data"], new_session);
    let listed = client.get(&format!("/api/session?directory={}&limit=1", client.directory)).await;
    assert_eq!((&listed["data"], listed["cursor"]["next"].is_string()), (&json!([new_session]), true));
    let next = format!(
        "/api/session?directory={}&cursor={}",
        client.directory,
        listed["cursor"]["next"].as_str().unwrap()
    );
    assert_eq!(client.get(&next).await["data"], json!([]));
    for bad in ["?cursor=x", "?order=asc", "?limit=many"] {
        let refused = client.expect(400, Method::GET, &format!("/api/session{bad}"), Value::Null).await;
        let tag = if bad.contains("cursor") { "InvalidCursorError" } else { "InvalidRequestError" };
        assert_eq!(refused["_tag"], tag, "{bad}");
    }
    for bad in
        ["{", r#"{"id":"ses_short"}"#, r#"{"agent":"nobody"}"#, r#"{"model":{"providerID":"a","id":"b"}}"#]
    {
        refused(client, Method::POST, "/api/session", bad).await;
    }
    empty(client, &format!("{at}/agent"), json!({"agent": "plan"})).await;
    let model = json!({"providerID": "claude", "id": "demo"});
    empty(client, &format!("{at}/model"), json!({"model": model})).await;
    let changed = client.get(&at).await["data"].clone();
    assert_eq!((&changed["agent"], &changed["model"]), (&json!("plan"), &model));
    refused(client, Method::POST, &format!("{at}/agent"), r#"{"agent":"nobody"}"#).await;
    refused(client, Method::POST, &format!("{at}/model"), r#"{"model":{"providerID":"a","id":"b"}}"#).await;
    empty(client, &format!("{at}/agent"), json!({"agent": "build"})).await;
    at
}

async fn prompts(client: &Client, at: &str) {
    let prompt = json!({"id": "msg_0123456789abABCDEFGHIJKLMN", "prompt": {"text": "@text Hello."}});
    let receipt = client.post(&format!("{at}/prompt"), prompt.clone()).await["data"].clone();
    assert_eq!((&receipt["id"], &receipt["prompt"]), (&prompt["id"], &prompt["prompt"]));
    empty(client, &format!("{at}/wait"), Value::Null).await;
    assert_eq!(
        client.post(&format!("{at}/prompt"), prompt.clone()).await["data"],
        receipt,
        "the same receipt"
    );
    let other = json!({"id": prompt["id"], "prompt": {"text": "another"}});
    let conflict = client.expect(409, Method::POST, &format!("{at}/prompt"), other).await;
    assert_eq!(conflict["_tag"], "ConflictError");
    let file = json!({"uri": "data:text/plain;base64,YQ==", "name": "a.txt"});
    let note = json!({"prompt": {"text": "a note", "files": [file]}, "resume": false});
    let note = client.post(&format!("{at}/prompt"), note).await["data"].clone();
    assert_eq!(note["prompt"]["files"][0]["mime"], "text/plain", "{note}");
    for bad in [
        "{}",
        r#"{"prompt":{}}"#,
        r#"{"prompt":{"text":""}}"#,
        r#"{"prompt":{"text":"x"},"delivery":"queue"}"#,
        r#"{"id":"nonsense","prompt":{"text":"x"}}"#,
    ] {
        refused(client, Method::POST, &format!("{at}/prompt"), bad).await;
    }
    let call = json!({"prompt": {"text": format!("@reason Hm.\n{}\n@text Done.", bash("echo out"))}});
    client.post(&format!("{at}/prompt"), call).await;
    empty(client, &format!("{at}/wait"), Value::Null).await;
    let failing = json!({"prompt": {"text": "@status 400"}});
    client.post(&format!("{at}/prompt"), failing).await;
    empty(client, &format!("{at}/wait"), Value::Null).await;
    empty(client, &format!("{at}/compact"), Value::Null).await;
    let slow = json!({"prompt": {"text": bash("sleep 1000")}});
    client.post(&format!("{at}/prompt"), slow).await;
    assert_eq!(client.get("/api/session/active").await["data"][OWN]["type"], "running");
    empty(client, &format!("{at}/interrupt"), Value::Null).await;
    empty(client, &format!("{at}/wait"), Value::Null).await;
}

/// The paged log equals the streamed log, from every position.
async fn log(client: &Client, at: &str) {
    let whole = client.get(&format!("{at}/history?limit=500")).await;
    let (data, more) = (whole["data"].as_array().unwrap(), &whole["hasMore"]);
    assert_eq!(more, false);
    let kinds: BTreeSet<&str> = data.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for kind in [
        "prompted",
        "step.started",
        "step.ended",
        "step.failed",
        "text.started",
        "text.ended",
        "reasoning.ended",
        "tool.called",
        "tool.success",
        "compaction.started",
        "compaction.ended",
    ] {
        assert!(kinds.contains(format!("session.next.{kind}").as_str()), "{kind} did not arrive: {kinds:?}");
    }
    let (mut paged, mut after) = (vec![], 0);
    loop {
        let page = client.get(&format!("{at}/history?limit=7&after={after}")).await;
        paged.extend(page["data"].as_array().unwrap().clone());
        if page["hasMore"] == false {
            break;
        }
        after = paged.last().unwrap()["durable"]["seq"].as_u64().unwrap();
    }
    assert_eq!(&paged, data);
    let middle = data[data.len() / 2]["durable"]["seq"].as_u64().unwrap();
    for after in [0, middle] {
        let want: Vec<&Value> =
            data.iter().filter(|event| event["durable"]["seq"].as_u64().unwrap() > after).collect();
        let events = read_events(client, &format!("{at}/event?after={after}"), want.len()).await;
        assert_eq!(events.iter().collect::<Vec<_>>(), want, "after {after}");
    }
    for bad in ["history?after=x", "history?limit=-1", "event?after=99999999"] {
        let refused = client.expect(400, Method::GET, &format!("{at}/{bad}"), Value::Null).await;
        assert!(refused["_tag"].as_str().unwrap().starts_with("Invalid"), "{bad}");
    }
}

/// Reads this number of events from a stream.
async fn read_events(client: &Client, path: &str, count: usize) -> Vec<Value> {
    let request = client.request(Method::GET, path).timeout(Duration::from_secs(60));
    let mut response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut unread, mut events) = (String::new(), vec![]);
    while events.len() < count {
        unread.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
        while let Some((frame, rest)) = unread.split_once("\n\n") {
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if let Some(data) = field("data:") {
                let event: Value = serde_json::from_str(data).unwrap();
                let seq = event["durable"]["seq"].to_string();
                assert_eq!((field("id:"), field("event:")), (Some(seq.as_str()), event["type"].as_str()));
                events.push(event);
            }
            unread = rest.to_owned();
        }
    }
    events
}

async fn check_messages(client: &Client, at: &str) {
    let all = client.get(&format!("{at}/message?order=asc&limit=200")).await["data"].clone();
    let all = all.as_array().unwrap();
    let kinds: BTreeSet<&str> = all.iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert!(kinds.is_superset(&BTreeSet::from(["assistant", "compaction", "user"])), "{kinds:?}");
    assert_eq!((&all[0]["text"], &all[1]["content"][0]["text"]), (&json!("@text Hello."), &json!("Hello.")));
    let summary = all.iter().rposition(|message| message["type"] == "compaction").unwrap();
    assert_eq!(client.get(&format!("{at}/context")).await["data"], json!(all[summary..]));
    let one = format!("{at}/message/{}", all[1]["id"].as_str().unwrap());
    assert_eq!(client.get(&one).await["data"], all[1]);
    let none = client.expect(404, Method::GET, &format!("{at}/message/msg_none"), Value::Null).await;
    assert_eq!((&none["_tag"], &none["messageID"]), (&json!("MessageNotFoundError"), &json!("msg_none")));
    for order in ["asc", "desc"] {
        let (mut paged, mut page) =
            (vec![], client.get(&format!("{at}/message?order={order}&limit=2")).await);
        loop {
            paged.extend(page["data"].as_array().unwrap().clone());
            let Some(next) = page["cursor"]["next"].as_str() else { break };
            page = client.get(&format!("{at}/message?limit=2&cursor={next}")).await;
        }
        if order == "desc" {
            paged.reverse();
        }
        assert_eq!(&paged, all, "{order}");
        let previous = page["cursor"]["previous"].as_str().unwrap();
        let back = client.get(&format!("{at}/message?limit=2&cursor={previous}")).await;
        assert!(
            back["data"].as_array().is_some_and(|data| !data.is_empty())
                && back["cursor"]["next"].is_string()
        );
    }
    let refused = client.expect(400, Method::GET, &format!("{at}/message?cursor=x"), Value::Null).await;
    assert_eq!(refused["_tag"], "InvalidCursorError");
}

async fn requests(client: &Client, at: &str) {
    let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
    let session = client.session(json!({"permission": [rule]})).await;
    let own = format!("/api/session/{session}");
    let mut events = Events::of(client, "/event", "").await;
    client.prompt_async(&session, &bash("true")).await;
    events.until_session("permission.asked", &session).await;
    let permission = client.get(&format!("{own}/permission")).await["data"][0].clone();
    assert_eq!((&permission["action"], &permission["sessionID"]), (&json!("bash"), &json!(session)));
    let open = client.get("/api/permission/request").await;
    assert_eq!(
        (&open["data"], &open["location"]["directory"]),
        (&json!([permission]), &json!(client.directory))
    );
    let one = format!("{own}/permission/{}", permission["id"].as_str().unwrap());
    assert_eq!(client.get(&one).await["data"], permission);
    refused(client, Method::POST, &format!("{one}/reply"), r#"{"reply":"maybe"}"#).await;
    let elsewhere = format!("{at}/permission/{}/reply", permission["id"].as_str().unwrap());
    client.expect(404, Method::POST, &elsewhere, json!({"reply": "once"})).await;
    empty(client, &format!("{one}/reply"), json!({"reply": "once"})).await;
    events.until_session("session.idle", &session).await;
    client.expect(404, Method::GET, &one, Value::Null).await;
    client.expect(404, Method::POST, &format!("{one}/reply"), json!({"reply": "once"})).await;
    assert_eq!(client.get("/api/permission/saved").await["data"], json!([]));
    client.expect(204, Method::DELETE, "/api/permission/saved/per_none", Value::Null).await;

    let options = json!([{"label": "Red", "description": "a colour"}]);
    let ask = json!({"questions": [{"question": "Which?", "header": "Colour", "options": options}]});
    for (path, body) in [("reply", json!({"answers": [["Red"]]})), ("reject", Value::Null)] {
        client.prompt_async(&session, &format!("@tool question {ask}\n@text thanks")).await;
        events.until_session("question.asked", &session).await;
        let question = client.get(&format!("{own}/question")).await["data"][0].clone();
        assert_eq!(client.get("/api/question/request").await["data"], json!([question]));
        let one = format!("{own}/question/{}", question["id"].as_str().unwrap());
        client.expect(404, Method::POST, &format!("{}/{path}", one.replace(&own, at)), body.clone()).await;
        empty(client, &format!("{one}/{path}"), body.clone()).await;
        events.until_session("session.idle", &session).await;
        client.expect(404, Method::POST, &format!("{one}/{path}"), body).await;
    }
    assert_eq!(
        client.get(&format!("{at}/permission")).await["data"],
        json!([]),
        "only the events of that session"
    );
}

async fn points(client: &Client, at: &str) {
    let first = "msg_0123456789abABCDEFGHIJKLMN";
    let stage = json!({"messageID": first});
    let staged = client.post(&format!("{at}/revert/stage"), stage.clone()).await;
    assert_eq!(staged["data"]["messageID"], first);
    empty(client, &format!("{at}/revert/clear"), Value::Null).await;
    assert!(client.get(at).await["data"].get("revert").is_none());
    let body = r#"{"messageID":"msg_x","files":false}"#;
    refused(client, Method::POST, &format!("{at}/revert/stage"), body).await;
    client.expect(404, Method::POST, &format!("{at}/revert/stage"), json!({"messageID": "msg_none"})).await;
    client.post(&format!("{at}/revert/stage"), stage).await;
    empty(client, &format!("{at}/revert/commit"), Value::Null).await;
    assert_eq!(client.get(&format!("{at}/message")).await["data"], json!([]), "nothing is left");
}
