//! How much of each streaming part a subscriber has: slices overlapping deltas, and keeps what comes beyond a hole until stored
//! text fills it. At the latest a hole heals with the part's own event, which carries the whole text.

use bus::feed::Delta;
use domain::{
    ids::{MessageId, PartId},
    mutant::{self, Mutant},
};
use rpc::v1;
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use store::log::chunks::Chunk;

/// The parts that are streaming.
#[derive(Debug, Default)]
pub(crate) struct OpenParts(HashMap<PartId, Open>);

#[derive(Debug)]
struct Open {
    message: MessageId,
    have_bytes: u64,
    /// Heard beyond a hole, in order.
    ahead: VecDeque<(u64, String)>,
}

/// Fragments that are kept beyond a hole; further ones wait for the part's own event.
const AHEAD_MAX: usize = 256;

/// What of a part's event matters here.
#[derive(Deserialize)]
struct Updated {
    part: UpdatedPart,
}

#[derive(Deserialize)]
struct UpdatedPart {
    id: PartId,
    #[serde(rename = "messageID")]
    message_id: MessageId,
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    time: Option<UpdatedTime>,
}

#[derive(Deserialize)]
struct UpdatedTime {
    end: Option<i64>,
}

#[derive(Deserialize)]
struct Removed {
    #[serde(rename = "partID")]
    part_id: PartId,
}

impl OpenParts {
    /// Notes which parts begin and end.
    pub(crate) fn observe(&mut self, kind: &str, properties: &[u8]) {
        match kind {
            "message.part.updated" => {
                let Ok(Updated { part }) = serde_json::from_slice(properties) else { return };
                let streams = part.kind == "text" || part.kind == "reasoning";
                if streams && part.time.is_some_and(|time| time.end.is_none()) {
                    let have_bytes = part.text.map_or(0, |text| text.len() as u64);
                    self.open(part.id, part.message_id, have_bytes);
                } else {
                    self.0.remove(&part.id);
                }
            }
            "message.part.removed" if !mutant::on(Mutant::DeltaEpochUnchecked) => {
                if let Ok(Removed { part_id }) = serde_json::from_slice(properties) {
                    self.0.remove(&part_id);
                }
            }
            _ => {}
        }
    }

    /// Notes a part that began before anything was heard of it.
    pub(crate) fn open(&mut self, part: PartId, message: MessageId, have_bytes: u64) {
        self.0.insert(part, Open { message, have_bytes, ahead: VecDeque::new() });
    }

    /// What of a delta, and of earlier ones that waited for it, the subscriber does not have and can be told now.
    pub(crate) fn fresh(&mut self, delta: &Delta) -> Vec<v1::Delta> {
        self.hear(&delta.part, delta.offset, &delta.text)
    }

    /// As [`OpenParts::fresh`], for stored text.
    pub(crate) fn chunk(&mut self, chunk: &Chunk) -> Vec<v1::Delta> {
        self.hear(&chunk.part_id, chunk.offset_bytes, &chunk.text)
    }

    /// Whether something waits for what comes before it.
    pub(crate) fn has_holes(&self) -> bool {
        self.0.values().any(|open| !open.ahead.is_empty())
    }

    fn hear(&mut self, part: &PartId, offset: u64, text: &str) -> Vec<v1::Delta> {
        let Some(open) = self.0.get_mut(part) else { return vec![] };
        if offset > open.have_bytes {
            if open.ahead.len() < AHEAD_MAX {
                open.ahead.push_back((offset, text.to_owned()));
            }
            return vec![];
        }
        let mut told: Vec<v1::Delta> = self.advance(part, offset, text).into_iter().collect();
        while let Some((offset, text)) = self.next_ahead(part) {
            told.extend(self.advance(part, offset, &text));
        }
        told
    }

