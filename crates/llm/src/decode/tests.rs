#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod recorded;

use super::Decoder;
use crate::accumulate::{Accumulator, Answer, Block};
use crate::config::Protocol;
use crate::error::{Error, ErrorKind};
use crate::event::Event;

/// Decodes `bytes` in pieces of `piece` bytes and ends the connection.
pub(crate) fn events(protocol: Protocol, bytes: &[u8], piece: usize) -> (Vec<Event>, Result<(), Error>) {
    let mut decoder = Decoder::new(protocol);
    let mut events = Vec::new();
    for piece in bytes.chunks(piece) {
        if let Err(error) = decoder.push(piece, &mut events) {
            return (events, Err(error));
        }
    }
    let outcome = decoder.end(&mut events);
    (events, outcome)
}

/// The answer in `bytes`, and how the stream ended.
pub(crate) fn answer(protocol: Protocol, bytes: &[u8], piece: usize) -> (Answer, Result<(), Error>) {
    let (events, outcome) = events(protocol, bytes, piece);
    let finished = events.iter().filter(|event| matches!(event, Event::Finished { .. })).count();
    assert_eq!(finished, usize::from(outcome.is_ok()), "finished or failed, never both: {events:?}");
    let mut accumulator = Accumulator::default();
    events.iter().for_each(|event| accumulator.push(event));
    (accumulator.finish(), outcome)
}

pub(crate) fn usable_calls(answer: &Answer) -> usize {
    answer.blocks.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count()
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Anthropic, Protocol::OpenAiChat];

#[test]
fn what_is_no_event_stream_is_called_so() {
    for (body, kind, says) in [
        ("<!DOCTYPE html><html><body>Sign in</body></html>", ErrorKind::Protocol, "an HTML page"),
        ("{\"choices\":[]}", ErrorKind::Protocol, "begins with `{\"choices\":[]}`"),
        ("hello", ErrorKind::Protocol, "begins with `hello`"),
        ("data: {nonsense\n\n", ErrorKind::Protocol, "not JSON"),
        ("", ErrorKind::Truncated, "before its end"),
        (": keep-alive\n\n", ErrorKind::Truncated, "before its end"),
        ("dat", ErrorKind::Truncated, "before its end"),
    ] {
        for protocol in PROTOCOLS {
            let error = events(protocol, body.as_bytes(), 7).1.unwrap_err();
            assert_eq!(error.kind, kind, "{body}: {error}");
            assert!(error.message.contains(says), "{body}: {error}");
        }
    }
}

#[test]
fn garbage_is_a_protocol_error() {
    for protocol in PROTOCOLS {
        let error = events(protocol, b"data: \xff\xfe\x00\n\n", 3).1.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    }
}

#[test]
fn arguments_without_end_are_refused() {
    use domain::limits::TOOL_ARGUMENTS_BYTES_MAX;
    let piece = "x".repeat(1024 * 1024);
    let pieces = TOOL_ARGUMENTS_BYTES_MAX / piece.len() + 1;
    let anthropic = (
        "data: {\"type\":\"message_start\"}\n\ndata: {\"type\":\"content_block_start\",\"index\":0,\
         \"content_block\":{\"type\":\"tool_use\"}}\n\n"
            .to_owned(),
        format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":\"{piece}\"}}}}\n\n"
        ),
    );
    let openai = (
        String::new(),
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\
             \"function\":{{\"arguments\":\"{piece}\"}}}}]}}}}]}}\n\n"
        ),
    );
    for (protocol, (head, delta)) in PROTOCOLS.into_iter().zip([anthropic, openai]) {
        let body = head + &delta.repeat(pieces);
        let error = events(protocol, body.as_bytes(), body.len()).1.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{protocol:?}: {error}");
    }
}
