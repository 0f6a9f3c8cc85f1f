//! The far end of a benchmark: OpenAI Chat Completions over plain sockets, with the time in each chunk. It reports usage at the end of each answer, as
//! providers do.

use rand::{SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Number of words in one chunk of [`Plan::Words`], as from a fast model.
const WORDS_OF_CHUNK: usize = 16;
/// The most common words of English.
const WORDS: [&str; 60] = [
    "the", "be", "to", "of", "and", "a", "in", "that", "have", "it", "for", "not", "on", "with", "he", "as",
    "you", "do", "at", "this", "but", "his", "by", "from", "they", "we", "say", "her", "she", "or", "an",
    "will", "my", "one", "all", "would", "there", "their", "what", "so", "up", "out", "if", "about", "who",
    "get", "which", "go", "me", "when", "make", "can", "like", "time", "no", "just", "him", "know", "take",
    "people",
];

/// The chunk with the usage, before the end of an answer.
const USAGE: &str = concat!(
    r#"data: {"id":"x","object":"chat.completion.chunk","model":"demo","choices":[],"#,
    r#""usage":{"prompt_tokens":2000,"completion_tokens":40,"total_tokens":2040,"prompt_tokens_details":{"cached_tokens":1800}}}"#,
    "\n\n"
);

/// The next answers of the model.
#[derive(Debug, Clone, Copy)]
pub enum Plan {
    /// A text in chunks, each with the time at which it was sent.
    Text { chunks: usize, apart: Duration },
    /// A text of common words in random order.
    Words { chunks: usize, apart: Duration },
    /// Steps with one call each, and then a word.
    Tools {
        /// Number of steps of each session.
        steps: usize,
        call: Call,
    },
}

/// The tool call of the model.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    /// `bash true`.
    True,
    /// A to-do list, which needs no sandbox.
    Todos,
    /// A file that is overwritten.
    Write,
    /// The root of the workspace.
    Read,
}

impl Call {
    /// Returns the tool and its arguments for a step.
    fn arguments(self, number: usize) -> (&'static str, serde_json::Value) {
        match self {
            Self::True => ("bash", serde_json::json!({"command": format!("true #{number}")})),
            Self::Todos => {
                let todo = serde_json::json!({"content": format!("step {number}"), "status": "pending", "priority": "low"});
                ("todowrite", serde_json::json!({"todos": [todo]}))
            }
            Self::Write => {
                let content = format!("{number}\n");
                ("write", serde_json::json!({"filePath": "/workspace/written", "content": content}))
            }
            Self::Read => ("read", serde_json::json!({"filePath": "/workspace", "limit": 1_000 + number})),
        }
    }
}

/// The requests since the last plan.
#[derive(Debug, Default)]
pub struct RequestLog {
    /// When each request had arrived completely.
    pub requests: Vec<Instant>,
    /// When the last byte of each answer was written.
    pub answers: Vec<Instant>,
    /// Number of chunks that were written.
    pub chunks: usize,
    /// The same times by session, for sessions that run at once.
    pub sessions: BTreeMap<String, SessionLog>,
}

/// The requests of one session since the last plan.
#[derive(Debug, Default)]
pub struct SessionLog {
    requests: Vec<Instant>,
    answers: Vec<Instant>,
}

