//! The answers of the registry.

use super::{
    content::Document,
    rules::{Fault, Login, RegistryRequest},
    state::{self, Hold, Shared},
};
use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, stream};
use std::{io, sync::PoisonError};
use tokio::sync::watch;

/// The token of the token service.
const TOKEN: &str = "token-of-a-test";
/// Bytes of a form of the token service.
const FORM_BYTES: usize = 64 * 1024;

pub(super) async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let authorization = authorization(&parts.headers).map(ToOwned::to_owned);
    shared.requests.send_modify(|requests| {
        requests.push(RegistryRequest { path: path.clone(), authorization: authorization.clone() });
    });
    let name = path.rsplit('/').next().unwrap_or_default();
    let fault = shared.fault(name);
    if let Some(Fault::Status { code, retry_after, .. }) = fault {
        let status = StatusCode::from_u16(code).expect("a status");
        let retry = retry_after.map(|seconds| (header::RETRY_AFTER, seconds.to_string()));
        return (
            status,
            HeaderMap::from_iter(retry.map(|(name, value)| (name, value.parse().expect("a header")))),
        )
            .into_response();
    }
    if path == "/token" {
        let form = to_bytes(body, FORM_BYTES).await.unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        return shared.token(authorization.as_deref(), &query, &String::from_utf8_lossy(&form));
    }
    // The host of blobs to which registries redirect wants no login.
    if path.starts_with("/v2/") && !shared.is_open(authorization.as_deref()) {
        return shared.challenge();
    }
    let content = if path.contains("/manifests/") {
        shared.manifest(&path)
    } else {
        shared.blob(name).map(|bytes| Document { media_type: "application/octet-stream".to_owned(), bytes })
    };
    let Some(content) = content else { return StatusCode::NOT_FOUND.into_response() };
    send(content, fault, shared.held.subscribe())
}

/// Sends a content, or what the fault makes of it.
fn send(content: Document, fault: Option<Fault>, held: watch::Receiver<Hold>) -> Response {
    let Document { media_type, mut bytes } = content;
    let length = bytes.len();
    let pieces = |pieces: Vec<Vec<u8>>| stream::iter(pieces.into_iter().map(Ok::<_, io::Error>));
    let (body, length) = match fault {
        Some(Fault::Redirect(url)) => {
            return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, url)]).into_response();
        }
        Some(Fault::Replace(other)) => (Body::from(other), None),
        Some(Fault::ReplaceUnannounced(other)) => (Body::from_stream(pieces(vec![other])), None),
        Some(Fault::Truncate(count)) => {
            bytes.truncate(count);
            let end = stream::once(async {
                // The server sends what it has while the body is pending.
                tokio::task::yield_now().await;
                Err(io::Error::other("truncated"))
            });
            (Body::from_stream(pieces(vec![bytes]).chain(end)), Some(length))
        }
        Some(Fault::Hold(count)) => {
            let rest = bytes.split_off(count);
            let rest = stream::once(async move {
                let mut held = held;
                held.wait_for(|hold| *hold == Hold::Off).await.map_err(io::Error::other)?;
                Ok(rest)
            });
            (Body::from_stream(pieces(vec![bytes]).chain(rest)), Some(length))
        }
        Some(Fault::Status { .. }) | None => (Body::from(bytes), None),
    };
    let mut response = ([(header::CONTENT_TYPE, media_type)], body).into_response();
    response.headers_mut().extend(length.map(|length| (header::CONTENT_LENGTH, length.into())));
    response
}

fn authorization(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())
}

fn basic(login: &str) -> String {
    format!("Basic {}", STANDARD.encode(login))
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, state::State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault at a name. One that ends after some answers is counted.
    fn fault(&self, name: &str) -> Option<Fault> {
        let mut state = self.state();
        let fault = state.faults.get_mut(name)?;
        let found = fault.clone();
        if let Fault::Status { times, .. } = fault {
            match times.checked_sub(1) {
                Some(left) => *times = left,
                None => return None,
            }
        }
        Some(found)
    }

    fn manifest(&self, path: &str) -> Option<Document> {
        let key = path.strip_prefix("/v2/")?.replacen("/manifests/", "/", 1);
        self.state().manifests.get(&key).cloned()
    }

    fn blob(&self, digest: &str) -> Option<Vec<u8>> {
        self.state().blobs.get(digest).cloned()
    }

    fn is_open(&self, authorization: Option<&str>) -> bool {
        let wanted = match &self.state().login {
            Login::Nobody => return true,
            Login::Basic(login) => basic(login),
            Login::AnyToken | Login::Password(_) | Login::Identity(_) => format!("Bearer {TOKEN}"),
            Login::Bearer(token) => format!("Bearer {token}"),
        };
        authorization == Some(&wanted)
    }

    fn challenge(&self) -> Response {
        let value = match &self.state().login {
            Login::Basic(_) => "Basic realm=\"test\"".to_owned(),
            Login::Nobody | Login::AnyToken | Login::Password(_) | Login::Identity(_) | Login::Bearer(_) => {
                format!("Bearer realm=\"{}/token\",service=\"test\"", self.origin)
            }
        };
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, value)]).into_response()
    }

    /// A token for a client that may pull, and asks to pull and no more.
    fn token(&self, authorization: Option<&str>, query: &str, form: &str) -> Response {
        let is_known = match &self.state().login {
            Login::AnyToken => authorization.is_none(),
            Login::Password(login) => authorization == Some(&basic(login)),
            Login::Identity(token) => {
                authorization.is_none()
                    && form.contains("grant_type=refresh_token&")
                    && form.contains(&format!("refresh_token={token}&"))
            }
            Login::Nobody | Login::Basic(_) | Login::Bearer(_) => false,
        };
        let asked = if form.is_empty() { query } else { form };
        let is_a_pull =
            asked.split('&').any(|pair| pair.starts_with("scope=repository%3A") && pair.ends_with("%3Apull"));
        let is_ours = asked.split('&').any(|pair| pair == "service=test");
        if is_known && is_a_pull && is_ours {
            serde_json::json!({"token": TOKEN}).to_string().into_response()
        } else {
            StatusCode::UNAUTHORIZED.into_response()
        }
    }
}
