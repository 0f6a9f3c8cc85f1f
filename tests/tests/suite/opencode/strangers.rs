//! A client of another tenant in a directory of the same name. At every route with ids it gets "not found" for foreign ids, and
//! no stream delivers it a foreign event. The routes come from the gateway's list and from OpenCode's, so new routes are tested
//! automatically.

use super::{client::Client, contract, events::Events};
use e2e::{Stack, turn::bash};
use futures::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A word that occurs in everything of the owner, and nowhere else.
const CANARY: &str = "canary-51c0";
const AT_ONCE: usize = 8;

/// The ids of the resources of a tenant.
#[derive(Debug, Clone)]
pub(super) struct ResourceIds {
    session: String,
    message: String,
    part: String,
    permission: String,
    question: String,
    pty: String,
    project: String,
}

impl ResourceIds {
    /// Creates a session that waits for a permission, another that waits for an answer, and a terminal.
    pub(super) async fn make(client: &Client) -> Self {
        let mut events = Events::of(client, "/event", "").await;
        let pty = client.post("/pty", json!({"command": "sleep", "args": ["1000"], "title": CANARY})).await;
        let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
        let session = client.session(json!({"title": CANARY, "permission": [rule]})).await;
        client.prompt_async(&session, &format!("@text {CANARY}\n{}", bash("true"))).await;
        let event = events.until_session("permission.asked", &session).await;
        let permission = event["properties"]["id"].as_str().unwrap().to_owned();
        let other = client.session(json!({"title": CANARY})).await;
        let options = json!([{"label": CANARY, "description": CANARY}]);
        let ask = json!({"questions": [{"question": CANARY, "header": "canary", "options": options}]});
        client.prompt_async(&other, &format!("@tool question {ask}\n@text thanks")).await;
        let event = events.until_session("question.asked", &other).await;
        let question = event["properties"]["id"].as_str().unwrap().to_owned();
        let talk = client.get(&format!("/session/{session}/message")).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            message: text(&talk[0]["info"]["id"]),
            part: text(&talk[0]["parts"][0]["id"]),
            pty: text(&pty["id"]),
            project: text(&client.get("/project/current").await["id"]),
            session,
            permission,
            question,
        }
    }

    /// Returns ids of the right form that name nothing, so that an accepted call has no effect.
    pub(super) fn of_nothing() -> Self {
        let id = |prefix: &str| format!("{prefix}_00000000000000000000000000");
        Self {
            session: id("ses"),
            message: id("msg"),
            part: id("prt"),
            permission: id("per"),
            question: id("que"),
            pty: id("pty"),
            project: id("prj"),
        }
    }

    fn all(&self) -> [&str; 7] {
        let Self { session, message, part, permission, question, pty, project } = self;
        [session, message, part, permission, question, pty, project]
    }

    /// Returns the path of a route with these ids; `None` if it names nothing of a tenant.
    pub(super) fn path(&self, route: &str) -> Option<String> {
        let (mut path, mut before, mut is_naming) = (vec![], "", false);
        for part in route.split('/') {
            let named = match before {
                _ if !part.starts_with('{') => None,
                "session" => Some(&self.session),
                "message" => Some(&self.message),
                "part" => Some(&self.part),
                "permission" | "permissions" => Some(&self.permission),
                "question" => Some(&self.question),
                "pty" => Some(&self.pty),
                "project" => Some(&self.project),
                _ => None,
            };
            is_naming |= named.is_some();
            path.push(named.map_or_else(|| part.replace(['{', '}'], "x"), Clone::clone));
            before = part;
        }
        is_naming.then(|| path.join("/"))
    }

    /// Returns a body with the members that any route reads.
    pub(super) fn body(&self, route: &str) -> Value {
        let mut body = json!({
            "sessionID": self.session, "messageID": self.message, "partID": self.part, "type": "text",
            "text": "taken", "title": "taken", "name": "taken", "reply": "once", "answers": [["taken"]],
            "agent": "build", "command": "init", "arguments": "", "providerID": "chat", "modelID": "demo",
            "parts": [{"type": "text", "text": "taken"}], "size": {"rows": 2, "cols": 2},
        });
        // In other routes this member names the model.
        if route.contains("/part/") {
            body["id"] = json!(self.part);
        }
        if route.ends_with("/model") {
            body["model"] = json!({"providerID": "chat", "id": "demo"});
        }
        if route.ends_with("/prompt") {
            body["prompt"] = json!({"text": "taken"});
        }
        // A command accepts only files in addition to its text.
        if route.ends_with("/command") {
            body["parts"] = json!([]);
        }
        body
    }
}

