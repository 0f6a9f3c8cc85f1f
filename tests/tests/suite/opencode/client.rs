//! A client of OpenCode's HTTP API. It checks each answer against OpenCode's description and against ours.

use super::contract::{self, Contract};
use e2e::Stack;
use reqwest::{Method, header};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::OnceCell;

/// Time limit for an answer, which may include a turn.
const ANSWER: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) headers: header::HeaderMap,
    /// `Null` without a body.
    pub(super) body: Value,
}

/// A client with a key, in a directory.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) http: reqwest::Client,
    pub(super) url: String,
    pub(super) key: String,
    pub(super) directory: String,
    /// Method and path of each call.
    pub(super) called: Arc<Mutex<BTreeSet<(String, String)>>>,
    pub(super) own: Arc<OnceCell<Contract>>,
}

impl Client {
    /// Creates a client of the tenant of a stack, in a directory.
    pub(super) fn new(stack: &Stack, directory: &str) -> Self {
        Self {
            http: reqwest::Client::builder().timeout(ANSWER).build().unwrap(),
            url: stack.gateway_url().to_owned(),
            key: stack.api.key.clone(),
            directory: directory.to_owned(),
            called: Arc::default(),
            own: Arc::default(),
        }
    }

    /// Returns the gateway's description of its API.
    pub(super) async fn own(&self) -> &Contract {
        let read = async || {
            let answer = self.request(Method::GET, "/doc").send().await.unwrap();
            Contract::of(answer.json().await.unwrap())
        };
        self.own.get_or_init(read).await
    }

    /// Sends a request as OpenCode's clients do.
    pub(super) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.url))
            .basic_auth("anybody", Some(&self.key))
            .header("x-opencode-directory", self.directory.replace('/', "%2F"))
    }

    /// Sends text as the body. An empty text means no body.
    pub(super) async fn send(&self, method: Method, path: &str, text: &str) -> HttpAnswer {
        let request = self.request(method.clone(), path).body(text.to_owned());
        let response = request.header(header::CONTENT_TYPE, "application/json").send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let kind = headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
        let read =
            || serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
        let body = if bytes.is_empty() { Value::Null } else { read() };
        let path = path.split('?').next().unwrap();
        for contract in contract::find().into_iter().chain([self.own().await]) {
            contract.check((method.as_str(), path), status, (kind, &body));
        }
        self.called.lock().unwrap().insert((method.to_string(), path.to_owned()));
        HttpAnswer { status, headers, body }
    }

    /// Reads a resource that must exist.
    pub(super) async fn get(&self, path: &str) -> Value {
        self.expect(200, Method::GET, path, Value::Null).await
    }

    /// Sends JSON that must be accepted.
    pub(super) async fn post(&self, path: &str, body: Value) -> Value {
        self.expect(200, Method::POST, path, body).await
    }

    /// Calls, and returns the body of an answer with this status.
    pub(super) async fn expect(&self, status: u16, method: Method, path: &str, body: Value) -> Value {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.send(method.clone(), path, &text).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.body);
        answer.body
    }

    /// Creates a session and returns its id.
    pub(super) async fn session(&self, new: Value) -> String {
        self.post("/session", new).await["id"].as_str().unwrap().to_owned()
    }

    /// Prompts a session, waits for the end of its turn and returns the answer.
    pub(super) async fn prompt(&self, session: &str, text: &str) -> Value {
        self.post(&format!("/session/{session}/message"), text_prompt(text)).await
    }

    /// Prompts a session without waiting.
    pub(super) async fn prompt_async(&self, session: &str, text: &str) {
        self.expect(204, Method::POST, &format!("/session/{session}/prompt_async"), text_prompt(text)).await;
    }
}

/// Returns the body of a text prompt.
pub(super) fn text_prompt(text: &str) -> Value {
    json!({"parts": [{"type": "text", "text": text}]})
}
