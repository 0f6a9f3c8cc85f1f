#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
//! Tests against the scripted model over loopback: a real server, real bytes, real faults.

use super::Client;
use crate::accumulate::{AccumulatedAnswer, Accumulator, Block};
use crate::error::{Error, ErrorKind};
use crate::event::Finish;
use crate::provider::{ApiKey, Protocol, Provider};
use crate::request::{AssistantPart, Message, Request, ToolResult, UserPart};
use domain::money::Tokens;
use futures::StreamExt;
use model_script::journal::Journal;
use model_script::script::Script;
use model_script::serve;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Long enough for a loaded machine to send a head, short enough for a test to wait.
const SHORT_MS: u64 = 500;

/// A scripted model that stops at the end of the test.
struct Server {
    base_url: String,
    journal: Journal,
    _stop: oneshot::Sender<()>,
}

impl Server {
    async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let journal = script.journal();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(serve(listener, script, async move {
            let _: Result<(), _> = stopped.await;
        }));
        Self { base_url, journal, _stop: stop }
    }

    fn provider(&self, protocol: Protocol) -> Provider {
        let mut provider = Provider::new("scripted", protocol, &self.base_url);
        provider.api_key = Some(ApiKey::new("sk-1"));
        provider
    }
}

fn prompt(text: &str) -> Request {
    Request {
        model: "scripted".to_owned(),
        messages: vec![Message::User(vec![UserPart::Text(text.to_owned())])],
        output_tokens_max: 1_000,
        cache_key: "ses_1".to_owned(),
        ..Request::default()
    }
}

async fn ask(
    client: &Client,
    provider: &Provider,
    request: &Request,
) -> (AccumulatedAnswer, Result<(), Error>) {
    let mut accumulator = Accumulator::default();
    let model = crate::catalogue::find_or_default("scripted");
    let headers = vec![("x-session-id".to_owned(), "ses_1".to_owned())];
    let mut stream = match client.stream(provider, &model, request.clone(), headers).await {
        Ok(stream) => stream,
        Err(error) => return (accumulator.finish(), Err(error)),
    };
    let mut outcome = Ok(());
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => accumulator.push(&event),
            Err(error) => outcome = Err(error),
        }
    }
    assert!(stream.next().await.is_none(), "a stream ends once");
    (accumulator.finish(), outcome)
}

#[tokio::test]
async fn a_whole_answer_arrives_in_every_protocol() {
    let client = Client::new().unwrap();
    let server = Server::start(Script::default()).await;
    let text = "@chunk 3\n@reason think hard\n@text Grüße 😀!\n@usage input=7 output=5 cache_read=3 cache_write=2\n\
        @tools\n@tool bash {\"command\":\"true\"}\n@tool list";
    for protocol in Protocol::ALL {
        let (mut answer, outcome) = ask(&client, &server.provider(protocol), &prompt(text)).await;
        outcome.unwrap();
        // Gemini's calls are signed, and the signature comes before them.
        let is_mark = |block: &Block| matches!(block, Block::Reasoning { text, .. } if text.is_empty());
        assert_eq!(
            answer.blocks.iter().filter(|block| is_mark(block)).count(),
            usize::from(protocol == Protocol::Gemini)
        );
        answer.blocks.retain(|block| !is_mark(block));
        let [
            Block::Reasoning { text, signature, details, .. },
            text_block,
            Block::ToolCall { name, input, .. },
            list,
        ] = answer.blocks.as_slice()
        else {
            panic!("{:?}", answer.blocks)
        };
        assert_eq!((text.as_str(), signature.is_some()), ("think hard", protocol == Protocol::Anthropic));
        assert_eq!(details.is_some(), protocol == Protocol::OpenAiResponses);
        assert_eq!(text_block, &Block::Text("Grüße 😀!".to_owned()));
        assert_eq!((name.as_str(), input), ("bash", &json!({"command":"true"})));
        assert!(matches!(list, Block::ToolCall { name, .. } if name == "list"), "{list:?}");
        // Gemini does not report cache writes.
        let (input, cache_write) = if protocol == Protocol::Gemini { (9, 0) } else { (7, 2) };
        let tokens = Tokens { input, output: 5, reasoning: 0, cache_read: 3, cache_write };
        assert_eq!(answer.tokens, Some(tokens));
        assert_eq!((answer.model.as_str(), answer.finish.unwrap().0), ("scripted", Finish::ToolCalls));
    }
}

#[test]
fn a_stream_may_move_between_tasks() {
    fn check<T: Send + Unpin>() {}
    check::<super::stream::EventStream>();
}