impl SessionLog {
    /// How long each step took: from the end of an answer to the next request.
    pub fn steps(&self) -> impl Iterator<Item = Duration> {
        self.answers.iter().zip(self.requests.iter().skip(1)).map(|(answer, next)| *next - *answer)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelProgress {
    pub requests: usize,
    /// Number of chunks that were written.
    pub chunks: usize,
}

/// A model on a loopback port. It runs until the process exits.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its address, without `/v1`.
    pub url: String,
    /// The start of the times in its chunks.
    pub began: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    plan: Plan,
    /// Time before the first chunk of an answer.
    thinking: Duration,
    log: RequestLog,
    /// Sessions that receive one word as their answer and are not recorded.
    ignored: BTreeSet<String>,
}

impl State {
    fn session_log(&mut self, session_id: &str) -> &mut SessionLog {
        self.log.sessions.entry(session_id.to_owned()).or_default()
    }
}

impl Model {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let plan = Plan::Tools { steps: 0, call: Call::True };
        let state =
            State { plan, thinking: Duration::ZERO, log: RequestLog::default(), ignored: BTreeSet::new() };
        let model = Self { url, began: Instant::now(), state: Arc::new(Mutex::new(state)) };
        let server = model.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("a socket");
                let server = server.clone();
                // A client that disconnects ends only its connection.
                tokio::spawn(async move { server.serve(stream).await.ok() });
            }
        });
        model
    }

    /// Sets the answers from now on.
    pub fn plan(&self, plan: Plan) {
        let mut state = self.state.lock().expect("no panic");
        (state.plan, state.log) = (plan, RequestLog::default());
    }

    /// Sets the time before the first chunk of each answer; none without a call.
    pub fn think_for(&self, time: Duration) {
        self.state.lock().expect("no panic").thinking = time;
    }

    /// Ignores the plan for a session: it receives one word as its answer and is not recorded.
    pub fn ignore(&self, session_id: &str) {
        self.state.lock().expect("no panic").ignored.insert(session_id.to_owned());
    }

    /// Returns the progress since the last plan.
    pub fn progress(&self) -> ModelProgress {
        let state = self.state.lock().expect("no panic");
        ModelProgress { requests: state.log.requests.len(), chunks: state.log.chunks }
    }

    /// Takes the requests since the last plan.
    pub fn take(&self) -> RequestLog {
        std::mem::take(&mut self.state.lock().expect("no panic").log)
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut received = vec![];
        while let Some(session_id) = read_request(&mut stream, &mut received).await? {
            let (plan, thinking, number, is_ignored) = {
                let mut state = self.state.lock().expect("no panic");
                let is_ignored = state.ignored.contains(&session_id);
                if !is_ignored {
                    let now = Instant::now();
                    state.log.requests.push(now);
                    state.session_log(&session_id).requests.push(now);
                }
                let number = state.session_log(&session_id).requests.len();
                (state.plan, state.thinking, number, is_ignored)
            };
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            if !thinking.is_zero() {
                tokio::time::sleep(thinking).await;
            }
            match plan {
                Plan::Text { chunks, apart } if !is_ignored => {
                    for _ in 0..chunks {
                        tokio::time::sleep(apart).await;
                        let stamp = format!("<{}>", self.began.elapsed().as_nanos());
                        send(&mut stream, &format!(r#"{{"content":"{stamp}"}}"#), "null").await?;
                        self.state.lock().expect("no panic").log.chunks += 1;
                    }
                    send(&mut stream, "{}", r#""stop""#).await?;
                }
                Plan::Words { chunks, apart } if !is_ignored => {
                    let mut random = StdRng::seed_from_u64(1);
                    for _ in 0..chunks {
                        tokio::time::sleep(apart).await;
                        let words = (0..WORDS_OF_CHUNK).filter_map(|_| WORDS.choose(&mut random).copied());
                        let words = words.collect::<Vec<_>>().join(" ");
                        send(&mut stream, &format!(r#"{{"content":"{words} "}}"#), "null").await?;
                    }
                    send(&mut stream, "{}", r#""stop""#).await?;
                }
                Plan::Tools { steps, call } if number <= steps && !is_ignored => {
                    let (name, arguments) = call.arguments(number);
                    let arguments = serde_json::Value::from(arguments.to_string());
                    let call = format!(
                        r#"{{"tool_calls":[{{"index":0,"id":"c{number}","type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}]}}"#
                    );
                    send(&mut stream, &call, "null").await?;
                    send(&mut stream, "{}", r#""tool_calls""#).await?;
                }
                Plan::Text { .. } | Plan::Words { .. } | Plan::Tools { .. } => {
                    send(&mut stream, r#"{"content":"over"}"#, r#""stop""#).await?
                }
            }
            chunk(&mut stream, USAGE).await?;
            chunk(&mut stream, "data: [DONE]\n\n").await?;
            stream.write_all(b"0\r\n\r\n").await?;
            if !is_ignored {
                let mut state = self.state.lock().expect("no panic");
                let now = Instant::now();
                state.log.answers.push(now);
                state.session_log(&session_id).answers.push(now);
            }
        }
        Ok(())
    }
}

/// Returns the times in a text of the model, each since the start of the model.
pub fn stamps(text: &str) -> impl Iterator<Item = Duration> {
    text.split('<').filter_map(|piece| piece.split_once('>')?.0.parse().ok()).map(Duration::from_nanos)
}

/// Reads one request with its body, and returns the session in its header, or an empty string; `None` at the end of the
/// connection.
async fn read_request(stream: &mut TcpStream, received: &mut Vec<u8>) -> std::io::Result<Option<String>> {
    loop {
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&received[..end]).into_owned();
            let field = |name: &str| {
                let mut lines = head.lines().filter_map(|line| line.split_once(':'));
                lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned()))
            };
            let length = field("content-length").and_then(|length| length.parse().ok());
            let whole = end + 4 + length.unwrap_or(0);
            if received.len() >= whole {
                received.drain(..whole);
                return Ok(Some(field("x-session-id").unwrap_or_default()));
            }
        }
        if stream.read_buf(received).await? == 0 {
            return Ok(None);
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
