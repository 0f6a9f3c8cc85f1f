//! Malformed answers and how each protocol handles them.

use super::wire::{Wire, stop};
use super::{answer, events, usable_calls};
use crate::accumulate::{Block, Invalid};
use crate::error::ErrorKind;
use crate::event::{Event, Finish};
use crate::provider::Protocol;
use domain::limits::{MODEL_BLOCKS_MAX, PART_TEXT_BYTES_MAX, TOOL_ARGUMENTS_BYTES_MAX};
use domain::money::Tokens;
use serde_json::{Value, json};

const MEGABYTE: usize = 1024 * 1024;

#[test]
fn ten_thousand_one_byte_deltas_become_one_text() {
    for protocol in Protocol::ALL {
        let bytes = Wire::new(protocol).text(&vec!["\"x\""; 10_000]).end(stop(protocol));
        let (got, outcome) = answer(protocol, &bytes, 1);
        outcome.unwrap();
        assert_eq!(got.blocks, [Block::Text("x".repeat(10_000))], "{protocol:?}");
    }
}

#[test]
fn endless_texts_and_reasonings_end_with_a_named_error() {
    let piece = "x".repeat(MEGABYTE / 2);
    let pieces = vec![piece.as_str(); PART_TEXT_BYTES_MAX / piece.len() + 1];
    let quoted = format!("\"{piece}\"");
    for protocol in Protocol::ALL {
        for (bytes, says) in [
            (Wire::new(protocol).reasoning(&pieces).bytes(), "the model's reasoning is longer"),
            (Wire::new(protocol).text(&vec![quoted.as_str(); pieces.len()]).bytes(), "a text is longer"),
        ] {
            let (events, outcome) = events(protocol, &bytes, MEGABYTE);
            let error = outcome.unwrap_err();
            assert!(
                error.kind == ErrorKind::TooLarge && error.message.contains(says),
                "{protocol:?}: {error}"
            );
            assert!(!error.is_retryable(), "the next answer would be as long");
            let text_bytes: usize = events
                .iter()
                .map(|event| match event {
                    Event::Text { delta, .. } | Event::Reasoning { delta, .. } => delta.len(),
                    _ => 0,
                })
                .sum();
            assert_eq!(text_bytes, PART_TEXT_BYTES_MAX, "{protocol:?}: the text that fits was emitted");
        }
    }
}

#[test]
fn huge_arguments_are_refused() {
    let piece = "x".repeat(MEGABYTE);
    let mut pieces = vec!["\""];
    pieces.extend(vec![piece.as_str(); TOOL_ARGUMENTS_BYTES_MAX / piece.len() + 1]);
    pieces.push("\"");
    for protocol in Protocol::ALL {
        let bytes = Wire::new(protocol).call(&pieces).bytes();
        let error = events(protocol, &bytes, bytes.len()).1.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{protocol:?}: {error}");
    }
}

#[test]
fn blocks_without_end_are_refused() {
    for protocol in Protocol::ALL {
        let mut wire = Wire::new(protocol);
        for _ in 0..=MODEL_BLOCKS_MAX / 2 {
            wire = wire.reasoning(&["a"]).text(&["\"b\""]);
        }
        let (events, outcome) = events(protocol, &wire.end(stop(protocol)), MEGABYTE);
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::TooLarge, "{protocol:?}");
        assert!(events.len() < 4 * MODEL_BLOCKS_MAX, "{protocol:?}");
    }
}

#[test]
fn arguments_that_are_no_object_never_run() {
    for protocol in Protocol::ALL {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        for arguments in ["[1]", "\"ls\"", "7", "true", deep.as_str()] {
            let bytes = Wire::new(protocol).call(&[arguments]).end(stop(protocol));
            let (got, outcome) = answer(protocol, &bytes, 5);
            outcome.unwrap();
            let refused = matches!(&got.blocks[..], [Block::InvalidToolCall { reason: Invalid::NotAnObject, id, .. }] if id == "c1");
            assert!(refused, "{protocol:?} {arguments}: {got:?}");
        }
    }
}

