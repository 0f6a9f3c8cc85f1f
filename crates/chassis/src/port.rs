//! A public port for HTTP/1 and HTTP/2. Before it routes a request, it limits the number of connections, in all and of one
//! address, the time a client may take, and the size of a request's head. The routes limit the bodies.

pub mod admission;
mod connection;

use crate::{grpc::PortCertificate, network::Network, tasks};
use admission::{Admission, AdmissionLimits, Admissions};
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{Extensions, HeaderName, HeaderValue, header::HOST},
    serve::Listener,
};
use connection::{Connection, Protocol};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{net::IpAddr, pin::Pin, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service as _;

/// Default limit of simultaneous connections. Ten thousand idle ones are usual, and each costs some 24 KiB. Further ones are refused: with
/// 503 over HTTP, with UNAVAILABLE over gRPC. Beyond it: `connections_too_many`.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Time in which a new connection must show its protocol. A real client sends something at once.
pub const OPENING: Duration = Duration::from_secs(10);
/// Time in which an HTTP/1 connection must send the head of its next request, including the idle time between requests.
/// It is above the 60 s after which load balancers close an idle connection: if the server closed first, a request
/// could cross the close.
pub const HEAD: Duration = Duration::from_secs(75);
/// Maximum bytes of a request's head; HTTP/2 adds 32 bytes to each header. Keys, directories and cursors take a few hundred. HTTP answers
/// 431 to a longer one. Beyond it: `head_too_large`.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Maximum headers of a request. HTTP answers 431 to more. Beyond it: `head_too_large`.
pub const HEADERS_MAX: usize = 100;
/// Bytes of a head that are read, so that the answer to a large one can have a code. A longer one gets 431 without a code.
const HEAD_READ_BYTES_MAX: u32 = 48 * 1024;
/// Headers of an HTTP/1 request that are read. A request with more gets 431 without a code.
const HEADERS_READ_MAX: usize = 150;
/// Simultaneous requests of one HTTP/2 connection. A client with more waits or opens another connection.
pub const STREAMS_MAX: u32 = 200;
/// Time between two pings of an HTTP/2 connection. They detect a peer that vanished or stopped in the middle of a
/// frame.
pub const PING: Duration = Duration::from_secs(20);
/// A ping that stays unanswered for this long ends the connection.
pub const PONG: Duration = Duration::from_secs(20);
/// Time in which the client of a connection must send a valid key. Programs send it with the first request; a monitor without a key
/// connects again.
pub const KEYLESS: Duration = Duration::from_secs(30);
/// Time that a connection has for its running requests after it was asked to end: at the shutdown, or because its client sent no
/// valid key. A client that does not read would otherwise keep the process from ending.
pub const CLOSING: Duration = Duration::from_secs(20);
/// Connections beyond the limit that still get an answer. Further ones are closed without one.
const REFUSALS_MAX: usize = 64;
/// Time that a refused connection has for its request.
const REFUSAL: Duration = Duration::from_secs(5);
/// File descriptors that a process needs for its servers, files and libraries, in addition to those of its connections.
const OTHER_DESCRIPTORS: u64 = 1_024;

#[derive(Debug, Clone)]
pub struct Routes {
    /// The routes of requests within the bounds.
    pub served: Router,
    /// The answer to the requests of a connection beyond the limit. It should close the connection.
    pub full: Router,
    /// The answer to a request whose head is too large.
    pub large_head: Router,
    /// The answer to a request that names several hosts. It should close the connection: a proxy in front may have read another one.
    pub several_hosts: Router,
}

/// Limits that differ between ports.
#[derive(Debug, Clone)]
pub struct Bounds {
    pub admission: AdmissionLimits,
    /// See [`OPENING`].
    pub opening: Duration,
    /// See [`HEAD`].
    pub head: Duration,
    /// See [`KEYLESS`].
    pub keyless_life: Duration,
    /// See [`CLOSING`].
    pub closing: Duration,
}

impl Bounds {
    /// The usual limits for this number of connections. One address leaves a quarter of the places to others; a sixteenth is enough for
    /// all that connect again at the same moment.
    pub fn of(connections: usize, proxies: Vec<Network>) -> Self {
        Self {
            admission: AdmissionLimits {
                connections,
                of_address: (connections - connections / 4).max(1),
                keyless: (connections / 16).max(1),
                proxies,
            },
            opening: OPENING,
            head: HEAD,
            keyless_life: KEYLESS,
            closing: CLOSING,
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::of(CONNECTIONS_MAX, vec![])
    }
}

/// The sender of a request, as an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The connection of a request, as an extension of the request.
#[derive(Debug, Clone)]
struct RequestConnection(Arc<Admission>);

/// Records that the sender of a request has a valid key, so that its connection may stay. `extensions` are those of the request.
pub fn vouch(extensions: &Extensions) {
    if let Some(RequestConnection(admission)) = extensions.get() {
        admission.prove();
    }
}

/// Raises this process's limit of open files so that this many `connections` can each have a descriptor. Returns the
/// number of connections that can. If the system allows fewer, the log names the remedy.
pub fn afford(connections: usize) -> usize {
    let needed = connections as u64 + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    if now >= needed {
        return connections;
    }
    let raised = needed.min(most);
    let result = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    let have = if result.is_ok() { raised } else { now };
    if have >= needed {
        return connections;
    }
    // If the limit is very low, use half of it, because the rest of the process could need all of it.
    let left = have.saturating_sub(OTHER_DESCRIPTORS).max(have / 2);
    let left = usize::try_from(left).unwrap_or(connections);
    tracing::warn!(
        "there is room for {left} connections instead of {connections}: the process may open {have} files; raise the limit to {needed} \
         (ulimit -n, LimitNOFILE=)"
    );
    left
}

/// Serves `routes` until `shutdown`, with TLS if there is a certificate. It then accepts no further connections, and returns when the running requests are
/// answered, or after [`Bounds::closing`].
///
/// Each request has a [`Peer`] among its extensions. A connection ends if no route vouches for its client in time.
pub async fn serve(
    mut listener: TcpListener,
    certificate: Option<PortCertificate>,
    routes: Routes,
    bounds: Bounds,
    shutdown: CancellationToken,
) {
    let certificate = certificate.map(Arc::new);
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let admissions = Admissions::new(bounds.admission.clone());
    let speaker = Speaker::new(&bounds);
    let refusing = Routes { served: routes.full.clone(), ..routes.clone() };
    let open = TaskTracker::new();
    loop {
        let (stream, peer) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = Listener::accept(&mut listener) => accepted,
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot disable Nagle's algorithm; small messages may be delayed");
        }
        let (admission, routes, life) = match admissions.admit(peer.ip()) {
            Some(admission) => (admission, routes.clone(), Duration::MAX),
            None => {
                metrics::counter!("flotilla_connections_refused_total").increment(1);
                match Arc::clone(&refusals).try_acquire_owned() {
                    Ok(permit) => (Admission::unbounded(permit), refusing.clone(), REFUSAL),
                    Err(_) => continue,
                }
            }
        };
        let (speaker, shutdown, certificate) = (speaker.clone(), shutdown.clone(), certificate.clone());
        let connection = async move {
            let opened = connection::open(stream, certificate, bounds.opening, Arc::new(admission));
            // A client that has not sent anything yet loses nothing if its connection ends.
            let Some(Ok(opened)) = shutdown.run_until_cancelled(opened).await else { return };
            speaker.serve(opened, PeerRoutes { routes, peer: Peer(peer.ip()) }, &shutdown).await;
        };
        // A connection that was accepted only to be refused ends after this time, whatever the client does.
        open.spawn(tasks::catch_panic("connection", tokio::time::timeout(life, connection)));
    }
    drop(listener);
    open.close();
    open.wait().await;
}

/// The handler of one client's requests.
struct PeerRoutes {
    routes: Routes,
    peer: Peer,
}

/// Serves connections within the limits.
#[derive(Debug, Clone)]
struct Speaker {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    keyless_life: Duration,
    closing: Duration,
}

impl Speaker {
    fn new(bounds: &Bounds) -> Self {
        let (mut http1, mut http2) = (http1::Builder::new(), http2::Builder::new(TokioExecutor::new()));
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.head)
            .max_headers(HEADERS_READ_MAX)
            .max_header_size(HEAD_READ_BYTES_MAX as usize)
            .max_buf_size(HEAD_READ_BYTES_MAX as usize);
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_READ_BYTES_MAX)
            // WebSockets over HTTP/2.
            .enable_connect_protocol();
        Self { http1, http2, keyless_life: bounds.keyless_life, closing: bounds.closing }
    }

    async fn serve(&self, connection: Connection, routes: PeerRoutes, shutdown: &CancellationToken) {
        let (protocol, PeerRoutes { routes, peer }) = (connection.protocol, routes);
        let admission = Arc::clone(&connection.admission);
        let own = RequestConnection(Arc::clone(&admission));
        let service = service_fn(move |mut request: Request<Incoming>| {
            if protocol == Protocol::Http1 {
                own_head(&mut request);
            }
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(own.clone());
            let is_large =
                head_bytes(&request, protocol) > HEAD_BYTES_MAX || request.headers().len() > HEADERS_MAX;
            let routes = if is_large {
                &routes.large_head
            } else if request.headers().get_all(HOST).iter().nth(1).is_some() {
                &routes.several_hosts
            } else {
                &routes.served
            };
            routes.clone().call(request.map(Body::new))
        });
        let stream = TokioIo::new(connection);
        let end_request = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = without_key(&admission, self.keyless_life) => {}
            }
        };
        // Each branch boxes its own future, because the HTTP/1 one is smaller.
        let ended = match protocol {
            Protocol::Http1 => {
                let connection = Box::pin(self.http1.serve_connection(stream, service).with_upgrades());
                until_over(connection, |connection| connection.graceful_shutdown(), end_request, self.closing)
                    .await
            }
            Protocol::Http2 => {
                let connection = Box::pin(self.http2.serve_connection(stream, service));
                until_over(connection, |connection| connection.graceful_shutdown(), end_request, self.closing)
                    .await
            }
        };
        match ended {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(%error, "a connection ended early"),
            None => tracing::debug!("a connection did not end in time and is cut"),
        }
    }
}