    /// What waits beyond a hole that is filled.
    fn next_ahead(&mut self, part: &PartId) -> Option<(u64, String)> {
        let open = self.0.get_mut(part)?;
        open.ahead.front().filter(|(offset, _)| *offset <= open.have_bytes)?;
        open.ahead.pop_front()
    }

    fn advance(&mut self, part: &PartId, offset: u64, text: &str) -> Option<v1::Delta> {
        let open = self.0.get_mut(part)?;
        let known = usize::try_from(open.have_bytes.checked_sub(offset)?).ok()?;
        let fresh = text.get(known..).filter(|fresh| !fresh.is_empty())?;
        let offset_bytes = open.have_bytes;
        open.have_bytes += fresh.len() as u64;
        Some(v1::Delta {
            message_id: open.message.to_string(),
            part_id: part.to_string(),
            field: "text".to_owned(),
            offset_bytes,
            text: fresh.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(parts: &mut OpenParts, json: &str) {
        let properties = format!(r#"{{"sessionID":"ses_1","part":{json},"time":1}}"#);
        parts.observe("message.part.updated", properties.as_bytes());
    }

    fn delta(offset: u64, text: &str) -> Delta {
        let (message, part) = ("msg_1".parse().expect("id"), "prt_1".parse().expect("id"));
        Delta { epoch: 1, message, part, offset, text: text.to_owned() }
    }

    fn given(parts: &mut OpenParts, offset: u64, text: &str) -> Option<(u64, String)> {
        let mut told = parts.fresh(&delta(offset, text)).into_iter();
        let first = told.next().map(|delta| (delta.offset_bytes, delta.text));
        assert!(told.next().is_none(), "one at a time");
        first
    }

    #[test]
    fn overlaps_are_sliced_and_holes_dropped() {
        let mut parts = OpenParts::default();
        assert_eq!(given(&mut parts, 0, "early"), None, "a part that never began");
        observe(
            &mut parts,
            r#"{"id":"prt_1","messageID":"msg_1","type":"text","text":"","time":{"start":1}}"#,
        );
        assert_eq!(given(&mut parts, 0, "ab"), Some((0, "ab".into())));
        assert_eq!(given(&mut parts, 1, "bc"), Some((2, "c".into())));
        assert_eq!(given(&mut parts, 0, "abc"), None, "known");
        assert_eq!(given(&mut parts, 3, "é"), Some((3, "é".into())));
        assert_eq!(given(&mut parts, 4, "x"), None, "inside a character");
        observe(
            &mut parts,
            r#"{"id":"prt_1","messageID":"msg_1","type":"text","text":"abcé","time":{"start":1,"end":2}}"#,
        );
        assert_eq!(given(&mut parts, 5, "late"), None, "the part is whole");
    }

    #[test]
    fn what_comes_beyond_a_hole_waits_for_stored_text() {
        let mut parts = OpenParts::default();
        parts.open("prt_1".parse().expect("id"), "msg_1".parse().expect("id"), 2);
        assert_eq!(given(&mut parts, 6, "gh"), None);
        assert_eq!(given(&mut parts, 8, "i"), None);
        assert!(parts.has_holes());
        let chunk = |offset_bytes, text: &str| Chunk {
            part_id: "prt_1".parse().expect("id"),
            offset_bytes,
            text: text.to_owned(),
        };
        assert!(parts.chunk(&chunk(0, "ab")).is_empty(), "known");
        let told: Vec<_> = parts
            .chunk(&chunk(2, "cdefg"))
            .into_iter()
            .map(|delta| (delta.offset_bytes, delta.text))
            .collect();
        assert_eq!(told, [(2, "cdefg".to_owned()), (7, "h".to_owned()), (8, "i".to_owned())]);
        assert!(!parts.has_holes());
        for at in 0..=AHEAD_MAX as u64 {
            assert_eq!(given(&mut parts, 100 + at, "x"), None);
        }
        assert_eq!(parts.chunk(&chunk(9, &"y".repeat(91))).len(), 1 + AHEAD_MAX, "a bound");
    }
}
