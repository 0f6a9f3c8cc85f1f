//! A minimal client of event streams over HTTP, with a connection of its own. It does not read the JSON of the events, so that thousands of clients
//! leave the machine to the gateway.

use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Longest wait for the end of a turn.
const TURN: Duration = Duration::from_secs(60);

pub(super) struct SseClient {
    stream: TcpStream,
    received: Vec<u8>,
}

impl SseClient {
    /// Requests the events of a path.
    pub(super) async fn connect(gateway_url: &str, key: &str, path: &str) -> Self {
        let address = gateway_url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\naccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("a sent request");
        Self { stream, received: vec![] }
    }

    /// Waits until the gateway serves the stream.
    pub(super) async fn connected(&mut self) {
        self.until(|frame| frame.contains("server.connected"), |_| {}).await;
    }

    /// Waits for the state of an idle session, with which a stream begins. What follows is live.
    pub(super) async fn has_state_of(&mut self, session: &str) {
        self.until(|frame| frame.contains("\"session.status\"") && frame.contains(session), |_| {}).await;
    }

    /// Waits until the next turn of a session is over, and gives each frame before that to `note`.
    pub(super) async fn until_idle(&mut self, session: &str, note: impl FnMut(&str)) {
        let is_over = |frame: &str| frame.contains("\"session.idle\"") && frame.contains(session);
        timeout(TURN, self.until(is_over, note)).await.expect("the end of the turn in time");
    }

    /// Waits for the last frame, and gives each frame before that to `note`.
    async fn until(&mut self, mut is_last: impl FnMut(&str) -> bool, mut note: impl FnMut(&str)) {
        loop {
            let mut read = 0;
            while let Some(length) = self.received[read..].windows(2).position(|window| window == b"\n\n") {
                let frame = String::from_utf8_lossy(&self.received[read..read + length]);
                let is_over = is_last(&frame);
                if !is_over {
                    note(&frame);
                }
                read += length + 2;
                if is_over {
                    self.received.drain(..read);
                    return;
                }
            }
            self.received.drain(..read);
            let count = self.stream.read_buf(&mut self.received).await.expect("an answer");
            assert!(count > 0, "the stream ended: {}", String::from_utf8_lossy(&self.received));
        }
    }
}
