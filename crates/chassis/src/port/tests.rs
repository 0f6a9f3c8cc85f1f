#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use axum::{
    http::{StatusCode, header},
    routing::get,
};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};

/// Time limit for a connection that must end.
const LATE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

/// A port that answers with the caller's address.
struct Port {
    address: SocketAddr,
    shutdown: CancellationToken,
    served: JoinHandle<()>,
}

impl Port {
    async fn start(bounds: Bounds) -> Self {
        let served = Router::new()
            .route("/", get(|peer: axum::Extension<Peer>| async move { peer.0.0.to_string() }))
            .route("/told", get(describe))
            .route("/key", get(async |request: Request| vouch(request.extensions())))
            .route("/endless", get(async || Body::from_stream(futures::stream::repeat_with(piece))))
            .route("/held", get(|| async { std::future::pending::<()>().await }));
        let refusal = |status: StatusCode| {
            Router::new().fallback(async move || (status, [(header::CONNECTION, "close")], "refused"))
        };
        let full = refusal(StatusCode::SERVICE_UNAVAILABLE);
        let large_head = refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        let several_hosts = refusal(StatusCode::BAD_REQUEST);
        let routes = Routes { served, full, large_head, several_hosts };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let served = tokio::spawn(serve(listener, None, routes, bounds, shutdown.clone()));
        Self { address, shutdown, served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Returns the bytes that the server sends until it closes the connection.
    async fn answer_to(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        to_end(stream).await
    }

    /// Sends a request over its own client, which keeps its connection.
    async fn get(&self, client: &reqwest::Client) -> reqwest::Response {
        client.get(format!("http://{}/", self.address)).send().await.unwrap()
    }
}

fn piece() -> Result<&'static [u8], std::io::Error> {
    Ok(&[b'x'; 64 * 1024])
}

/// The usual bounds with other numbers of connections.
fn limited(change: impl FnOnce(&mut AdmissionLimits)) -> Bounds {
    let mut bounds = Bounds::default();
    change(&mut bounds.admission);
    bounds
}

/// Describes a request as a route receives it.
async fn describe(request: Request) -> String {
    let header = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}={value:?}");
    let headers: Vec<String> = request.headers().iter().map(header).collect();
    format!("{} {:?} {}", request.uri(), request.version(), headers.join(" "))
}

async fn to_end(mut stream: TcpStream) -> String {
    let mut received = Vec::new();
    // A reset also counts as an end.
    let read = tokio::time::timeout(LATE, stream.read_to_end(&mut received)).await;
    drop(read.expect("the connection is closed"));
    String::from_utf8_lossy(&received).into_owned()
}

fn client() -> reqwest::Client {
    crate::http::builder().no_proxy().build().unwrap()
}

#[tokio::test]
async fn requests_carry_the_address_of_their_sender() {
    let port = Port::start(Bounds::default()).await;
    assert_eq!(port.get(&client()).await.text().await.unwrap(), "127.0.0.1");
    let http2 = crate::http::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    assert_eq!(port.get(&http2).await.text().await.unwrap(), "127.0.0.1");
}

#[tokio::test]
async fn a_request_reaches_its_route_unchanged() {
    let port = Port::start(Bounds::default()).await;
    let headers = "Host: x\r\nX-A: 1\r\nx-b: \u{e9}\r\nx-a: 2\r\nConnection: close\r\n\r\n";
    let header_list = "host=\"x\" x-a=\"1\" x-a=\"2\" x-b=\"\\xc3\\xa9\" connection=\"close\"";
    for uri in ["/told?q=%20a&q=b", "http://other:1/told?q"] {
        let answer = port.answer_to(&format!("GET {uri} HTTP/1.1\r\n{headers}")).await;
        let body = answer.rsplit_once("\r\n\r\n").unwrap().1;
        assert_eq!(body, format!("{uri} HTTP/1.1 {header_list}"));
    }
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let port = Port::start(Bounds { opening: SHORT, ..Bounds::default() }).await;
    for prefix in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
        assert_eq!(port.answer_to(prefix).await, "", "{prefix:?}");
    }
}

