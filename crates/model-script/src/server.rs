//! The HTTP side: routes, errors, and the answers of each protocol.

use super::conversation;
use super::journal::{self, Open};
use super::play::{self, Attempts, ScriptedAnswer};
use super::script::{FaultKind, Script};
use super::{anthropic, body, gemini, limits::REQUEST_BYTES_MAX, openai, responses};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, OriginalUri, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use bytes::Bytes;
use serde_json::{Value, json};
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// An HTML page as proxies and wrong addresses return it.
const PAGE: &str =
    "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in to continue</body></html>";

struct Server {
    script: Script,
    attempts: Mutex<Attempts>,
    stop: watch::Receiver<bool>,
}

#[derive(Clone, Copy)]
enum Protocol {
    Anthropic,
    OpenAi,
    Responses,
    Gemini,
}

impl Protocol {
    /// The request in the form of the older protocols, which the script reads: `messages`, `system`, `model`, `stream`.
    fn plain(self, request: &Value, path: &str) -> Value {
        match self {
            Self::Anthropic | Self::OpenAi => request.clone(),
            Self::Responses => responses::plain(request),
            Self::Gemini => gemini::plain(request, path),
        }
    }

    /// Why the real provider would refuse the request.
    fn complaint(self, request: &Value) -> Option<String> {
        match self {
            Self::Anthropic | Self::OpenAi => None,
            Self::Responses => responses::complaint(request),
            Self::Gemini => gemini::complaint(request),
        }
    }

    fn frames(self, answer: &ScriptedAnswer) -> Vec<body::Frame> {
        match self {
            Self::Anthropic => anthropic::frames(answer),
            Self::OpenAi => openai::frames(answer),
            Self::Responses => responses::frames(answer),
            Self::Gemini => gemini::frames(answer),
        }
    }

    /// The answer to a request without streaming.
    fn whole(self, answer: &ScriptedAnswer) -> Value {
        match self {
            Self::Anthropic => anthropic::message(answer),
            Self::OpenAi => openai::completion(answer),
            Self::Responses => responses::response(answer),
            Self::Gemini => gemini::response(answer),
        }
    }

    fn error(self, status: u16, message: &str) -> Value {
        match self {
            Self::Anthropic => anthropic::error(status, message),
            Self::OpenAi | Self::Responses => openai::error(status, message),
            Self::Gemini => gemini::error(status, message),
        }
    }
}

