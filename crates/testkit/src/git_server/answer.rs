//! The answers of a server of git.

use super::{
    lfs,
    rules::{GitFault, GitRequest},
    state::{Hold, Shared},
};
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{Stream, StreamExt as _, stream};
use std::{io, process::Stdio, sync::PoisonError};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdout, Command},
};

const REQUEST_BYTES: usize = 512 * 1024 * 1024;
/// Bytes of a piece of an answer.
const PIECE_BYTES: usize = 256 * 1024;

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
    let (status, headers, body) = run(&shared, &parts, &body).await;
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

/// Runs git's own program for one request. The body of the answer comes while the program makes it, as from any server.
async fn run(shared: &Shared, parts: &Parts, body: &[u8]) -> (StatusCode, HeaderMap, Body) {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut backend = Command::new("git");
    backend.arg("http-backend").env_clear().kill_on_drop(true);
    backend.stdin(Stdio::piped()).stdout(Stdio::piped());
    backend.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    backend.env("GIT_PROJECT_ROOT", &shared.root).env("PATH_INFO", parts.uri.path());
    backend.envs([
        ("GIT_HTTP_EXPORT_ALL", "1"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("REMOTE_USER", "test"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REQUEST_METHOD", parts.method.as_str()),
        ("QUERY_STRING", parts.uri.query().unwrap_or_default()),
        ("CONTENT_TYPE", text("content-type")),
        ("HTTP_CONTENT_ENCODING", text("content-encoding")),
        ("GIT_PROTOCOL", text("git-protocol")),
        ("CONTENT_LENGTH", &body.len().to_string()),
    ]);
    let mut running = backend.spawn().expect("git http-backend");
    let mut input = running.stdin.take().expect("a pipe");
    let mut output = BufReader::with_capacity(PIECE_BYTES, running.stdout.take().expect("a pipe"));
    let send = async move { input.write_all(body).await };
    let (sent, (status, headers)) = tokio::join!(send, read_head(&mut output));
    // The program does not read the body of a request that it refuses.
    drop(sent);
    (status, headers, Body::from_stream(rest(running, output)))
}

async fn read_head(output: &mut BufReader<ChildStdout>) -> (StatusCode, HeaderMap) {
    let (mut status, mut headers) = (StatusCode::OK, HeaderMap::new());
    loop {
        let mut line = String::new();
        output.read_line(&mut line).await.expect("a line of the head");
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            assert_eq!(line, "\r\n", "the end of a head");
            return (status, headers);
        };
        if name == "Status" {
            status = value.split(' ').next().expect("a status").parse().expect("a status");
        } else {
            let name: HeaderName = name.parse().expect("a header");
            headers.insert(name, HeaderValue::from_str(value).expect("a header"));
        }
    }
}

/// What the program still prints. It ends after the program.
fn rest(running: Child, output: BufReader<ChildStdout>) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((running, output), |(mut running, mut output)| async move {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        match output.read_buf(&mut piece).await {
            Ok(0) => {
                running.wait().await.expect("the end of the program");
                None
            }
            read => Some((read.map(|_| Bytes::from(piece)), (running, output))),
        }
    })
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
