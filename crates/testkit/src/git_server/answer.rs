//! The answers of a server of git.

use super::{
    lfs,
    rules::{GitFault, GitRequest},
    state::{Hold, Shared},
};
use crate::ground::http_backend;
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, stream};
use std::{io, sync::PoisonError};

const REQUEST_BYTES: usize = 512 * 1024 * 1024;

pub(super) async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let text =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
    let arrived = GitRequest {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        host: text("host").unwrap_or_default(),
        authorization: text("authorization"),
        protocol: text("git-protocol"),
    };
    shared.requests.send_modify(|requests| requests.push(arrived.clone()));
    let (login, fault) = {
        let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = state.faults.iter().find(|(path, _)| parts.uri.path().ends_with(path.as_str()));
        (state.login.clone(), fault.map(|(_, fault)| fault.clone()))
    };
    match &fault {
        Some(GitFault::Status(code)) => {
            return (StatusCode::from_u16(*code).expect("a status"), "a page of the server").into_response();
        }
        Some(GitFault::Redirect(url)) => {
            return (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, url.clone())]).into_response();
        }
        Some(GitFault::Page) => return axum::response::Html("<h1>sign in</h1>").into_response(),
        Some(GitFault::FirstVersion) => drop(parts.headers.remove("git-protocol")),
        Some(GitFault::Hold(_) | GitFault::Truncate(_)) | None => {}
    }
    let body = whole(body).await;
    if let Some(answer) = lfs::answer_store(&shared, &parts, &body) {
        return answer;
    }
    let wanted = login.map(|login| format!("Basic {}", STANDARD.encode(login)));
    if wanted.is_some() && arrived.authorization != wanted {
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"git\"")];
        return (StatusCode::UNAUTHORIZED, challenge, "who are you?").into_response();
    }
    if let Some(answer) = lfs::answer(&shared, &parts, &body) {
        let Some(GitFault::Hold(bytes)) = fault else { return answer };
        let (head, body) = answer.into_parts();
        return Response::from_parts(head, hold(&shared, whole(body).await, bytes));
    }
    let (status, headers, body) = http_backend::run(&shared.root, parts.uri.path(), &parts, &body).await;
    let body = match fault {
        Some(GitFault::Hold(bytes)) => hold(&shared, whole(body).await, bytes),
        Some(GitFault::Truncate(bytes)) => truncate(whole(body).await, bytes),
        _ => body,
    };
    (status, headers, body).into_response()
}

async fn whole(body: Body) -> Bytes {
    to_bytes(body, REQUEST_BYTES).await.expect("a body")
}

/// The beginning now, the rest later. A shorter answer is whole.
fn hold(shared: &Shared, mut content: Bytes, bytes: usize) -> Body {
    if content.len() < bytes {
        return Body::from(content);
    }
    let (first, mut held) = (content.split_to(bytes), shared.held.subscribe());
    let rest = async move {
        // An error means that the server is gone, and with it every client.
        drop(held.wait_for(|hold| *hold == Hold::Off).await);
        Ok::<_, io::Error>(content)
    };
    Body::from_stream(stream::iter([Ok(first)]).chain(stream::once(rest)))
}

/// The beginning, and then an error.
fn truncate(mut content: Bytes, bytes: usize) -> Body {
    let first = content.split_to(bytes.min(content.len()));
    let rest = async {
        // Meanwhile the beginning is sent.
        tokio::task::yield_now().await;
        Err(io::Error::other("the server breaks off"))
    };
    Body::from_stream(stream::iter([Ok(first)]).chain(stream::once(rest)))
}
