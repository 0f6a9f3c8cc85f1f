#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad;
mod recorded;
mod wire;

use super::Decoder;
use crate::accumulate::{AccumulatedAnswer, Accumulator, Block};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::provider::Protocol;

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
pub(crate) fn answer(
    protocol: Protocol,
    bytes: &[u8],
    piece: usize,
) -> (AccumulatedAnswer, Result<(), Error>) {
    let (events, outcome) = events(protocol, bytes, piece);
    let finished = events.iter().filter(|event| matches!(event, Event::Finished { .. })).count();
    assert_eq!(finished, usize::from(outcome.is_ok()), "finished or failed, never both: {events:?}");
    let mut accumulator = Accumulator::default();
    events.iter().for_each(|event| accumulator.push(event));
    (accumulator.finish(), outcome)
}

pub(crate) fn usable_calls(answer: &AccumulatedAnswer) -> usize {
    answer.blocks.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count()
}

#[test]
fn an_answer_that_is_not_an_event_stream_is_named_so() {
    for (body, kind, says) in [
        ("<!DOCTYPE html><html><body>Sign in</body></html>", ErrorKind::Protocol, "an HTML page"),
        ("{\"choices\":[]}", ErrorKind::Protocol, "begins with `{\"choices\":[]}`"),
        ("hello", ErrorKind::Protocol, "begins with `hello`"),
        ("data: {nonsense\n\n", ErrorKind::Protocol, "not JSON"),
        ("", ErrorKind::Truncated, "before it was complete"),
        (": keep-alive\n\n", ErrorKind::Truncated, "before it was complete"),
        ("dat", ErrorKind::Truncated, "before it was complete"),
    ] {
        for protocol in Protocol::ALL {
            let error = events(protocol, body.as_bytes(), 7).1.unwrap_err();
            assert_eq!(error.kind, kind, "{body}: {error}");
            assert!(error.message.contains(says), "{body}: {error}");
        }
    }
}

#[test]
fn garbage_is_a_protocol_error() {
    for protocol in Protocol::ALL {
        let error = events(protocol, b"data: \xff\xfe\x00\n\n", 3).1.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    }
}