/// The bytes of a head, as its protocol counts them.
fn head_bytes<B>(request: &Request<B>, protocol: Protocol) -> usize {
    // `: ` and the end of the line, or what HTTP/2 adds.
    let overhead = match protocol {
        Protocol::Http1 => 4,
        Protocol::Http2 => 32,
    };
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + overhead);
    let uri = request.uri();
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    request.method().as_str().len() + target + authority + headers.sum::<usize>()
}

/// Replaces the head of a request by one of its own allocation. While hyper's own head lives, hyper watches for the end
/// of the connection with a second buffer. When thousands of streams start at once, freeing those buffers fragments the
/// heap.
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

/// Returns after `life` if no route has vouched for the client until then.
async fn without_key(admission: &Admission, life: Duration) {
    tokio::time::sleep(life).await;
    if admission.has_key() {
        std::future::pending::<()>().await;
    }
    metrics::counter!("flotilla_connections_keyless_total").increment(1);
}

/// Waits until a connection is over. After `end_request`, `stop` is called and the connection has the time `closing`;
/// `None` if it did not end.
async fn until_over<C: Future>(
    mut connection: Pin<Box<C>>,
    stop: impl Fn(Pin<&mut C>),
    end_request: impl Future<Output = ()>,
    closing: Duration,
) -> Option<C::Output> {
    tokio::select! {
        ended = connection.as_mut() => return Some(ended),
        () = end_request => stop(connection.as_mut()),
    }
    tokio::time::timeout(closing, connection).await.ok()
}

#[cfg(test)]
mod tests;
