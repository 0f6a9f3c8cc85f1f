//! `git http-backend`, the program with which git serves repositories over HTTP.

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, request::Parts},
};
use futures::{Stream, stream};
use std::{io, path::Path, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdout, Command},
};

/// Bytes of a piece of an answer.
const PIECE_BYTES: usize = 256 * 1024;

/// Runs git's own program for one request. The body of the answer comes while the program makes it, as from any server.
///
/// `path` begins with `/` and is that of the request below `root`, the directory of the bare repositories.
pub(crate) async fn run(
    root: &Path,
    path: &str,
    parts: &Parts,
    body: &[u8],
) -> (StatusCode, HeaderMap, Body) {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut backend = Command::new("git");
    backend.arg("http-backend").env_clear().kill_on_drop(true);
    backend.stdin(Stdio::piped()).stdout(Stdio::piped());
    backend.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    backend.env("GIT_PROJECT_ROOT", root).env("PATH_INFO", path);
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