#[tokio::test]
async fn a_key_that_no_header_can_carry_is_refused_at_once() {
    let client = Client::new().unwrap();
    let mut provider = Provider::new("p", Protocol::Anthropic, "http://127.0.0.1:1");
    provider.api_key = Some(ApiKey::new("a\nb"));
    let error = ask(&client, &provider, &prompt("hi")).await.1.unwrap_err();
    assert_eq!((error.kind, error.is_retryable()), (ErrorKind::Invalid, false), "{error}");
}

#[tokio::test]
async fn keys_and_headers_go_where_the_protocol_wants_them() {
    let client = Client::new().unwrap();
    let server = Server::start(Script::default()).await;
    for protocol in Protocol::ALL {
        ask(&client, &server.provider(protocol), &prompt("hi")).await.1.unwrap();
    }
    let requests = server.journal.requests();
    let header = |at: usize, name: &str| requests[at].headers.get(name).map(String::as_str);
    assert_eq!((requests[0].path.as_str(), header(0, "x-api-key")), ("/v1/messages", Some("sk-1")));
    assert_eq!((header(0, "anthropic-version"), header(0, "authorization")), (Some("2023-06-01"), None));
    assert_eq!(requests[1].path, "/v1/chat/completions");
    assert_eq!((header(1, "authorization"), header(1, "x-api-key")), (Some("Bearer sk-1"), None));
    assert_eq!(
        (requests[2].path.as_str(), header(2, "authorization")),
        ("/v1/responses", Some("Bearer sk-1"))
    );
    assert_eq!(requests[3].path, "/v1beta/models/scripted:streamGenerateContent", "no key in the address");
    assert_eq!((header(3, "x-goog-api-key"), header(3, "authorization")), (Some("sk-1"), None));
    for (at, request) in requests.iter().enumerate() {
        assert_eq!(
            (header(at, "x-session-affinity"), header(at, "x-session-id")),
            (Some("ses_1"), Some("ses_1"))
        );
        assert!(request.body["stream"] == true || at == 3);
    }
}

#[tokio::test]
async fn each_refusal_gets_its_kind() {
    let client = Client::new().unwrap();
    let server = Server::start(Script::default()).await;
    for (directive, kind, retry_after_ms, retryable) in [
        ("@status 401", ErrorKind::Auth, None, false),
        ("@status 404", ErrorKind::NotFound, None, false),
        ("@status 413", ErrorKind::Overflow, None, false),
        ("@status 429 retry-after-ms=50", ErrorKind::RateLimited, Some(50), true),
        ("@status 429 retry-after=2", ErrorKind::RateLimited, Some(2_000), true),
        ("@status 500", ErrorKind::Server, None, true),
        ("@status 529", ErrorKind::Overloaded, None, true),
        ("@delay soon", ErrorKind::Invalid, None, false),
    ] {
        for protocol in Protocol::ALL {
            let provider = server.provider(protocol);
            let request = prompt(&format!("{directive}\n@text done"));
            let error = ask(&client, &provider, &request).await.1.unwrap_err();
            let got = (error.kind, error.retry_after_ms, error.is_retryable());
            assert_eq!(got, (kind, retry_after_ms, retryable), "{protocol:?} {directive}: {error}");
            assert!(error.message.starts_with("scripted: "), "{error}");
        }
    }
    let request = prompt("@status 503 times=2\n@text done");
    let provider = server.provider(Protocol::Anthropic);
    assert!(ask(&client, &provider, &request).await.1.is_err());
    assert!(ask(&client, &provider, &request).await.1.is_err());
    assert_eq!(ask(&client, &provider, &request).await.0.blocks, [Block::Text("done".to_owned())]);
}

#[tokio::test]
async fn a_broken_answer_fails_after_its_earlier_events() {
    let client = Client::new().unwrap();
    let server = Server::start(Script::default()).await;
    for (directive, kind, partial_text) in [
        ("@html", ErrorKind::Protocol, ""),
        ("@garbage", ErrorKind::Protocol, ""),
        ("@garbage 2", ErrorKind::Protocol, "abcd"),
        ("@cut 2", ErrorKind::Transport, "abcd"),
        ("@cut 2 clean", ErrorKind::Truncated, "abcd"),
        ("@cut 99 clean", ErrorKind::Truncated, "abcdefgh"),
        ("@stall", ErrorKind::Timeout, ""),
        ("@stall 2", ErrorKind::Timeout, "abcd"),
    ] {
        for protocol in Protocol::ALL {
            let mut provider = server.provider(protocol);
            if directive.starts_with("@stall") {
                (provider.header_timeout_ms, provider.chunk_timeout_ms) = (SHORT_MS, SHORT_MS);
            }
            let request = prompt(&format!("{directive}\n@chunk 2\n@text abcdefgh"));
            let (answer, outcome) = ask(&client, &provider, &request).await;
            assert_eq!(outcome.unwrap_err().kind, kind, "{protocol:?} {directive}");
            assert_eq!(answer.finish, None, "{protocol:?} {directive}");
            let text = match answer.blocks.as_slice() {
                [Block::Text(text)] => text.as_str(),
                _ => "",
            };
            assert_eq!(text, partial_text, "{protocol:?} {directive}");
        }
    }
}

