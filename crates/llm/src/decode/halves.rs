//! Joins characters whose two halves came in two pieces of an answer: a server that cuts its text between UTF-16 units sends them as unpaired
//! surrogates, and clients in JavaScript join them without noticing.

use crate::{
    event::Event,
    json::{self, Half},
};
use std::collections::BTreeMap;

/// The halves at the ends of the pieces so far, by block.
#[derive(Debug, Default)]
pub(super) struct Halves(BTreeMap<u32, Event>);

impl Halves {
    /// Joins the halves in the events from position `from` on. A half that stays alone becomes U+FFFD.
    pub(super) fn join(&mut self, events: &mut Vec<Event>, from: usize) {
        let has_half = |event: &Event| piece(event).is_some_and(|(_, delta)| json::has_half(delta));
        if self.0.is_empty() && !events[from..].iter().any(has_half) {
            return;
        }
        for event in events.split_off(from) {
            match &event {
                Event::BlockEnd { index, .. } | Event::ReasoningEnd { index, .. } => {
                    events.extend(self.0.remove(index).map(alone));
                }
                Event::Finished { .. } => events.extend(std::mem::take(&mut self.0).into_values().map(alone)),
                Event::Text { .. }
                | Event::Reasoning { .. }
                | Event::ToolArguments { .. }
                | Event::Started { .. }
                | Event::TextStart { .. }
                | Event::ReasoningStart { .. }
                | Event::ToolStart { .. }
                | Event::Usage(_) => {}
            }
            events.extend(self.piece(event));
        }
    }

    /// A piece with whole characters; `None` if nothing of it is left. Other events stay as they are.
    fn piece(&mut self, event: Event) -> Option<Event> {
        let Some((index, delta)) = piece(&event) else { return Some(event) };
        let held = self.0.remove(&index);
        let before = held.as_ref().and_then(piece).map_or("", |(_, half)| half);
        let text = format!("{before}{delta}");
        let (whole, rest) = json::join(&text);
        if let Some(Half(half)) = rest {
            self.0.insert(index, with(&event, half.to_owned()));
        }
        (!whole.is_empty()).then(|| with(&event, whole))
    }
}

/// The piece for a half whose other half did not come.
fn alone(half: Event) -> Event {
    with(&half, char::REPLACEMENT_CHARACTER.to_string())
}

/// The block and the text of a piece.
fn piece(event: &Event) -> Option<(u32, &str)> {
    match event {
        Event::Text { index, delta }
        | Event::Reasoning { index, delta }
        | Event::ToolArguments { index, delta } => Some((*index, delta)),
        Event::Started { .. }
        | Event::TextStart { .. }
        | Event::ReasoningStart { .. }
        | Event::ReasoningEnd { .. }
        | Event::ToolStart { .. }
        | Event::BlockEnd { .. }
        | Event::Usage(_)
        | Event::Finished { .. } => None,
    }
}

/// The same piece with another text.
fn with(event: &Event, text: String) -> Event {
    let mut event = event.clone();
    if let Event::Text { delta, .. } | Event::Reasoning { delta, .. } | Event::ToolArguments { delta, .. } =
        &mut event
    {
        *delta = text;
    }
    event
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crate::{
        accumulate::{Accumulator, Block},
        decode::Decoder,
        provider::Protocol,
    };
    use proptest::prelude::*;
    use serde_json::json;

    /// A JSON string whose units are all escaped.
    fn escaped(units: &[u16]) -> String {
        let units: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
        format!("\"{units}\"")
    }

    /// The text and the arguments of an answer whose pieces have these UTF-16 units.
    fn answer(protocol: Protocol, pieces: &[&[u16]]) -> (String, String) {
        let mut stream = String::new();
        let mut event = |data: &str| stream.push_str(&format!("data: {data}\n\n"));
        match protocol {
            Protocol::Anthropic => {
                event(r#"{"type":"message_start","message":{"model":"m"}}"#);
                event(
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                );
                for piece in pieces {
                    let text = escaped(piece);
                    event(&format!(
                        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{text}}}}}"#
                    ));
                }
                event(r#"{"type":"content_block_stop","index":0}"#);
                event(
                    r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"write"}}"#,
                );
                for piece in pieces {
                    let text = escaped(piece);
                    event(&format!(
                        r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":{text}}}}}"#
                    ));
                }
                event(r#"{"type":"content_block_stop","index":1}"#);
                event(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#);
                event(r#"{"type":"message_stop"}"#);
            }
            _ => {
                for piece in pieces {
                    event(&format!(
                        r#"{{"choices":[{{"index":0,"delta":{{"content":{}}}}}]}}"#,
                        escaped(piece)
                    ));
                }
                let call = |name: &str, arguments: &str| {
                    format!(
                        r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"c","function":{{"name":"{name}","arguments":{arguments}}}}}]}}}}]}}"#
                    )
                };
                event(&call("write", "\"\""));
                for piece in pieces {
                    event(&call("", &escaped(piece)));
                }
                event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#);
                event("[DONE]");
            }
        }
        let (mut decoder, mut events) = (Decoder::new(protocol), vec![]);
        decoder.push(stream.as_bytes(), &mut events).unwrap();
        decoder.end(&mut events).unwrap();
        let mut accumulator = Accumulator::default();
        events.iter().for_each(|event| accumulator.push(event));
        let (mut text, mut arguments) = (String::new(), String::new());
        for block in accumulator.finish().blocks {
            match block {
                Block::Text(own) => text.push_str(&own),
                Block::ToolCall { input, .. } => arguments = input["a"].as_str().unwrap().to_owned(),
                other => panic!("{other:?}"),
            }
        }
        (text, arguments)
    }

    proptest! {
        #[test]
        fn an_answer_may_be_cut_between_any_two_units(
            text in "[a🚀é\u{fdd0}\u{10f83d}\\\\\"]{0,8}",
            cuts in prop::collection::vec(0..60_usize, 0..6),
        ) {
            let whole = json!({"a": text}).to_string();
            let units: Vec<u16> = whole.encode_utf16().collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(units.len())).collect();
            cuts.extend([0, units.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u16]> = cuts.windows(2).map(|ends| &units[ends[0]..ends[1]]).collect();
            let is_marked = text.contains("\u{fdd0}\u{10f83d}");
            for protocol in [Protocol::OpenAiChat, Protocol::Anthropic] {
                let got = answer(protocol, &pieces);
                prop_assert!(is_marked || got == (whole.clone(), text.clone()), "{got:?}");
            }
        }
    }

    #[test]
    fn a_half_alone_is_replaced() {
        let units: Vec<u16> = "{\"a\":\"x".encode_utf16().collect();
        let end: Vec<u16> = "\"}".encode_utf16().collect();
        for (halves, want) in [
            (&[&[0xd83d_u16][..], &[0x61]][..], "x\u{fffd}a"),
            (&[&[0xd83d], &[0xde80]], "x🚀"),
            (&[&[0xde80], &[0xd83d]], "x\u{fffd}\u{fffd}"),
            (&[&[0xd83d], &[], &[0xde80]], "x🚀"),
            (&[&[0xd83d], &[0xd83d], &[0xde80]], "x\u{fffd}🚀"),
        ] {
            let pieces = [&[&units[..]], halves, &[&end[..]]].concat();
            for protocol in [Protocol::OpenAiChat, Protocol::Anthropic] {
                assert_eq!(answer(protocol, &pieces).1, want, "{halves:x?}");
            }
        }
    }
}