#[test]
fn an_empty_answer_is_whole_and_empty() {
    for protocol in Protocol::ALL {
        for wire in [Wire::new(protocol), Wire::new(protocol).text(&["\"\""])] {
            let (got, outcome) = answer(protocol, &wire.end(stop(protocol)), 7);
            outcome.unwrap();
            let text: String = got
                .blocks
                .iter()
                .map(|block| match block {
                    Block::Text(text) => text.as_str(),
                    _ => panic!("{block:?}"),
                })
                .collect();
            assert_eq!((text.as_str(), got.finish.unwrap().0), ("", Finish::Stop), "{protocol:?}");
        }
    }
}

#[test]
fn an_answer_waits_for_tools_only_if_it_calls_some_whatever_its_reason_is_called() {
    for protocol in Protocol::ALL {
        let calls = match protocol {
            Protocol::Anthropic => "tool_use",
            Protocol::OpenAiChat => "tool_calls",
            Protocol::OpenAiResponses | Protocol::Gemini => stop(protocol),
        };
        // A response that reports itself as incomplete is cut, whatever the reason.
        let other = if protocol == Protocol::OpenAiResponses { Finish::Length } else { Finish::Other };
        for (raw, without) in [(stop(protocol), Finish::Stop), (calls, Finish::Stop), ("moon_phase", other)] {
            let with = if without == Finish::Length { Finish::Length } else { Finish::ToolCalls };
            let wire = || Wire::new(protocol).text(&["\"a\""]);
            for (bytes, want) in [(wire().end(raw), without), (wire().call(&["{}"]).end(raw), with)] {
                let (got, outcome) = answer(protocol, &bytes, 7);
                outcome.unwrap();
                assert_eq!(got.finish, Some((want, raw.to_owned())), "{protocol:?}");
                assert_eq!(usable_calls(&got), usize::from(want == Finish::ToolCalls), "{protocol:?} {raw}");
            }
        }
    }
}

