//! Repositories over git, with the logins of the double.

use super::shared::Shared;
use crate::ground::http_backend;
use axum::{
    body::{Body, to_bytes},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};

/// Bytes of a request, and of the answer to a push.
const PACK_BYTES: usize = 512 * 1024 * 1024;
const RECEIVE: &str = "/git-receive-pack";
/// What follows the path of a repository.
const ENDS: [&str; 3] = ["/info/refs", "/git-upload-pack", RECEIVE];

/// A request of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitCall {
    /// `acme/app`
    repository: String,
    end: &'static str,
    is_push: bool,
}

impl GitCall {
    /// `None`: the request is another one.
    pub(super) fn parse(parts: &Parts) -> Option<Self> {
        let path = parts.uri.path().strip_prefix('/').filter(|path| !path.starts_with("api/"))?;
        let end = ENDS.into_iter().find(|end| path.ends_with(*end))?;
        let repository = path.strip_suffix(end)?;
        let repository = repository.strip_suffix(".git").unwrap_or(repository).to_owned();
        let is_push = end == RECEIVE || parts.uri.query() == Some("service=git-receive-pack");
        Some(Self { repository, end, is_push })
    }
}

pub(super) async fn answer(shared: &Shared, call: GitCall, parts: &Parts, body: Body) -> Response {
    let authorization = parts.headers.get(header::AUTHORIZATION);
    let challenge = || {
        let value = [(header::WWW_AUTHENTICATE, "Basic realm=\"GitHub\"")];
        (StatusCode::UNAUTHORIZED, value, "Invalid username or token.").into_response()
    };
    let access = match shared.emulator.access(&call.repository, authorization).await {
        Ok(access) => access,
        Err(StatusCode::UNAUTHORIZED) => return challenge(),
        Err(refusal) => return (refusal, "Write access to repository not granted.").into_response(),
    };
    if authorization.is_none() && (call.is_push || !access.is_readable) {
        return challenge();
    }
    if !access.is_readable {
        return (StatusCode::NOT_FOUND, "Repository not found.").into_response();
    }
    if call.is_push && !access.is_writable {
        let login = access.login.unwrap_or_default();
        let refusal = format!("Permission to {}.git denied to {login}.", call.repository);
        return (StatusCode::FORBIDDEN, refusal).into_response();
    }
    let body = to_bytes(body, PACK_BYTES).await.expect("a body");
    let path = format!("/{}.git{}", call.repository, call.end);
    let (status, headers, output) = http_backend::run(&shared.root, &path, parts, &body).await;
    if call.end != RECEIVE {
        return (status, headers, output).into_response();
    }
    let output = to_bytes(output, PACK_BYTES).await.expect("an answer of git");
    // Before the client knows that its push is there, the API knows it too.
    shared.emulator.read_push(&call.repository, authorization).await;
    (status, headers, Body::from(output)).into_response()
}
