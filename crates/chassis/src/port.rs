//! A port that strangers reach, HTTP/1 and HTTP/2 alike. Before any route is asked it is bounded here how many connections there
//! are, how long one may hesitate, and how large the head of a request is. What a request's body may be is the routes' business.

mod opening;

use axum::{
    Json, Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    serve::Listener,
};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use opening::{Opened, Protocol};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{net::IpAddr, pin::Pin, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service as _;

/// Connections at once unless an operator says otherwise: ten thousand that idle are usual, and each costs some 24 KiB.
pub const CONNECTIONS_MAX: usize = 16_384;
/// How long a connection may take to say what it speaks: a client that connects has something to say.
pub const OPENING: Duration = Duration::from_secs(10);
/// How long a connection of HTTP/1 may take for the head of its next request, its rest between two included. Above the 60 s after
/// which balancers close a connection that rests: whoever closes first must not be us, or a request crosses the close.
pub const HEAD: Duration = Duration::from_secs(75);
/// Bytes of the head of a request: keys, directories and cursors are a few hundred.
pub const HEAD_BYTES_MAX: u32 = 32 * 1024;
/// Headers of a request of HTTP/1. Of HTTP/2, where each counts 32 bytes more than it has, [`HEAD_BYTES_MAX`] is the bound.
pub const HEADERS_MAX: usize = 100;
/// Requests of one HTTP/2 connection at once; a client with more waits or connects once more.
pub const STREAMS_MAX: u32 = 200;
/// Time between two pings of an HTTP/2 connection: a peer that vanished, or that stopped in the middle of a frame, is noticed.
pub const PING: Duration = Duration::from_secs(20);
/// A ping without an answer for this long ends the connection.
pub const PONG: Duration = Duration::from_secs(20);
/// Connections beyond all places that are still told so; what is beyond these is closed without a word.
const REFUSALS_MAX: usize = 64;
/// How long such a one has for its request.
const REFUSAL: Duration = Duration::from_secs(5);
/// When a client that was refused may come again; seconds.
const AGAIN_S: u32 = 5;
/// Descriptors that a process needs besides its connections: its servers, files and libraries.
const DESCRIPTORS_BESIDES: u64 = 1_024;

/// What differs between ports.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// See [`OPENING`].
    pub opening: Duration,
    /// See [`HEAD`].
    pub head: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: CONNECTIONS_MAX, opening: OPENING, head: HEAD }
    }
}

/// Who sent a request: an extension of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Raises this process's limit of open files so far that `wanted` connections have a descriptor each, and gives how many have.
/// Where the system allows fewer, the log says what to do.
pub fn afford(wanted: usize) -> usize {
    let needed = wanted as u64 + DESCRIPTORS_BESIDES;
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    if now >= needed {
        return wanted;
    }
    let raised = needed.min(most);
    let done = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    let have = if done.is_ok() { raised } else { now };
    if have >= needed {
        return wanted;
    }
    // Half of what little there is, where the rest of the process would need all of it.
    let left = have.saturating_sub(DESCRIPTORS_BESIDES).max(have / 2);
    let left = usize::try_from(left).unwrap_or(wanted);
    tracing::warn!(
        "only {left} connections are taken in place of {wanted}: the process may open {have} files; allow it {needed} \
         (ulimit -n, LimitNOFILE=)"
    );
    left
}

