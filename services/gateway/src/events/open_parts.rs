//! How much of each streaming part a subscriber has: slices overlapping deltas, drops what would leave a hole. A hole
//! heals with the part's own event, which carries the whole text.

use bus::feed::Delta;
use domain::{
    event::Stored,
    ids::{MessageId, PartId},
    mutant::{self, Mutant},
};
use rpc::v1;
use serde::Deserialize;
use std::collections::HashMap;
use store::chunks::Chunk;

/// The parts that are streaming.
#[derive(Debug, Default)]
pub(super) struct OpenParts(HashMap<PartId, Open>);

#[derive(Debug)]
struct Open {
    message: MessageId,
    have_bytes: u64,
}

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
    pub(super) fn observe(&mut self, event: &Stored) {
        match event.kind.as_str() {
            "message.part.updated" => {
                let Ok(Updated { part }) = serde_json::from_str(&event.properties) else { return };
                let streams = part.kind == "text" || part.kind == "reasoning";
                if streams && part.time.is_some_and(|time| time.end.is_none()) {
                    let have_bytes = part.text.map_or(0, |text| text.len() as u64);
                    self.0.insert(part.id, Open { message: part.message_id, have_bytes });
                } else {
                    self.0.remove(&part.id);
                }
            }
            "message.part.removed" if !mutant::on(Mutant::DeltaEpochUnchecked) => {
                if let Ok(Removed { part_id }) = serde_json::from_str(&event.properties) {
                    self.0.remove(&part_id);
                }
            }
            _ => {}
        }
    }

    /// What of a delta the subscriber does not have, if it follows on what it has.
    pub(super) fn fresh(&mut self, delta: &Delta) -> Option<v1::Delta> {
        self.advance(&delta.part, delta.offset, &delta.text)
    }

    /// As [`OpenParts::fresh`], for stored text.
    pub(super) fn chunk(&mut self, chunk: &Chunk) -> Option<v1::Delta> {
        self.advance(&chunk.part_id, chunk.offset_bytes, &chunk.text)
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
    use domain::ids::Timestamp;

    fn part_event(json: &str) -> Stored {
        let properties = format!(r#"{{"sessionID":"ses_1","part":{json},"time":1}}"#);
        let kind = "message.part.updated".to_owned();
        Stored { seq: 1, epoch: 1, id: String::new(), kind, properties, at: Timestamp(1) }
    }

    fn delta(offset: u64, text: &str) -> Delta {
        let (message, part) = ("msg_1".parse().expect("id"), "prt_1".parse().expect("id"));
        Delta { epoch: 1, message, part, offset, text: text.to_owned() }
    }

    fn given(parts: &mut OpenParts, offset: u64, text: &str) -> Option<(u64, String)> {
        parts.fresh(&delta(offset, text)).map(|delta| (delta.offset_bytes, delta.text))
    }

    #[test]
    fn overlaps_are_sliced_and_holes_dropped() {
        let mut parts = OpenParts::default();
        assert_eq!(given(&mut parts, 0, "early"), None, "a part that never began");
        parts.observe(&part_event(
            r#"{"id":"prt_1","messageID":"msg_1","type":"text","text":"","time":{"start":1}}"#,
        ));
        assert_eq!(given(&mut parts, 0, "ab"), Some((0, "ab".into())));
        assert_eq!(given(&mut parts, 1, "bc"), Some((2, "c".into())));
        assert_eq!(given(&mut parts, 0, "abc"), None, "known");
        assert_eq!(given(&mut parts, 9, "z"), None, "a hole");
        assert_eq!(given(&mut parts, 3, "é"), Some((3, "é".into())));
        assert_eq!(given(&mut parts, 4, "x"), None, "inside a character");
        parts.observe(&part_event(
            r#"{"id":"prt_1","messageID":"msg_1","type":"text","text":"abcé","time":{"start":1,"end":2}}"#,
        ));
        assert_eq!(given(&mut parts, 5, "late"), None, "the part is whole");
    }
}
