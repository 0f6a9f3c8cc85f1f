//! A client of OpenCode's API, as both servers have it.

use super::server::Server;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest wait for an event of a session.
const EVENT: Duration = Duration::from_secs(60);

/// A client in one directory.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    key: Option<String>,
    directory: String,
}

/// The events of the directory.
pub(super) struct Events {
    response: reqwest::Response,
    received: Vec<u8>,
    /// Bytes of `received` that were read as events.
    read: usize,
}

pub(super) struct Event(Value);

impl Client {
    pub(super) fn new(server: &Server) -> Self {
        let (url, key, directory) = (server.url.clone(), server.key.clone(), server.directory.clone());
        Self { http: reqwest::Client::new(), url, key, directory }
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = request.header("x-opencode-directory", self.directory.replace('/', "%2F"));
        match &self.key {
            Some(key) => request.basic_auth("opencode", Some(key)),
            None => request,
        }
    }

    async fn post(&self, path: &str, body: &Value) -> reqwest::Response {
        let answer = self.request(reqwest::Method::POST, path).json(body).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap_or_default());
        answer
    }

    /// Creates a session. No server asks the model for a title of it.
    pub(super) async fn session(&self) -> String {
        let session: Value =
            self.post("/session", &json!({"title": "bench"})).await.json().await.expect("a session");
        session["id"].as_str().expect("its id").to_owned()
    }

    /// Prompts a session without waiting for the answer.
    pub(super) async fn prompt(&self, session: &str) {
        let body = json!({"parts": [{"type": "text", "text": "bench"}]});
        self.post(&format!("/session/{session}/prompt_async"), &body).await;
    }

    /// Subscribes to the events.
    pub(super) async fn events(&self) -> Events {
        let response = self.request(reqwest::Method::GET, "/event").send().await.expect("a stream");
        assert!(response.status().is_success(), "{}", response.status());
        let mut events = Events { response, received: vec![], read: 0 };
        events.receive().await;
        events
    }
}

impl Events {
    /// Waits for the next event of a session.
    pub(super) async fn next(&mut self) -> Event {
        let mut last = Value::Null;
        let event = async {
            loop {
                let event = self.receive().await;
                if event.0["properties"]["sessionID"].is_string() {
                    return event;
                }
                last = event.0;
            }
        };
        let event = tokio::time::timeout(EVENT, event).await;
        event.unwrap_or_else(|_| panic!("no event of a session came; the last is {last}"))
    }

    async fn receive(&mut self) -> Event {
        loop {
            let unread = &self.received[self.read..];
            if let Some(end) = unread.windows(2).position(|window| window == b"\n\n") {
                let event = String::from_utf8_lossy(&unread[..end]);
                let data = event.lines().find_map(|line| line.strip_prefix("data:"));
                let event = data.and_then(|data| serde_json::from_str(data).ok());
                self.read += end + 2;
                match event {
                    Some(event) => return Event(event),
                    None => continue,
                }
            }
            self.received.drain(..self.read);
            self.read = 0;
            let piece = self.response.chunk().await.expect("a stream");
            self.received.extend_from_slice(&piece.expect("a server that goes on"));
        }
    }

    /// Waits until a session is idle, and gives each piece of text before to `note`. Returns when the event came.
    pub(super) async fn until_idle(&mut self, session: &str, mut note: impl FnMut(&str)) -> Instant {
        loop {
            let event = self.next().await;
            if event.is_idle() && event.is_of(session) {
                return Instant::now();
            }
            note(event.text());
        }
    }
}

impl Event {
    /// Whether a session became idle.
    pub(super) fn is_idle(&self) -> bool {
        self.0["type"] == "session.idle"
    }

    /// Whether it is about this session.
    pub(super) fn is_of(&self, session: &str) -> bool {
        self.0["properties"]["sessionID"] == session
    }

    /// The piece of text that it adds to a part; empty: it adds none.
    pub(super) fn text(&self) -> &str {
        self.0["properties"]["delta"].as_str().unwrap_or_default()
    }
}
