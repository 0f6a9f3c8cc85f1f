//! Sends model requests and returns the answers as they stream. Connections, timeouts and HTTP errors are handled here;
//! `decode` interprets the bytes.

pub mod stream;
mod transport;

use crate::decode::Decoder;
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::protocols::classify::{self, not_a_stream};
use crate::protocols::{anthropic, gemini, openai_chat, openai_responses};
use crate::provider::{Protocol, Provider};
use crate::request::Request;
use crate::retry_after;
use domain::limits::MODEL_ERROR_BODY_BYTES_MAX;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use std::time::Duration;
use stream::EventStream;
use transport::transport;

/// Longest wait for the connection to a provider; milliseconds.
const MODEL_CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Response headers that carry the provider's id of the call, the most common first.
const REQUEST_ID_HEADERS: [&str; 4] = ["request-id", "x-request-id", "x-amzn-requestid", "cf-ray"];

/// A pool of connections to all providers. Cheap to clone; clones share the pool.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// For servers on this machine: it bypasses the proxy that the environment names.
    direct: reqwest::Client,
}

impl Client {
    /// Creates a client that follows no redirects, because a redirect would send the key to another host.
    ///
    /// # Errors
    /// `Transport` if TLS cannot be set up on this machine.
    pub fn new() -> Result<Self, Error> {
        let builder = || {
            reqwest::Client::builder()
                .connect_timeout(Duration::from_millis(MODEL_CONNECT_TIMEOUT_MS))
                .redirect(reqwest::redirect::Policy::none())
                .tcp_nodelay(true)
                // Proxies hold back compressed events until a block is full.
                .gzip(false)
                .user_agent(concat!("flotilla/", env!("CARGO_PKG_VERSION")))
        };
        let failed = |error| transport("set up the HTTP client", error);
        let http = builder().build().map_err(failed)?;
        let direct = builder().no_proxy().build().map_err(failed)?;
        Ok(Self { http, direct })
    }

    /// Sends `request` to `model` at `provider`, with `headers` added, and returns the answer's events as they arrive.
    ///
    /// Returns once the head of the answer has arrived. Dropping this future or the stream closes the connection;
    /// the provider may bill what it has generated until then.
    ///
    /// # Errors
    /// Every failure before the answer starts: a refusal by the provider (by status), `Transport`, `Timeout` (after
    /// `header_timeout_ms`), `Protocol` (the provider sent something other than an event stream).
    pub async fn stream(
        &self,
        provider: &Provider,
        model: &Model,
        request: Request,
        headers: Vec<(String, String)>,
    ) -> Result<EventStream, Error> {
        let builder = if request.is_small() {
            self.question(provider, model, &request, headers)
        } else {
            let (client, to, of) = (self.clone(), provider.clone(), model.clone());
            // Serializing a long conversation takes milliseconds and would block the other calls on this thread.
            tokio::task::spawn_blocking(move || client.question(&to, &of, &request, headers))
                .await
                .map_err(|_| Error::new(ErrorKind::Transport, "the request could not be serialized"))?
        };
        let wait = Duration::from_millis(provider.header_timeout_ms);
        let answer = tokio::time::timeout(wait, builder.send()).await;
        let named = |error: Error| error.of(&provider.id);
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(named(transport("the connection to the provider failed", error))),
            Err(_) => {
                let text = format!("no answer within {} ms", provider.header_timeout_ms);
                return Err(named(Error::new(ErrorKind::Timeout, text)));
            }
        };
        let request_id = request_id(response.headers());
        if !response.status().is_success() {
            return Err(named(refusal(response, wait).await));
        }
        if is_other_content(response.headers()) {
            let body = beginning(response, wait).await;
            let mut error = mistaken(&body);
            error.request_id = request_id;
            return Err(named(error));
        }
        let decoder = Decoder::new(provider.protocol);
        Ok(EventStream::new(response, decoder, provider, request_id))
    }

    fn question(
        &self,
        provider: &Provider,
        model: &Model,
        request: &Request,
        headers: Vec<(String, String)>,
    ) -> reqwest::RequestBuilder {
        let http = if provider.is_loopback() { &self.direct } else { &self.http };
        let key = provider.api_key.as_ref();
        let mut builder = match provider.protocol {
            Protocol::Anthropic => {
                let mut builder = http.post(anthropic::request::url(provider));
                for (name, value) in anthropic::request::headers(model, request) {
                    builder = builder.header(name, value);
                }
                if let Some(key) = key {
                    builder = builder.header("x-api-key", key.expose());
                }
                builder.json(&anthropic::request::body(model, request))
            }
            Protocol::OpenAiChat => {
                let mut builder = http.post(openai_chat::request::url(provider));
                if let Some(key) = key {
                    builder = builder.bearer_auth(key.expose());
                }
                builder.json(&openai_chat::request::body(provider, model, request))
            }
            Protocol::OpenAiResponses => {
                let mut builder = http.post(openai_responses::request::url(provider));
                if let Some(key) = key {
                    builder = builder.bearer_auth(key.expose());
                }
                builder.json(&openai_responses::request::body(provider, model, request))
            }
            Protocol::Gemini => {
                let mut builder = http.post(gemini::request::url(provider, &request.model));
                // The key never goes into the URL, because URLs end up in logs.
                if let Some(key) = key {
                    builder = builder.header("x-goog-api-key", key.expose());
                }
                builder.json(&gemini::request::body(model, request))
            }
        };
        builder = builder.header("accept", "text/event-stream");
        // Load-balancing gateways use this header to pick the server with the warm cache.
        if !request.cache_key.is_empty() {
            builder = builder.header("x-session-affinity", &request.cache_key);
        }
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        builder
    }
}

/// Converts an answer with an error status to an error.
async fn refusal(response: reqwest::Response, wait: Duration) -> Error {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let should_retry = header("x-should-retry").and_then(|value| value.parse::<bool>().ok());
    let retry_after_ms = retry_after::parse(header("retry-after-ms"), header("retry-after"), header("date"));
    let body = beginning(response, wait).await;
    let mut error =
        classify::from_answer(status, &String::from_utf8_lossy(&body)).with_retryable(should_retry);
    // Gemini sends the delay in the body.
    error.retry_after_ms = retry_after_ms.or(error.retry_after_ms);
    error.request_id = request_id(&headers);
    error
}

/// The error for a successful answer that is not an event stream: some proxies send errors with status 200.
fn mistaken(body: &[u8]) -> Error {
    let value = serde_json::from_slice::<serde_json::Value>(body).ok();
    match value.filter(|value| value.get("error").is_some_and(|error| !error.is_null())) {
        Some(value) => classify::from_event(&value),
        None => not_a_stream(body).with_body(&String::from_utf8_lossy(body)),
    }
}

/// The first bytes of an answer, as far as they arrive within `wait` and without an error.
async fn beginning(mut response: reqwest::Response, wait: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = MODEL_ERROR_BODY_BYTES_MAX - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() >= MODEL_ERROR_BODY_BYTES_MAX {
                break;
            }
        }
    };
    // A partial body is fine: the status alone is enough for an error.
    let _ = tokio::time::timeout(wait, read).await;
    body
}

fn is_other_content(headers: &HeaderMap) -> bool {
    let content = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["text/html", "application/json", "application/xhtml"].iter().any(|other| content.starts_with(other))
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    REQUEST_ID_HEADERS.into_iter().find_map(header)
}

#[cfg(test)]
mod tests;