#[tokio::test]
async fn a_wrong_address_or_an_answer_without_a_stream_is_named_in_the_error() {
    let client = Client::new().unwrap();
    let server = Server::start(Script::default()).await;
    let mut provider = server.provider(Protocol::OpenAiChat);
    provider.base_url = format!("{}/nowhere", server.base_url);
    let error = ask(&client, &provider, &prompt("hi")).await.1.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    let error = super::mistaken(b"{\"object\":\"list\"}");
    assert_eq!(error.kind, ErrorKind::Protocol);
    let error = super::mistaken(b"{\"error\":{\"message\":\"prompt is too long\"}}");
    assert_eq!(error.kind, ErrorKind::Overflow);
}

#[tokio::test]
async fn a_closed_port_gives_a_retryable_transport_error() {
    let client = Client::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = ask(&client, &Provider::new("gone", Protocol::Anthropic, base_url), &prompt("hi"))
        .await
        .1
        .unwrap_err();
    assert_eq!((error.kind, error.is_retryable()), (ErrorKind::Transport, true), "{error}");
    assert!(error.message.starts_with("gone: the connection to the provider failed"), "{error}");
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let client = Client::new().unwrap();
    let server = Server::start(Script::default()).await;
    let model = crate::catalogue::find_or_default("scripted");
    for protocol in Protocol::ALL {
        let provider = server.provider(protocol);
        let request = prompt("@chunk 1\n@stall 1\n@text hello");
        let mut stream = client.stream(&provider, &model, request, Vec::new()).await.unwrap();
        stream.next().await.unwrap().unwrap();
        drop(stream);
        server.journal.wait_until_idle().await;
    }
}

#[tokio::test]
async fn the_demonstration_script_completes() {
    let client = Client::new().unwrap();
    let server = Server::start(Script::demo().unwrap()).await;
    for protocol in Protocol::ALL {
        let provider = server.provider(protocol);
        let mut request = prompt("Fix the failing tests");
        let mut called = Vec::new();
        let last = loop {
            let (answer, outcome) = ask(&client, &provider, &request).await;
            outcome.unwrap();
            let (mut parts, mut results) = (Vec::new(), Vec::new());
            for block in &answer.blocks {
                match block {
                    Block::Text(text) => parts.push(AssistantPart::text(text.clone())),
                    Block::ToolCall { id, name, input } => {
                        called.push(name.clone());
                        let (id, name) = (id.clone(), name.clone());
                        parts.push(AssistantPart::ToolCall {
                            id: id.clone(),
                            name: name.clone(),
                            input: input.clone(),
                        });
                        let text = "ok 1".to_owned().into();
                        results.push(ToolResult { call_id: id, name, text, ..ToolResult::default() });
                    }
                    Block::Reasoning { text, signature, redacted, details } => {
                        parts.push(AssistantPart::Reasoning {
                            text: text.clone(),
                            signature: signature.clone(),
                            redacted: redacted.clone(),
                            details: details.clone(),
                        });
                    }
                    Block::InvalidToolCall { .. } => {}
                }
            }
            if results.is_empty() {
                break answer;
            }
            request.messages.extend([Message::Assistant(parts), Message::ToolResults(results)]);
        };
        assert_eq!(called, ["bash", "read", "edit", "bash"]);
        assert!(matches!(&last.blocks[..], [Block::Text(text)] if text.contains("ok 1")), "{last:?}");
    }
}

#[tokio::test]
async fn a_stopping_server_also_closes_silent_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, Script::default(), async move {
        let _: Result<(), _> = stopped.await;
    }));
    let provider = Provider::new("scripted", Protocol::OpenAiChat, base_url);
    let model = crate::catalogue::find_or_default("scripted");
    let request = prompt("@stall 1\n@text hello");
    let mut stream = Client::new().unwrap().stream(&provider, &model, request, Vec::new()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    stop.send(()).unwrap();
    let mut last = None;
    while let Some(event) = stream.next().await {
        last = Some(event);
    }
    assert_eq!(last.unwrap().unwrap_err().kind, ErrorKind::Transport);
    server.await.unwrap().unwrap();
}
