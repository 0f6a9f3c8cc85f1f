//! A subscriber of an event stream.

use super::{client::Client, contract};
use reqwest::{Method, Response, header};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

/// Time limit for an event.
const WAIT: Duration = Duration::from_secs(150);

/// A subscriber of `/event`, of `/global/event`, which wraps its events, or of `/api/event`, where they have other members.
pub(super) struct Events {
    response: Response,
    unread: String,
    path: String,
    pub(super) seen: Vec<Value>,
    /// The cursor of the newest frame.
    pub(super) cursor: String,
}

impl Events {
    /// Subscribes, from a cursor unless it is empty.
    pub(super) async fn of(client: &Client, path: &str, cursor: &str) -> Self {
        let request = client.request(Method::GET, path).timeout(Duration::from_secs(600));
        let request = if cursor.is_empty() { request } else { request.header("last-event-id", cursor) };
        let response = request.send().await.unwrap();
        client.called.lock().unwrap().insert(("GET".to_owned(), path.to_owned()));
        let header_text =
            |name: &str| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        assert_eq!(
            (response.status().as_u16(), header_text(header::CONTENT_TYPE.as_str())),
            (200, "text/event-stream".to_owned())
        );
        assert_eq!(header_text("cache-control"), "no-cache, no-transform");
        assert_eq!(
            (header_text("x-accel-buffering"), header_text("x-content-type-options")),
            ("no".into(), "nosniff".into())
        );
        let (unread, path) = (String::new(), path.to_owned());
        let mut events = Self { response, unread, path, seen: vec![], cursor: String::new() };
        assert_eq!(events.next().await["type"], "server.connected", "the first frame");
        events
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Value {
        let frame = loop {
            if let Some((frame, rest)) = self.unread.split_once("\n\n") {
                let frame = frame.to_owned();
                self.unread = rest.to_owned();
                // A comment is a heartbeat of the newer API.
                if !frame.starts_with(':') {
                    break frame;
                }
                continue;
            }
            let chunk = tokio::time::timeout(WAIT, self.response.chunk()).await.expect("an event in time");
            let chunk = chunk.expect("a stream").expect("no end");
            self.unread.push_str(std::str::from_utf8(&chunk).expect("whole characters"));
        };
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
        assert!(field("event:").is_none(), "clients ignore event names: {frame}");
        self.cursor = field("id:").expect("a place to resume").to_owned();
        let data: Value = serde_json::from_str(field("data:").unwrap()).unwrap();
        let event = match self.path.as_str() {
            "/global/event" => unwrapped(data),
            "/api/event" => older(data),
            _ => data,
        };
        if let Some(contract) = contract::find() {
            contract.check_event(&event);
        }
        self.seen.push(event.clone());
        event
    }

    /// Waits for an event for which `matches` holds.
    pub(super) async fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        let search = async {
            loop {
                let event = self.next().await;
                if matches(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(WAIT, search).await.expect("the event in time")
    }

    /// Waits for an event of a session.
    pub(super) async fn until_session(&mut self, kind: &str, session: &str) -> Value {
        self.until(|event| event["type"] == kind && event["properties"]["sessionID"] == session).await
    }

    /// Waits until a session is known to be idle: its turn ended, or the state of a new stream says so.
    pub(super) async fn until_idle(&mut self, session: &str) {
        self.until(|event| {
            let properties = &event["properties"];
            event["type"] == "session.status"
                && properties["sessionID"] == session
                && properties["status"]["type"] == "idle"
        })
        .await;
    }

    /// Returns the kinds of the events.
    pub(super) fn kinds(&self) -> BTreeSet<&str> {
        self.seen.iter().map(|event| event["type"].as_str().unwrap()).collect()
    }

    /// Returns the types of the parts.
    pub(super) fn parts(&self) -> BTreeSet<&str> {
        self.seen.iter().filter_map(|event| event["properties"]["part"]["type"].as_str()).collect()
    }

    /// Returns the text of a part: its last full text, and the deltas since then.
    pub(super) fn text(&self, part: &str) -> String {
        self.seen.iter().fold(String::new(), |text, event| {
            let properties = &event["properties"];
            if properties["part"]["id"] == part {
                properties["part"]["text"].as_str().unwrap_or_default().to_owned()
            } else if properties["partID"] == part && event["type"] == "message.part.delta" {
                text + properties["delta"].as_str().unwrap()
            } else {
                text
            }
        })
    }
}

/// Converts a frame of `/api/event`. An event that belongs to a directory names it.
fn older(mut frame: Value) -> Value {
    if let Some(contract) = contract::find() {
        contract.check_native_event(&frame);
    }
    let properties = frame["data"].take();
    json!({"id": frame["id"], "type": frame["type"], "properties": properties})
}

/// Unwraps a frame of `/global/event`. A frame that belongs to a project names the project.
fn unwrapped(mut frame: Value) -> Value {
    let event = frame["payload"].take();
    let kind = event["type"].as_str().unwrap();
    let (has_directory, has_project) = match kind {
        "server.connected" | "server.heartbeat" => (false, false),
        "global.disposed" | "installation.updated" => (true, false),
        _ => (true, true),
    };
    assert_eq!(
        (frame["directory"].is_string(), frame["project"].is_string()),
        (has_directory, has_project),
        "{event}"
    );
    let is_global = ["global.disposed", "installation.updated", "project.updated"].contains(&kind);
    assert_eq!(frame["directory"] == "global", is_global, "{event}");
    event
}
