//! The far end of a benchmark: OpenAI Chat Completions over plain sockets, with the time in each chunk.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// What the model answers next.
#[derive(Debug, Clone, Copy)]
pub enum Plan {
    /// A text in so many chunks, each with the time at which it was sent.
    Text {
        /// How many.
        chunks: usize,
        /// Time between two.
        apart: Duration,
    },
    /// So many steps with one `bash true`, then a word.
    Tools {
        /// How many.
        steps: usize,
    },
}

/// What the model saw of one session.
#[derive(Debug, Default)]
pub struct Seen {
    /// When each request had arrived whole.
    pub requests: Vec<Instant>,
    /// When the last byte of each answer was written.
    pub answered: Vec<Instant>,
    /// How many chunks of texts were written.
    pub chunks: usize,
}

/// A model on a loopback port; it runs as long as this process.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its address, without `/v1`.
    pub url: String,
    /// What the times in its chunks count from.
    pub began: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    plan: Plan,
    seen: Seen,
}

impl Model {
    /// Starts it.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let plan = Plan::Tools { steps: 0 };
        let state = Arc::new(Mutex::new(State { plan, seen: Seen::default() }));
        let model = Self { url, began: Instant::now(), state };
        let server = model.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("a socket");
                let server = server.clone();
                // A client that leaves ends its own connection only.
                tokio::spawn(async move { server.serve(stream).await.ok() });
            }
        });
        model
    }

    /// Says what it answers from now on.
    pub fn plan(&self, plan: Plan) {
        *self.state.lock().expect("no panic") = State { plan, seen: Seen::default() };
    }

    /// How many requests came and how many chunks of texts were written since the last plan.
    pub fn progress(&self) -> (usize, usize) {
        let state = self.state.lock().expect("no panic");
        (state.seen.requests.len(), state.seen.chunks)
    }

    /// Gives what it saw since the last plan.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut self.state.lock().expect("no panic").seen)
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut received = vec![];
        while read_request(&mut stream, &mut received).await? {
            let (plan, number) = {
                let mut state = self.state.lock().expect("no panic");
                state.seen.requests.push(Instant::now());
                (state.plan, state.seen.requests.len())
            };
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            match plan {
                Plan::Text { chunks, apart } => {
                    for _ in 0..chunks {
                        tokio::time::sleep(apart).await;
                        let stamp = format!("<{}>", self.began.elapsed().as_nanos());
                        send(&mut stream, &format!(r#"{{"content":"{stamp}"}}"#), "null").await?;
                        self.state.lock().expect("no panic").seen.chunks += 1;
                    }
                    send(&mut stream, "{}", r#""stop""#).await?;
                }
                Plan::Tools { steps } if number <= steps => {
                    let call = format!(
                        r#"{{"tool_calls":[{{"index":0,"id":"c{number}","type":"function","function":{{"name":"bash","arguments":"{{\"command\":\"true #{number}\"}}"}}}}]}}"#
                    );
                    send(&mut stream, &call, "null").await?;
                    send(&mut stream, "{}", r#""tool_calls""#).await?;
                }
                Plan::Tools { .. } => send(&mut stream, r#"{"content":"over"}"#, r#""stop""#).await?,
            }
            chunk(&mut stream, "data: [DONE]\n\n").await?;
            stream.write_all(b"0\r\n\r\n").await?;
            self.state.lock().expect("no panic").seen.answered.push(Instant::now());
        }
        Ok(())
    }
}

/// The times in a text of the model, each since the model began.
pub fn stamps(text: &str) -> impl Iterator<Item = Duration> {
    text.split('<').filter_map(|piece| piece.split_once('>')?.0.parse().ok()).map(Duration::from_nanos)
}

/// Reads one request with its body; false at the end of the connection.
async fn read_request(stream: &mut TcpStream, received: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let whole = end + 4 + length.unwrap_or(0);
            if received.len() >= whole {
                received.drain(..whole);
                return Ok(true);
            }
        }
        if stream.read_buf(received).await? == 0 {
            return Ok(false);
        }
    }
}

async fn send(stream: &mut TcpStream, delta: &str, finish: &str) -> std::io::Result<()> {
    let json = format!(
        r#"{{"id":"x","object":"chat.completion.chunk","model":"demo","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
    );
    chunk(stream, &format!("data: {json}\n\n")).await
}

async fn chunk(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await
}