#[tokio::test]
async fn a_connection_with_an_incomplete_head_is_closed() {
    let port = Port::start(Bounds { head: SHORT, ..Bounds::default() }).await;
    for prefix in ["G", "GET / HTTP/1.1\r\nhost: x\r\n", "GET / HTTP/1.1\r\nhost: x\r\nx-a: "] {
        assert_eq!(port.answer_to(prefix).await, "", "{prefix:?}");
    }
    // Idle time between two requests counts as a missing head.
    assert!(port.answer_to("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn the_opening_limit_ends_with_the_first_request() {
    let port = Port::start(Bounds { opening: SHORT, ..Bounds::default() }).await;
    let mut stream = port.connect().await;
    stream.write_all(b"GET /held HTTP/1.0\r\n\r\n").await.unwrap();
    let early = tokio::time::timeout(4 * SHORT, stream.read_u8()).await;
    assert!(early.is_err(), "the request is still served: {early:?}");
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let port = Port::start(Bounds::default()).await;
    let head = |headers: &str| format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    let many: String = (0..HEADERS_MAX).map(|number| format!("x-{number}: 1\r\n")).collect();
    let refused = async |headers: &str| {
        let answer = port.answer_to(&head(headers)).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        answer.ends_with("refused")
    };
    assert!(refused(&many).await);
    let long = |bytes: usize| format!("x-long: {}\r\n", "x".repeat(bytes));
    assert!(refused(&long(HEAD_BYTES_MAX)).await);
    assert!(!refused(&long(HEAD_READ_BYTES_MAX as usize)).await, "it is not read to its end");
    let fitting = long(HEAD_BYTES_MAX / 2);
    assert!(port.answer_to(&head(&fitting)).await.starts_with("HTTP/1.1 200 "));
    let http2 = crate::http::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/", port.address);
    let refused = http2.get(&url).header("x-long", "x".repeat(HEAD_BYTES_MAX)).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.text().await.unwrap().as_str()), (431, "refused"));
    assert_eq!(port.get(&http2).await.status(), 200, "the connection continues");
}

#[tokio::test]
async fn a_request_that_proxies_could_read_in_two_ways_ends_its_connection() {
    let port = Port::start(Bounds::default()).await;
    let next = "GET /told?smuggled HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for hosts in ["host: a\r\nhost: b", "host: a\r\nx: y\r\nHost: a", "host: a\r\nhost:\r\nhost: b"] {
        let answer = port.answer_to(&format!("GET /told HTTP/1.1\r\n{hosts}\r\n\r\n{next}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("refused"), "{hosts}: {answer}");
    }
    // Two lengths of a body: the pieces count, and nothing behind them is read as a request.
    for lengths in
        ["content-length: 6\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 6"]
    {
        let head = format!("GET /told HTTP/1.1\r\nhost: x\r\n{lengths}\r\n\r\n");
        let answer = port.answer_to(&format!("{head}0\r\n\r\n{next}")).await;
        assert_eq!(
            (answer.matches("HTTP/1.1 ").count(), answer.contains("smuggled")),
            (2, false),
            "{answer}"
        );
    }
    let lengths = "content-length: 1\r\ncontent-length: 2";
    let answer = port.answer_to(&format!("GET /told HTTP/1.1\r\nhost: x\r\n{lengths}\r\n\r\nxx{next}")).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && !answer.contains("smuggled"), "{answer}");
}