/// Serves `routes` until `shutdown`; then takes no further connection, and returns when the requests that run are answered.
///
/// Each request has a [`Peer`] among its extensions. A connection beyond the bound has its first request answered with 503, over
/// gRPC with UNAVAILABLE.
pub async fn serve(mut listener: TcpListener, routes: Router, bounds: Bounds, shutdown: CancellationToken) {
    let (places, refusals) = (Semaphore::new(bounds.connections), Semaphore::new(REFUSALS_MAX));
    let (places, refusals) = (Arc::new(places), Arc::new(refusals));
    let (speaker, full) = (Speaker::new(&bounds), Router::new().fallback(refuse));
    let open = TaskTracker::new();
    loop {
        let (stream, peer) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = Listener::accept(&mut listener) => accepted,
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small messages of a connection may be late");
        }
        let (place, routes, life) = match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => (place, routes.clone(), Duration::MAX),
            Err(_) => {
                metrics::counter!("flotilla_connections_refused_total").increment(1);
                match Arc::clone(&refusals).try_acquire_owned() {
                    Ok(place) => (place, full.clone(), REFUSAL),
                    Err(_) => continue,
                }
            }
        };
        let (speaker, shutdown) = (speaker.clone(), shutdown.clone());
        let connection = async move {
            let opened = opening::open(stream, bounds.opening, place);
            // Whoever has said nothing yet loses nothing.
            let Some(Ok(opened)) = shutdown.run_until_cancelled(opened).await else { return };
            speaker.serve(opened, (routes, Peer(peer.ip())), &shutdown).await;
        };
        // A connection that was only let in to be refused ends whatever it does.
        open.spawn(tokio::time::timeout(life, connection));
    }
    drop(listener);
    open.close();
    open.wait().await;
}

/// Speaks with clients, within bounds.
#[derive(Debug, Clone)]
struct Speaker {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl Speaker {
    fn new(bounds: &Bounds) -> Self {
        let (mut http1, mut http2) = (http1::Builder::new(), http2::Builder::new(TokioExecutor::new()));
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.head)
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX as usize)
            .max_buf_size(HEAD_BYTES_MAX as usize);
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            // WebSockets over HTTP/2.
            .enable_connect_protocol();
        Self { http1, http2 }
    }

    async fn serve(
        &self,
        (protocol, stream): (Protocol, Opened),
        (routes, peer): (Router, Peer),
        shutdown: &CancellationToken,
    ) {
        let service = service_fn(move |mut request: Request<Incoming>| {
            if protocol == Protocol::Http1 {
                own_head(&mut request);
            }
            request.extensions_mut().insert(peer);
            routes.clone().call(request.map(Body::new))
        });
        let stream = TokioIo::new(stream);
        // Each in a room of its own: one of HTTP/1 is smaller.
        let ended = match protocol {
            Protocol::Http1 => {
                let connection = Box::pin(self.http1.serve_connection(stream, service).with_upgrades());
                until_over(connection, |connection| connection.graceful_shutdown(), shutdown).await
            }
            Protocol::Http2 => {
                let connection = Box::pin(self.http2.serve_connection(stream, service));
                until_over(connection, |connection| connection.graceful_shutdown(), shutdown).await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Gives a request a head of its own. As long as it has hyper's, hyper listens for the end of the connection with a second buffer:
/// where thousands of streams begin at once, those that are given back then leave holes.
fn own_head<B>(request: &mut Request<B>) {
    let own = |(name, value): (&HeaderName, &HeaderValue)| {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    let headers = request.headers().iter().filter_map(own).collect();
    *request.headers_mut() = headers;
    if let Ok(uri) = request.uri().to_string().parse() {
        *request.uri_mut() = uri;
    }
}

/// Until a connection is over, which it is asked to be with `stop` at `shutdown`.
async fn until_over<C: Future>(
    mut connection: Pin<Box<C>>,
    stop: impl Fn(Pin<&mut C>),
    shutdown: &CancellationToken,
) -> C::Output {
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = shutdown.cancelled() => stop(connection.as_mut()),
    }
    connection.await
}

/// What whoever finds no place is told.
async fn refuse(headers: HeaderMap) -> Response {
    let message = "this gateway has all the connections that it takes; try again soon, it may be another one";
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("application/grpc") {
        return tonic::Status::unavailable(message).into_http();
    }
    let body = serde_json::json!({"name": "UnknownError", "data": {"message": message}});
    let headers = [(header::RETRY_AFTER, AGAIN_S.to_string()), (header::CONNECTION, "close".to_owned())];
    (StatusCode::SERVICE_UNAVAILABLE, headers, Json(body)).into_response()
}

#[cfg(test)]
mod tests;
