//! Tests with a real server that echoes its input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{
    Proxy,
    link::{ConnectionEnd, Direction, Rules, Trap},
};
use crate::within;
use std::{
    io::ErrorKind,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// How long a connection must stay silent to count as silent.
const SILENCE: Duration = Duration::from_millis(150);

/// Starts an echo server. It reports received bytes, and "end" or "error" at the end of each connection.
async fn echo() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, reports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                loop {
                    let word = match stream.read(&mut buffer).await {
                        Ok(0) => "end".to_owned(),
                        Ok(length) => {
                            drop(stream.write_all(&buffer[..length]).await);
                            String::from_utf8(buffer[..length].to_vec()).unwrap()
                        }
                        Err(_) => "error".to_owned(),
                    };
                    let is_over = ["end", "error"].contains(&word.as_str());
                    if sender.send(word).is_err() || is_over {
                        return;
                    }
                }
            });
        }
    });
    (address, reports)
}

struct Client(TcpStream);

impl Client {
    async fn new(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(proxy.address).await.unwrap())
    }

    async fn send(&mut self, word: &str) {
        self.0.write_all(word.as_bytes()).await.unwrap();
    }

    /// The next event: bytes as text, "end", or "reset".
    async fn hear(&mut self) -> String {
        let mut buffer = [0; 1024];
        match within("the connection delivers data", self.0.read(&mut buffer)).await {
            Ok(0) => "end".to_owned(),
            Ok(length) => String::from_utf8(buffer[..length].to_vec()).unwrap(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                "reset".to_owned()
            }
        }
    }

    async fn hears_nothing(&mut self) -> bool {
        tokio::time::timeout(SILENCE, self.0.read_u8()).await.is_err()
    }

    async fn ask(&mut self, word: &str) -> String {
        self.send(word).await;
        self.hear().await
    }
}

#[tokio::test]
async fn a_good_link_passes_bytes_and_the_end_of_both_directions() {
    let (server, mut reports) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = Client::new(&proxy).await;
    assert_eq!(client.ask("hello").await, "hello");
    client.0.shutdown().await.unwrap();
    assert_eq!(client.hear().await, "end");
    assert_eq!(
        (reports.recv().await.unwrap().as_str(), reports.recv().await.unwrap().as_str()),
        ("hello", "end")
    );
    assert_eq!((proxy.counts().connections, proxy.counts().sprung), (1, 0));
}

#[tokio::test]
async fn a_cut_ends_open_connections_and_no_later_ones() {
    for (end, client_sees, server_sees) in
        [(ConnectionEnd::Reset, "reset", "error"), (ConnectionEnd::Finish, "end", "end")]
    {
        let (server, mut reports) = echo().await;
        let proxy = Proxy::start(server).await.unwrap();
        let mut client = Client::new(&proxy).await;
        assert_eq!(client.ask("a").await, "a");
        proxy.cut(end);
        assert_eq!(client.hear().await, client_sees);
        reports.recv().await.unwrap();
        assert_eq!(reports.recv().await.unwrap(), server_sees);
        assert_eq!(Client::new(&proxy).await.ask("b").await, "b");
    }
}

#[tokio::test]
async fn a_link_can_refuse_connections_and_change_its_target() {
    let (server, _reports) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    proxy.set(Rules { refuses: true, ..Rules::default() });
    assert_eq!(Client::new(&proxy).await.hear().await, "reset");
    proxy.set(Rules::default());
    let (other, mut reports) = echo().await;
    proxy.retarget(other);
    assert_eq!(Client::new(&proxy).await.ask("there").await, "there");
    assert_eq!(reports.recv().await.unwrap(), "there");
}

#[tokio::test]
async fn a_half_open_link_is_silent_and_resumes_without_loss() {
    let (server, mut reports) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut old = Client::new(&proxy).await;
    assert_eq!(old.ask("a").await, "a");
    reports.recv().await.unwrap();
    proxy.set(Rules::half_open());
    let mut new = Client::new(&proxy).await;
    new.send("new").await;
    old.send("b").await;
    assert!(old.hears_nothing().await && new.hears_nothing().await);
    assert!(reports.try_recv().is_err(), "a byte arrived at the server");
    proxy.set(Rules::default());
    assert_eq!((old.hear().await.as_str(), new.hear().await.as_str()), ("b", "new"));
}

#[tokio::test]
async fn a_connection_that_lost_bytes_of_one_direction_is_reset() {
    for (lost, server_hears) in [(Direction::Up, None), (Direction::Down, Some("b"))] {
        let (server, mut reports) = echo().await;
        let proxy = Proxy::start(server).await.unwrap();
        let mut client = Client::new(&proxy).await;
        assert_eq!(client.ask("a").await, "a");
        reports.recv().await.unwrap();
        proxy.set(Rules::one_way(lost));
        client.send("b").await;
        assert!(client.hears_nothing().await);
        assert_eq!(reports.try_recv().ok().as_deref(), server_hears);
        proxy.set(Rules::default());
        assert_eq!(client.hear().await, "reset", "a stream with a hole must not go on");
    }
}

#[tokio::test]
async fn a_slow_link_adds_the_configured_delay() {
    let (server, _heard) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    proxy.set(Rules::slow(Duration::from_millis(60), Duration::from_millis(20)));
    let mut client = Client::new(&proxy).await;
    let begun = Instant::now();
    assert_eq!(client.ask("a").await, "a");
    assert!(begun.elapsed() >= Duration::from_millis(120), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_byte_trap_resets_after_exactly_that_many_bytes() {
    let (server, mut reports) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    proxy.trap(Trap::AfterBytes(Direction::Down, 5));
    let mut client = Client::new(&proxy).await;
    assert_eq!(client.ask("abc").await, "abc");
    client.send("defgh").await;
    let (first, second) = (client.hear().await, client.hear().await);
    assert_eq!((first.as_str(), second.as_str()), ("de", "reset"));
    assert_eq!(proxy.counts().sprung, 1);
    assert_eq!(
        (reports.recv().await.unwrap(), reports.recv().await.unwrap()),
        ("abc".into(), "defgh".into())
    );
    assert_eq!(Client::new(&proxy).await.ask("once").await, "once");
}

#[tokio::test]
async fn an_answer_trap_passes_the_request_and_drops_the_answer() {
    let (server, mut reports) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    proxy.trap(Trap::AnswerTo(b"COMMIT".to_vec()));
    let mut client = Client::new(&proxy).await;
    assert_eq!(client.ask("insert").await, "insert");
    assert_eq!(client.ask("Q COMMIT").await, "reset");
    reports.recv().await.unwrap();
    assert_eq!(
        reports.recv().await.unwrap(),
        "Q COMMIT",
        "the server got the request; the client never learns"
    );
    assert_eq!(proxy.counts().sprung, 1);
    proxy.trap(Trap::AnswerTo(b"COMMIT".to_vec()));
    proxy.disarm();
    assert_eq!(Client::new(&proxy).await.ask("COMMIT").await, "COMMIT");
}