#[tokio::test]
async fn an_excess_connection_is_refused_and_a_later_one_is_accepted() {
    let port = Port::start(limited(|limits| limits.connections = 2)).await;
    let (first, second) = (client(), client());
    assert_eq!(port.get(&first).await.text().await.unwrap(), "127.0.0.1");
    assert_eq!(port.get(&second).await.text().await.unwrap(), "127.0.0.1");
    let refused = port.get(&client()).await;
    assert_eq!((refused.status().as_u16(), refused.text().await.unwrap().as_str()), (503, "refused"));
    let http2 = crate::http::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    assert_eq!(port.get(&http2).await.status(), 503);
    // Accepted connections stay, and closing one admits another.
    assert_eq!(port.get(&first).await.status(), 200);
    drop(second);
    while port.get(&client()).await.status() != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn open_requests_are_answered_before_the_shutdown() {
    let port = Port::start(Bounds::default()).await;
    let resting = client();
    assert_eq!(port.get(&resting).await.status(), 200);
    let silent = port.connect().await;
    port.shutdown.cancel();
    tokio::time::timeout(LATE, port.served).await.expect("idle connections do not delay shutdown").unwrap();
    assert_eq!(to_end(silent).await, "");
    assert!(TcpStream::connect(port.address).await.is_err());
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_delay_the_shutdown() {
    let port = Port::start(Bounds { closing: SHORT, ..Bounds::default() }).await;
    let mut stream = port.connect().await;
    stream.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    let http2 = crate::http::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let unread = http2.get(format!("http://{}/endless", port.address)).send().await.unwrap();
    let mut held = port.connect().await;
    held.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    port.shutdown.cancel();
    tokio::time::timeout(LATE, port.served).await.expect("the connections are cut").unwrap();
    drop(unread);
}

/// The beginning of an HTTP/2 connection: the preface and empty settings.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn a_connection_ends_if_its_client_sends_no_valid_key() {
    let port = Port::start(Bounds { keyless_life: SHORT, closing: SHORT, ..Bounds::default() }).await;
    let mut keyed = port.connect().await;
    let ask = async |keyed: &mut TcpStream, path: &str| {
        keyed.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; 1024];
        let length = tokio::time::timeout(LATE, keyed.read(&mut answer)).await.unwrap().unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    assert!(ask(&mut keyed, "/key").await.starts_with("HTTP/1.1 200"));
    let mut silent = port.connect().await;
    silent.write_all(HTTP2).await.unwrap();
    to_end(silent).await;
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    assert!(
        port.answer_to(request).await.contains("200 OK"),
        "an idle one ends long before the next head is due"
    );
    assert!(port.answer_to("GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.is_empty(), "also with a request");
    assert!(ask(&mut keyed, "/").await.ends_with("127.0.0.1"), "the one with a key stays");
}

#[tokio::test]
async fn one_address_leaves_places_to_others() {
    let port = Port::start(limited(|limits| (limits.of_address, limits.keyless) = (2, 1))).await;
    let url = |path: &str| format!("http://{}{path}", port.address);
    let status =
        async |client: &reqwest::Client, path: &str| client.get(url(path)).send().await.unwrap().status();
    let (first, second) = (client(), client());
    assert_eq!(status(&first, "/").await, 200);
    assert_eq!(status(&second, "/").await, 503, "one without a key is open");
    assert_eq!(status(&first, "/key").await, 200);
    assert_eq!(status(&second, "/key").await, 200);
    assert_eq!(status(&client(), "/key").await, 503, "two are open");
    let other =
        crate::http::builder().no_proxy().local_address("127.0.0.2".parse::<IpAddr>().ok()).build().unwrap();
    assert_eq!(port.get(&other).await.text().await.unwrap(), "127.0.0.2");
}

#[tokio::test]
async fn thousands_of_connections_can_be_idle() {
    // Both ends are in this process.
    let count = afford(4_000) / 2;
    let port = Port::start(limited(|limits| limits.keyless = count + 1)).await;
    let mut resting = vec![];
    for _ in 0..count {
        let mut stream = port.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        resting.push(stream);
    }
    for stream in &mut resting {
        let mut first = [0; 12];
        tokio::time::timeout(LATE, stream.read_exact(&mut first)).await.unwrap().unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    assert_eq!(port.get(&client()).await.status(), 200, "with {count} idle connections");
}
