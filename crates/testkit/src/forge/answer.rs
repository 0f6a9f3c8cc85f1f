//! The answers of the double: what git, the state and the faults make of a request.

use super::{
    git::{self, GitCall},
    rules::{Credential, ForgeFault, ForgeRequest},
    shared::{Shared, Trap},
};
use axum::{
    Json,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::text;
use futures::stream;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::{future, io, time::Duration};

const REQUEST_BYTES: usize = 64 * 1024 * 1024;
const MINUTE: Duration = Duration::from_secs(60);
/// Headers that belong to one connection, or that the double adds itself.
const OWN_HEADERS: [&str; 7] =
    ["host", "connection", "keep-alive", "content-length", "transfer-encoding", "if-none-match", "date"];
const SECONDARY_LIMIT: &str =
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";

pub(super) async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut arrived = ForgeRequest {
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        credential: credential(&parts.headers),
        status: None,
    };
    let note = |request: ForgeRequest| shared.requests.send_modify(|requests| requests.push(request));
    let response = match take_fault(&shared, &arrived) {
        Some(ForgeFault::Hang) => {
            note(arrived);
            return future::pending().await;
        }
        Some(ForgeFault::Close) => {
            note(arrived);
            let end = stream::iter([Err::<Bytes, _>(io::Error::other("the double breaks off"))]);
            return ([(header::CONTENT_LENGTH, "1")], Body::from_stream(end)).into_response();
        }
        Some(ForgeFault::Answer { status, headers, body }) => {
            let status = StatusCode::from_u16(status).expect("a status");
            let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
            let headers = headers.into_iter().map(|(name, value)| {
                let name = header::HeaderName::from_static(name);
                (name, HeaderValue::from_str(&value).expect("a header"))
            });
            response.headers_mut().extend(headers);
            response
        }
        None => work(&shared, parts, body).await,
    };
    arrived.status = Some(response.status().as_u16());
    note(arrived);
    response
}

/// Reads off with what a request proves who it is. Whether it does, the state knows.
fn credential(headers: &HeaderMap) -> Credential {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((scheme, value)) = value.and_then(|value| value.split_once(' ')) else {
        return Credential::Nobody;
    };
    let login = STANDARD.decode(value).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
    let login = login.and_then(|login| String::from_utf8(login).ok());
    let password = login.as_deref().and_then(|login| login.rsplit(':').next());
    match password.unwrap_or(value) {
        token if token.starts_with("eyJ") => Credential::App,
        token if token.starts_with("ghs_") => Credential::Installation,
        _ => Credential::Person,
    }
}

/// The fault for a request. It is counted.
fn take_fault(shared: &Shared, request: &ForgeRequest) -> Option<ForgeFault> {
    let mut state = shared.state();
    let is_meant =
        |trap: &Trap| trap.method == request.method && request.target.starts_with(trap.prefix.as_str());
    let trap = state.traps.iter_mut().find(|trap| trap.times > 0 && is_meant(trap))?;
    trap.times -= 1;
    Some(trap.fault.clone())
}

async fn work(shared: &Shared, parts: Parts, body: Body) -> Response {
    let path = parts.uri.path();
    if path.starts_with("/_") {
        return fail(StatusCode::NOT_FOUND, "Not Found");
    }
    if let Some(call) = GitCall::parse(&parts) {
        return git::answer(shared, call, &parts, body).await;
    }
    if path.starts_with("/api/") {
        if !parts.headers.contains_key(header::USER_AGENT) {
            return fail(StatusCode::FORBIDDEN, "Request forbidden by administrative rules.");
        }
        if let Some(refusal) = limit_writes(shared, &parts.method) {
            return refusal;
        }
    }
    forward(shared, parts, body).await
}

fn fail(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"message": message, "documentation_url": "https://docs.github.com/rest"})))
        .into_response()
}

/// The refusal of one request too many. The others are counted.
fn limit_writes(shared: &Shared, method: &Method) -> Option<Response> {
    let mut state = shared.state();
    let window = state.window.as_mut().filter(|_| !method.is_safe())?;
    if window.started_at.elapsed() >= MINUTE {
        (window.started_at, window.writes) = (tokio::time::Instant::now(), 0);
    }
    if window.writes < window.limit.writes {
        window.writes += 1;
        return None;
    }
    let mut refusal = fail(StatusCode::from_u16(window.limit.status).expect("a status"), SECONDARY_LIMIT);
    refusal.headers_mut().insert(header::RETRY_AFTER, window.limit.retry_after_seconds.into());
    Some(refusal)
}

/// Lets the state answer. Its URLs get the host and port for which the client asked.
async fn forward(shared: &Shared, parts: Parts, body: Body) -> Response {
    let body = to_bytes(body, REQUEST_BYTES).await.expect("a body");
    let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let answer =
        shared.emulator.forward(parts.method.clone(), &target, without_own(&parts.headers), body).await;
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = host.map_or_else(|| shared.url.clone(), |host| format!("https://{host}"));
    let localize = |text: &str| text.replace(&shared.url, &origin);
    let (status, mut headers) = (answer.status(), without_own(answer.headers()));
    if let Some(link) = headers.get_mut(header::LINK) {
        let text = localize(link.to_str().expect("a header in ASCII"));
        *link = HeaderValue::from_str(&text).expect("a header");
    }
    let mut body = answer.bytes().await.expect("an answer of the state");
    if let Ok(text) = str::from_utf8(&body) {
        body = Bytes::from(localize(text));
    }
    let id = uuid::Uuid::now_v7().simple().to_string();
    headers.insert("x-github-request-id", HeaderValue::from_str(&id).expect("a header"));
    if parts.method == Method::GET && status == StatusCode::OK {
        let tag = format!("W/\"{}\"", text::hex(&Sha256::digest(&body)));
        let is_known = parts.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag.as_str());
        headers.insert(header::ETAG, HeaderValue::from_str(&tag).expect("a header"));
        if is_known {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
    }
    (status, headers, Body::from(body)).into_response()
}

fn without_own(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in OWN_HEADERS {
        headers.remove(name);
    }
    headers
}