/// See [`super::serve`].
pub(super) async fn serve(
    listener: TcpListener,
    script: Script,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (stopping, is_stopping) = watch::channel(false);
    let server = Arc::new(Server { script, attempts: Mutex::default(), stop: is_stopping });
    let router = Router::new()
        .route("/v1/messages", post(messages))
        .route("/v1/chat/completions", post(completions))
        .route("/v1/responses", post(responses_of))
        .route("/v1beta/models/{call}", post(generate))
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(server);
    // Without it, each small frame would wait for the acknowledgement of the one before.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

async fn messages(state: State<Arc<Server>>, uri: OriginalUri, headers: HeaderMap, body: Bytes) -> Response {
    answer(&state, Protocol::Anthropic, uri.path(), &headers, &body).await
}

async fn completions(
    state: State<Arc<Server>>,
    uri: OriginalUri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer(&state, Protocol::OpenAi, uri.path(), &headers, &body).await
}

async fn responses_of(
    state: State<Arc<Server>>,
    uri: OriginalUri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer(&state, Protocol::Responses, uri.path(), &headers, &body).await
}

async fn generate(state: State<Arc<Server>>, uri: OriginalUri, headers: HeaderMap, body: Bytes) -> Response {
    answer(&state, Protocol::Gemini, uri.path(), &headers, &body).await
}

async fn models() -> Response {
    let model =
        json!({"id": "scripted", "object": "model", "type": "model", "created": 0, "owned_by": "flotilla"});
    json_response(StatusCode::OK, &json!({"object": "list", "data": [model]}))
}

async fn answer(
    server: &Server,
    protocol: Protocol,
    path: &str,
    headers: &HeaderMap,
    bytes: &Bytes,
) -> Response {
    let Ok(request) = serde_json::from_slice::<Value>(bytes) else {
        return refusal(protocol, StatusCode::BAD_REQUEST, "the body is not JSON");
    };
    let open = server.script.journal.open();
    let plain = protocol.plain(&request, path);
    let conversation = conversation::read(&plain, session(headers));
    let entry = journal::Request {
        path: path.to_owned(),
        headers: kept_headers(headers),
        body: request,
        received_at: SystemTime::now(),
    };
    let complaint = protocol.complaint(&entry.body);
    server.script.journal.push(entry, bytes.len());
    if let Some(reason) = complaint {
        return refusal(protocol, StatusCode::BAD_REQUEST, &reason);
    }
    let step = match play::step(&server.script, &conversation) {
        Ok(step) => step,
        Err(reason) => return refusal(protocol, StatusCode::BAD_REQUEST, &reason),
    };
    let fault = {
        let mut attempts = server.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        play::fault(&step, &conversation, &mut attempts)
    };
    match fault {
        Some(FaultKind::Status { .. } | FaultKind::Html | FaultKind::Stall { pieces: None }) => {
            headless(server, protocol, fault).await
        }
        Some(FaultKind::Blind) if has_media(bytes) => {
            refusal(protocol, StatusCode::BAD_REQUEST, "Could not process image")
        }
        Some(
            FaultKind::Cut { .. } | FaultKind::Stall { .. } | FaultKind::Garbage { .. } | FaultKind::Blind,
        )
        | None => {
            let answer = play::answer(&step, &conversation, &plain);
            whole(server, protocol, &answer, Delivery { fault, open, is_stream: plain["stream"] == true })
        }
    }
}

/// Faults that replace an answer.
async fn headless(server: &Server, protocol: Protocol, fault: Option<&FaultKind>) -> Response {
    match fault {
        Some(FaultKind::Status { status, retry_after_ms, retry_after }) => {
            let code = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = refusal(protocol, code, "the script says so");
            let milliseconds = retry_after_ms.map(|ms| ms.to_string());
            for (name, value) in [("retry-after-ms", &milliseconds), ("retry-after", retry_after)] {
                if let Some(value) = value.as_ref().and_then(|value| value.parse().ok()) {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        }
        Some(FaultKind::Html) => ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE).into_response(),
        Some(
            FaultKind::Stall { .. } | FaultKind::Cut { .. } | FaultKind::Garbage { .. } | FaultKind::Blind,
        )
        | None => {
            body::stopped(&mut server.stop.clone()).await;
            refusal(protocol, StatusCode::SERVICE_UNAVAILABLE, "the server stops")
        }
    }
}

struct Delivery<'a> {
    fault: Option<&'a FaultKind>,
    open: Open,
    is_stream: bool,
}

fn whole(server: &Server, protocol: Protocol, answer: &ScriptedAnswer, delivery: Delivery<'_>) -> Response {
    let frames = match delivery.is_stream {
        true => protocol.frames(answer),
        false => vec![body::Frame::new(protocol.whole(answer).to_string()).piece()],
    };
    let content_type = if delivery.is_stream { "text/event-stream" } else { "application/json" };
    let body = body::stream(frames, delivery.fault, answer.delay_ms, server.stop.clone(), delivery.open);
    let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-cache")];
    let mut response = (headers, body).into_response();
    if let Ok(id) = format!("req_{}", answer.id).parse() {
        response.headers_mut().insert("request-id", id);
    }
    response
}

/// Whether a request, in any protocol, has the bytes of a picture or a document.
fn has_media(request: &[u8]) -> bool {
    let request = String::from_utf8_lossy(request);
    ["\"type\":\"base64\"", ";base64,", "\"inlineData\""].iter().any(|mark| request.contains(mark))
}

fn refusal(protocol: Protocol, status: StatusCode, message: &str) -> Response {
    json_response(status, &protocol.error(status.as_u16(), message))
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], Body::from(value.to_string())).into_response()
}

fn session(headers: &HeaderMap) -> &str {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    header("x-session-affinity").or_else(|| header("x-session-id")).unwrap_or_default()
}

fn kept_headers(headers: &HeaderMap) -> std::collections::BTreeMap<String, String> {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    journal::HEADERS.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect()
}
