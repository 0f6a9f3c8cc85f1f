//! Tracks how much text of each open part a subscriber has. Cuts overlapping deltas, and keeps deltas beyond a hole until stored
//! text fills it. The part's own event fills a hole at the latest, because it carries the whole text.

use super::event::Fragment;
use bus::feed::Delta;
use domain::ids::{MessageId, PartId};
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use store::log::chunks::Chunk;

/// The open parts of a session.
#[derive(Debug, Default)]
pub(crate) struct OpenParts(HashMap<PartId, OpenPart>);

#[derive(Debug)]
struct OpenPart {
    message: MessageId,
    have_bytes: u64,
    /// Pieces beyond a hole with their offsets, in order.
    ahead: VecDeque<(u64, String)>,
    /// About the memory that those take.
    ahead_bytes: usize,
}

/// Bytes of the pieces of one part that are kept beyond a hole; stored text, or the part's own event, replaces further ones.
const AHEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a piece without its text.
const PIECE_BYTES: usize = size_of::<(u64, String)>();

/// The relevant members of `message.part.updated`.
#[derive(Deserialize)]
struct PartUpdate {
    part: PartState,
}

#[derive(Deserialize)]
struct PartState {
    id: PartId,
    #[serde(rename = "messageID")]
    message_id: MessageId,
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    time: Option<PartTime>,
}

#[derive(Deserialize)]
struct PartTime {
    end: Option<i64>,
}

/// The relevant member of `message.part.removed`.
#[derive(Deserialize)]
struct PartRemoval {
    #[serde(rename = "partID")]
    part_id: PartId,
}

/// What an event does to streamed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TextChange {
    /// The part streams on after this text.
    Open { part: PartId, message: MessageId, have_bytes: u64 },
    /// The part has its whole text, or was removed.
    Close(PartId),
}

impl TextChange {
    /// Reads the change from an event; `None` if the event is not about a text or a reasoning.
    pub(crate) fn of(kind: &str, properties: &[u8]) -> Option<Self> {
        match kind {
            "message.part.updated" => {
                let part = serde_json::from_slice::<PartUpdate>(properties).ok()?.part;
                if part.kind != "text" && part.kind != "reasoning" {
                    return None;
                }
                let is_open = part.time.is_some_and(|time| time.end.is_none());
                let have_bytes = part.text.map_or(0, |text| text.len() as u64);
                Some(if is_open {
                    Self::Open { part: part.id, message: part.message_id, have_bytes }
                } else {
                    Self::Close(part.id)
                })
            }
            "message.part.removed" => serde_json::from_slice::<PartRemoval>(properties)
                .ok()
                .map(|removal| Self::Close(removal.part_id)),
            _ => None,
        }
    }
}

impl OpenParts {
    /// Opens or closes a part.
    pub(crate) fn change(&mut self, change: TextChange) {
        match change {
            TextChange::Open { part, message, have_bytes } => self.open(part, message, have_bytes),
            TextChange::Close(part) => drop(self.0.remove(&part)),
        }
    }

    /// Adds a part that opened before the subscriber joined.
    pub(crate) fn open(&mut self, part: PartId, message: MessageId, have_bytes: u64) {
        self.0.insert(part, OpenPart { message, have_bytes, ahead: VecDeque::new(), ahead_bytes: 0 });
    }

    /// Returns the text that a delta makes available: its own new text, and that of kept pieces behind it.
    pub(crate) fn add_delta(&mut self, delta: &Delta) -> Vec<Fragment> {
        self.add(&delta.part, delta.offset, &delta.text)
    }

    /// Like [`OpenParts::add_delta`], for stored text.
    pub(crate) fn add_chunk(&mut self, chunk: &Chunk) -> Vec<Fragment> {
        self.add(&chunk.part_id, chunk.offset_bytes, &chunk.text)
    }

    /// Whether pieces wait for the text before them.
    pub(crate) fn has_holes(&self) -> bool {
        self.0.values().any(|open| !open.ahead.is_empty())
    }

    fn add(&mut self, part: &PartId, offset: u64, text: &str) -> Vec<Fragment> {
        let Some(open) = self.0.get_mut(part) else { return vec![] };
        if offset > open.have_bytes {
            let bytes = PIECE_BYTES + text.len();
            // The first piece shows that there is a hole.
            if open.ahead.is_empty() || open.ahead_bytes + bytes <= AHEAD_BYTES_MAX {
                open.ahead_bytes += bytes;
                open.ahead.push_back((offset, text.to_owned()));
            }
            return vec![];
        }
        let mut fragments: Vec<Fragment> = self.advance(part, offset, text).into_iter().collect();
        while let Some((offset, text)) = self.next_ahead(part) {
            fragments.extend(self.advance(part, offset, &text));
        }
        fragments
    }

    /// The next kept piece, if the hole before it is filled.
    fn next_ahead(&mut self, part: &PartId) -> Option<(u64, String)> {
        let open = self.0.get_mut(part)?;
        open.ahead.front().filter(|(offset, _)| *offset <= open.have_bytes)?;
        let piece = open.ahead.pop_front()?;
        open.ahead_bytes -= PIECE_BYTES + piece.1.len();
        Some(piece)
    }

    fn advance(&mut self, part: &PartId, offset: u64, text: &str) -> Option<Fragment> {
        let open = self.0.get_mut(part)?;
        let overlap = usize::try_from(open.have_bytes.checked_sub(offset)?).ok()?;
        let fresh = text.get(overlap..).filter(|fresh| !fresh.is_empty())?;
        let offset_bytes = open.have_bytes;
        open.have_bytes += fresh.len() as u64;
        Some(Fragment {
            message_id: open.message.clone(),
            part_id: part.clone(),
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
        parts.change(TextChange::of("message.part.updated", properties.as_bytes()).expect("a text"));
    }

    fn delta(offset: u64, text: &str) -> Delta {
        let (message, part) = ("msg_1".parse().expect("id"), "prt_1".parse().expect("id"));
        Delta { epoch: 1, message, part, offset, text: text.to_owned() }
    }

    fn given(parts: &mut OpenParts, offset: u64, text: &str) -> Option<(u64, String)> {
        let mut fragments = parts.add_delta(&delta(offset, text)).into_iter();
        let first = fragments.next().map(|delta| (delta.offset_bytes, delta.text));
        assert!(fragments.next().is_none(), "one at a time");
        first
    }

    #[test]
    fn overlaps_are_cut() {
        let mut parts = OpenParts::default();
        assert_eq!(given(&mut parts, 0, "early"), None, "a part that never opened");
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
        assert_eq!(given(&mut parts, 5, "late"), None, "the part is closed");
    }

    #[test]
    fn pieces_beyond_a_hole_wait_for_stored_text() {
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
        assert!(parts.add_chunk(&chunk(0, "ab")).is_empty(), "known");
        let fragments: Vec<_> = parts
            .add_chunk(&chunk(2, "cdefg"))
            .into_iter()
            .map(|delta| (delta.offset_bytes, delta.text))
            .collect();
        assert_eq!(fragments, [(2, "cdefg".to_owned()), (7, "h".to_owned()), (8, "i".to_owned())]);
        assert!(!parts.has_holes());
        let most = AHEAD_BYTES_MAX / (PIECE_BYTES + 1);
        for at in 0..=most as u64 {
            assert_eq!(given(&mut parts, 100 + at, "x"), None);
        }
        assert_eq!(parts.add_chunk(&chunk(9, &"y".repeat(91))).len(), 1 + most, "the bound");
    }
}