#[test]
fn an_error_is_an_error_in_any_framing() {
    let error = json!({"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}});
    let lines = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    for protocol in Protocol::ALL {
        // A chat without an end mark and Gemini's answers end with the connection: an error may follow their reason.
        let begun = Wire::new(protocol).text(&["\"a\""]).call(&["{}"]);
        let wires = match protocol {
            Protocol::Anthropic | Protocol::OpenAiResponses => vec![begun.bytes()],
            Protocol::OpenAiChat | Protocol::Gemini => {
                let done = Wire::new(protocol).text(&["\"a\""]).call(&["{}"]).end(stop(protocol));
                let done = String::from_utf8(done).unwrap().replace("data: [DONE]\n\n", "");
                vec![begun.bytes(), done.into_bytes()]
            }
        };
        for (framing, tail) in [
            ("an event", format!("data: {error}\n\n")),
            (
                "an event of its own name",
                "event: error\ndata: {\"code\":503,\"message\":\"busy\"}\n\n".to_owned(),
            ),
            ("a list in an event", format!("data: [{error}]\n\n")),
            ("a bare line", format!("{error}\n")),
            ("a bare line without its end", error.to_string()),
            ("a bare list", format!("\n[{error}]\r\n\r\n")),
            ("bare lines", format!("{}\n", lines(&error))),
            ("bare lines without an end", lines(&error)),
            ("bare lines of a list", lines(&json!([error])).replace('\n', "\r\n")),
            ("after other bare lines", format!("note: x\n{{\n}}\n[1\n]\n{error}\n")),
        ] {
            for wire in &wires {
                let bytes = [wire, tail.as_bytes()].concat();
                for piece in [bytes.len(), 1] {
                    let (got, outcome) = answer(protocol, &bytes, piece);
                    let error = outcome.expect_err(framing);
                    assert_eq!(error.kind, ErrorKind::Overloaded, "{protocol:?} {framing}: {error}");
                    assert!(error.message.contains("busy"), "{protocol:?} {framing}: {error}");
                    assert_eq!(usable_calls(&got), 0, "{protocol:?} {framing}");
                }
            }
        }
    }
}

#[test]
fn bare_lines_that_report_no_error_are_ignored() {
    let many = format!("[\n{}", "1,\n".repeat(20_000));
    for protocol in Protocol::ALL {
        let wire = Wire::new(protocol).text(&["\"a\""]).end(stop(protocol));
        for head in ["{\"note\":1}\n", "{\n", "{\"error\":null}\n", "]\n", many.as_str()] {
            let bytes = [head.as_bytes(), &wire].concat();
            let (got, outcome) = answer(protocol, &bytes, 1_000);
            outcome.unwrap();
            assert_eq!(got.blocks, [Block::Text("a".to_owned())], "{protocol:?} {head:.20}");
        }
    }
}

#[test]
fn usage_that_is_missing_negative_or_repeated_does_no_harm() {
    let used = |input, output| Some(Tokens { input, output, ..Tokens::default() });
    for protocol in Protocol::ALL {
        let bytes = Wire::new(protocol).text(&["\"a\""]).end(stop(protocol));
        let (got, outcome) = answer(protocol, &bytes, 7);
        outcome.unwrap();
        assert_eq!(got.tokens, None, "{protocol:?}: missing");
        if protocol == Protocol::OpenAiResponses {
            for (usage, want) in [
                (json!({"input_tokens":-5,"output_tokens":1e30}), used(0, 0)),
                (
                    json!({"input_tokens":5,"output_tokens":2,"input_tokens_details":{"cached_tokens":9}}),
                    Some(Tokens { input: 0, output: 2, cache_read: 9, ..Tokens::default() }),
                ),
                (json!("many"), None),
            ] {
                let bytes = Wire::new(protocol).end_with("completed", &usage);
                assert_eq!(answer(protocol, &bytes, 7).0.tokens, want, "{usage}");
            }
            continue;
        }
        let wire = || Wire::new(protocol).text(&["\"a\""]);
        let twice = wire().usage([json!(7), json!(1)]).usage([json!(7), json!(3)]).end(stop(protocol));
        assert_eq!(
            answer(protocol, &twice, 7).0.tokens,
            used(7, 3),
            "{protocol:?}: the last one counts, once"
        );
        let broken = wire().usage([json!(-7), json!(u64::MAX)]).end(stop(protocol));
        assert!(matches!(
            answer(protocol, &broken, 7).0.tokens,
            None | Some(Tokens { input: 0, output: 0, .. })
        ));
    }
}

#[test]
fn characters_are_split_anywhere_and_broken_ones_end_the_answer() {
    for protocol in Protocol::ALL {
        let whole = Wire::new(protocol).text(&["\"Grüße \"", "\"東京 😀\""]).end(stop(protocol));
        for piece in 1..5 {
            let (got, outcome) = answer(protocol, &whole, piece);
            outcome.unwrap();
            assert_eq!(got.blocks, [Block::Text("Grüße 東京 😀".to_owned())], "{protocol:?}");
        }
        let face = whole.windows(4).position(|bytes| bytes == "😀".as_bytes()).unwrap();
        for at in face..face + 4 {
            let mut broken = whole.clone();
            broken[at] = 0xff;
            let (got, outcome) = answer(protocol, &broken, 1);
            assert_eq!(outcome.unwrap_err().kind, ErrorKind::Protocol, "{protocol:?}");
            assert_eq!(got.finish, None);
        }
    }
}

#[test]
fn halves_of_surrogate_pairs_are_joined_or_become_a_mark() {
    for protocol in Protocol::ALL {
        let wire = Wire::new(protocol).text(&[r#""a\ud83d""#, r#""\ude00b \ud83d\ude00""#]);
        let (got, outcome) = answer(protocol, &wire.end(stop(protocol)), 3);
        outcome.unwrap();
        assert_eq!(got.blocks, [Block::Text("a😀b 😀".to_owned())], "{protocol:?}");
        let wire = Wire::new(protocol).text(&[r#""a\ud83d""#, r#""b""#]);
        let (got, outcome) = answer(protocol, &wire.end(stop(protocol)), 3);
        outcome.unwrap();
        assert_eq!(got.blocks, [Block::Text("a\u{fffd}b".to_owned())], "{protocol:?}");
        let wire = Wire::new(protocol).call(&["{\"a\":\"\\ud8", "3d\"}"]);
        let (got, outcome) = answer(protocol, &wire.end(stop(protocol)), 3);
        outcome.unwrap();
        let input = json!({"a":"\u{fffd}"});
        let call = Block::ToolCall { id: "c1".to_owned(), name: "bash".to_owned(), input };
        assert_eq!(got.blocks, [call], "{protocol:?}");
    }
}
