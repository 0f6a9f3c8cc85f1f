//! A transit engine of Vault or OpenBao in memory, on a loopback port. It keeps what it encrypts and gives out a number, and misbehaves on command.

use crate::{ground::http_server, tls::TlsListener};
use axum::{
    Router,
    body::to_bytes,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The name of the key that it has.
pub const KEY: &str = "flotilla";
/// The name of another key that it has.
pub const NEXT_KEY: &str = "next";
const REQUEST_BYTES: usize = 64 * 1024;

/// An engine that runs as long as this value lives.
#[derive(Debug)]
pub struct TransitServer {
    pub url: String,
    /// The certificate that its TLS has, as PEM. `None`: it has no TLS.
    pub certificate: Option<String>,
    engine: Engine,
    _stop: oneshot::Sender<()>,
}

/// What the server has of it.
#[derive(Debug, Clone, Default)]
struct Engine(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    token: String,
    /// Part of every ciphertext, so that no other engine opens it.
    identity: String,
    /// So many ciphertexts, counted from the first one, are too old to be decrypted.
    too_old: usize,
    fault: Option<(StatusCode, String)>,
    /// Plaintexts, each with its context.
    sealed: Vec<(String, String)>,
    operations: Vec<String>,
}

#[derive(Deserialize)]
struct Operands {
    #[serde(default)]
    plaintext: String,
    #[serde(default)]
    ciphertext: String,
    associated_data: String,
}

impl TransitServer {
    /// Starts an engine that takes this token.
    pub async fn start(token: &str) -> Self {
        let (listener, host) = http_server::listen().await;
        let (server, router, stopped) = Self::new(format!("http://{host}"), None, token);
        http_server::spawn(listener, router, stopped);
        server
    }

    /// Starts such an engine with TLS.
    pub async fn start_with_tls(token: &str) -> Self {
        let (listener, host) = http_server::listen().await;
        let (listener, certificate) = TlsListener::new(listener, &["127.0.0.1"]);
        let (server, router, stopped) = Self::new(format!("https://{host}"), Some(certificate), token);
        http_server::spawn(listener, router, stopped);
        server
    }

    fn new(url: String, certificate: Option<String>, token: &str) -> (Self, Router, oneshot::Receiver<()>) {
        let engine = Engine::default();
        let (stop, stopped) = oneshot::channel();
        url.clone_into(&mut engine.contents().identity);
        let router = Router::new().fallback(answer).with_state(engine.clone());
        let server = Self { url, certificate, engine, _stop: stop };
        server.set_token(token);
        (server, router, stopped)
    }

    /// Takes this token from now on, and no other.
    pub fn set_token(&self, token: &str) {
        token.clone_into(&mut self.engine.contents().token);
    }

    /// Answers with this status and text from now on.
    pub fn fail(&self, status: u16, text: &str) {
        let status = StatusCode::from_u16(status).expect("a status");
        self.engine.contents().fault = Some((status, text.to_owned()));
    }

    pub fn heal(&self) {
        self.engine.contents().fault = None;
    }

    /// Does not decrypt its first `count` ciphertexts from now on, as if a newer version of the key were the oldest that may.
    pub fn refuse_first(&self, count: usize) {
        self.engine.contents().too_old = count;
    }

    /// The operations so far, `encrypt` or `decrypt`, also those that it refused.
    pub fn operations(&self) -> Vec<String> {
        self.engine.contents().operations.clone()
    }

    /// The keys that brokers asked it to encrypt, in base64.
    pub fn plaintexts(&self) -> Vec<String> {
        self.engine.contents().sealed.iter().map(|(plaintext, _)| plaintext.clone()).collect()
    }
}

impl Engine {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(State(engine): State<Engine>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, REQUEST_BYTES).await.unwrap_or_default();
    let mut contents = engine.contents();
    let Some((operation, KEY | NEXT_KEY)) =
        parts.uri.path().strip_prefix("/v1/transit/").and_then(|path| path.split_once('/'))
    else {
        return refusal(StatusCode::NOT_FOUND, "no handler for route");
    };
    contents.operations.push(operation.to_owned());
    if let Some((status, text)) = &contents.fault {
        return refusal(*status, text);
    }
    let token = parts.headers.get("x-vault-token").and_then(|token| token.to_str().ok());
    if token != Some(contents.token.as_str()) {
        return refusal(StatusCode::FORBIDDEN, "permission denied");
    }
    let Ok(operands) = serde_json::from_slice::<Operands>(&body) else {
        return refusal(StatusCode::BAD_REQUEST, "failed to parse JSON input");
    };
    let data = match operation {
        "encrypt" => {
            contents.sealed.push((operands.plaintext, operands.associated_data));
            json!({ "ciphertext": format!("vault:v1:{}#{}", contents.identity, contents.sealed.len()) })
        }
        "decrypt" => {
            let text = operands.ciphertext.strip_prefix("vault:v1:").and_then(|text| text.split_once('#'));
            let number = text.filter(|(identity, _)| *identity == contents.identity);
            let number = number.and_then(|(_, number)| number.parse::<usize>().ok()?.checked_sub(1));
            if number.is_some_and(|number| number < contents.too_old) {
                let text = "ciphertext or signature version is disallowed by policy (too old)";
                return refusal(StatusCode::BAD_REQUEST, text);
            }
            let found = number.and_then(|number| contents.sealed.get(number));
            match found.filter(|(_, context)| *context == operands.associated_data) {
                Some((plaintext, _)) => json!({ "plaintext": plaintext }),
                None => {
                    return refusal(StatusCode::BAD_REQUEST, "cipher: message authentication failed");
                }
            }
        }
        _ => return refusal(StatusCode::NOT_FOUND, "no handler for route"),
    };
    axum::Json(json!({ "data": data })).into_response()
}

fn refusal(status: StatusCode, text: &str) -> Response {
    (status, axum::Json(json!({ "errors": [text] }))).into_response()
}