/// Calls a route with the parameters that it may need; returns status and body.
pub(super) async fn call(client: &Client, method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = client.request(method.clone(), path).header("x-opencode-ticket", "1");
    if path.ends_with("/connect") {
        request = request
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    } else if method != Method::GET {
        request = request.header("content-type", "application/json").body(body);
    }
    let answer = request.send().await.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"));
    let status = answer.status().as_u16();
    // A connection that stays open has no end.
    let text = if status == 101 { String::new() } else { answer.text().await.unwrap() };
    (status, text)
}

/// Returns what the owner sees at every reading route of ours.
async fn owner_view(client: &Client, theirs: &ResourceIds) -> Vec<(String, Value)> {
    let mut answers = vec![];
    for (method, route) in client.own().await.listed() {
        let is_read = method == "GET" && !route.ends_with("/connect") && !route.ends_with("/event");
        let path = theirs.path(&route).filter(|_| is_read);
        if let Some(path) = path {
            answers.push((path.clone(), client.get(&path).await));
        }
    }
    answers.push(("/permission".to_owned(), client.get("/permission").await));
    answers.push(("/question".to_owned(), client.get("/question").await));
    answers
}

#[tokio::test]
async fn data_of_another_tenant_is_not_found_at_any_route() {
    let stack = Stack::start().await;
    let owner = Client::new(&stack, "/home/me/project");
    let stranger = Client { key: stack.other_tenant().await.key, ..owner.clone() };
    let own = stranger.session(json!({"title": "own"})).await;
    let mut streams =
        vec![Events::of(&stranger, "/event", "").await, Events::of(&stranger, "/global/event", "").await];
    let mut witness = Events::of(&owner, "/global/event", "").await;
    let theirs = ResourceIds::make(&owner).await;
    witness.until_session("permission.asked", &theirs.session).await;
    // Streams that start at the cursor of another tenant.
    streams.push(Events::of(&stranger, "/global/event", &witness.cursor).await);
    streams.push(Events::of(&stranger, "/event", "t1.0").await);

    let before = owner_view(&owner, &theirs).await;
    assert!(before.len() > 8, "the names fit the routes");
    let ours: BTreeSet<(String, String)> = owner.own().await.listed().into_iter().collect();
    let opencodes = contract::find().map(contract::Contract::listed).unwrap_or_default();
    let every: BTreeSet<(String, String)> = ours.iter().cloned().chain(opencodes).collect();
    let (mut tried, mut wrong) = (0, vec![]);
    for (method, route) in &every {
        let Some(path) = theirs.path(route) else { continue };
        let body = theirs.body(route).to_string().into_bytes();
        let (status, answer) = call(&stranger, method, &path, body).await;
        tried += 1;
        // An abort always answers `true`, as in OpenCode. Methods that we lack are refused in any case.
        let is_ours = ours.contains(&(method.clone(), route.clone()));
        let is_refused = match status {
            200 => route.ends_with("/abort") && answer == "true",
            404 => !is_ours || !answer.contains("no such path"),
            // No client can ask for a permission, so the session is not looked for.
            400 => *route == "/api/session/{sessionID}/permission" && method == "POST",
            status => status == 405 && !is_ours,
        };
        if !is_refused || answer.contains(CANARY) {
            wrong.push(format!("{method} {path}: {status} {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 25, "only {tried} were tried");

    assert_eq!(owner_view(&owner, &theirs).await, before, "none of the calls had an effect");
    // The next event is the last one that the streams deliver.
    stranger.expect(200, Method::PATCH, &format!("/session/{own}"), json!({"title": "the end"})).await;
    for events in &mut streams {
        events.until(|event| event["properties"]["info"]["title"] == "the end").await;
        let stream_text = json!(events.seen).to_string();
        for foreign in theirs.all().into_iter().chain([CANARY]) {
            assert!(!stream_text.contains(foreign), "{foreign} reached a stream: {stream_text}");
        }
    }
    let witnessed = json!(witness.seen).to_string();
    assert!(witnessed.contains(CANARY), "the owner received: {witnessed}");
}

/// Bodies that are not JSON objects.
const NO_OBJECTS: [&[u8]; 12] = [
    b"{",
    b"[]",
    b"7",
    b"null",
    b"\"text\"",
    b"true",
    b"{\"title\":",
    b"{\"title\":\"\\u00\"}",
    b"{]",
    b"\0",
    b"\xff\xfe",
    b"{} {}",
];

/// A schema that accepts any JSON.
const ANY_JSON: &str = "/tui/control/response";

/// Returns bodies with an unexpected value for each member that a route reads.
fn strange(good: &Value, members: &[String]) -> Vec<Vec<u8>> {
    let wrong = [Value::Null, json!(-1.5e300), json!([[{"a": 1}]]), json!("\0")];
    let one = |member: &String, value: &Value| {
        let mut body = good.clone();
        body[member] = value.clone();
        body.to_string().into_bytes()
    };
    members.iter().flat_map(|member| wrong.iter().map(move |value| one(member, value))).collect()
}

#[tokio::test]
async fn every_malformed_body_gets_an_answer() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let nothing = ResourceIds::of_nothing();
    let deep = [b"{\"title\":".to_vec(), vec![b'['; 1_000]].concat();
    let no_objects: Vec<Vec<u8>> = NO_OBJECTS.into_iter().map(<[u8]>::to_vec).chain([deep]).collect();
    let (mut reading, mut strange_bodies) = (0, 0);
    let own = client.own().await;
    for (method, route) in
        own.listed().into_iter().filter(|(method, _)| ["POST", "PUT", "PATCH"].contains(&&**method))
    {
        let mut bodies = no_objects.clone();
        bodies.extend(strange(&nothing.body(&route), &own.members(&method, &route)));
        strange_bodies += bodies.len() - no_objects.len();
        let path = nothing.path(&route).unwrap_or(route);
        let calls = bodies.iter().map(|body| call(&client, &method, &path, body.clone()));
        let answers: Vec<(u16, String)> = stream::iter(calls).buffered(AT_ONCE).collect().await;
        for ((status, answer), body) in answers.iter().zip(&bodies) {
            let excerpt = String::from_utf8_lossy(&body[..body.len().min(200)]);
            assert!(*status < 500, "{method} {path} {excerpt}: {status} {answer}");
        }
        // If a route reads a body, it must be an object.
        let refused = answers[..=NO_OBJECTS.len()].iter().filter(|(status, _)| *status == 400).count();
        assert!(
            [0, NO_OBJECTS.len() + 1].contains(&refused) || path == ANY_JSON,
            "{method} {path}: {:?}",
            &answers[..=NO_OBJECTS.len()]
        );
        reading += usize::from(refused > 0);
    }
    assert!(reading > 12, "only {reading} routes read a body");
    assert!(strange_bodies > 100, "only {strange_bodies} had an invalid member");
    let unknown = json!({"title": "t", "nonsense": {"deep": [1]}});
    assert_eq!(client.post("/session", unknown).await["title"], "t", "unknown members are ignored");
}
