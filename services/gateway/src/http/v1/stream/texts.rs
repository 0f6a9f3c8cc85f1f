//! The text that a client has of each open part. A client without the text before a fragment gets the whole text so far, so
//! that fragments always continue what it has.

use crate::streams::{
    event::{Fragment, open_text},
    open_parts::TextChange,
    open_texts::OpenTexts,
};
use domain::{conversation::part::Part, ids::PartId};
use std::{collections::HashMap, sync::Arc};

#[derive(Debug, Default)]
pub(super) struct ClientTexts {
    have_bytes: HashMap<PartId, u64>,
    /// The texts that the feed sent.
    live: Arc<OpenTexts>,
}

/// What a client gets for a fragment.
#[derive(Debug, PartialEq)]
pub(super) enum Continuation<'a> {
    /// Text that continues what it has.
    Text(&'a str),
    /// The part with the whole text so far.
    Part(Box<Part>),
}

impl ClientTexts {
    /// The texts of a client that has none yet.
    pub(super) fn new(live: Arc<OpenTexts>) -> Self {
        Self { have_bytes: HashMap::new(), live }
    }

    /// Forgets what the client has.
    pub(super) fn clear(&mut self) {
        self.have_bytes.clear();
    }

    /// Processes an event that the client gets.
    pub(super) fn change(&mut self, change: &TextChange) {
        match change {
            TextChange::Open { part, have_bytes, .. } => {
                self.have_bytes.insert(part.clone(), *have_bytes);
            }
            TextChange::Close(part) => {
                self.have_bytes.remove(part);
            }
        }
    }

    /// The part for the client: with the text that the feed sent, if that is longer than the stored text.
    pub(super) fn complete(&mut self, mut part: Part) -> Part {
        let Some(stored) = open_text(&part).map(str::len) else { return part };
        let live = self.live.get(&part.id).filter(|live| text_bytes(live) > stored as u64);
        if let Some(live) = live {
            part = live;
        }
        self.have_bytes.insert(part.id.clone(), text_bytes(&part));
        part
    }

    /// The open part of a stored event, with the text that the feed sent; `None`: the part has ended, or the feed has no
    /// text of it.
    pub(super) fn reopen(&mut self, part: &PartId) -> Option<Part> {
        let live = self.live.get(part)?;
        self.have_bytes.insert(part.clone(), text_bytes(&live));
        Some(live)
    }

    /// What the client gets for a fragment; `None`: it has the text, or the event that ends the part follows.
    pub(super) fn proceed<'a>(&mut self, fragment: &'a Fragment) -> Option<Continuation<'a>> {
        match self.have_bytes.get_mut(&fragment.part_id) {
            Some(have_bytes) if fragment.offset_bytes <= *have_bytes => {
                let overlap = usize::try_from(*have_bytes - fragment.offset_bytes).ok()?;
                let fresh = fragment.text.get(overlap..).filter(|text| !text.is_empty())?;
                *have_bytes += fresh.len() as u64;
                Some(Continuation::Text(fresh))
            }
            Some(_) | None => self.reopen(&fragment.part_id).map(|part| Continuation::Part(Box::new(part))),
        }
    }
}

fn text_bytes(part: &Part) -> u64 {
    open_text(part).map_or(0, |text| text.len() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::{event::StoredEvent, ids::Timestamp};
    use serde_json::json;

    fn fragment(offset_bytes: u64, text: &str) -> Fragment {
        let (message_id, part_id) = ("msg_1".parse().unwrap(), "prt_1".parse().unwrap());
        Fragment { message_id, part_id, offset_bytes, text: text.to_owned() }
    }

    fn updated(text: &str, time: serde_json::Value) -> StoredEvent {
        let part = json!({
            "id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": "text", "text": text, "time": time,
        });
        let properties = json!({"sessionID": "ses_1", "part": part, "time": 1}).to_string();
        let kind = "message.part.updated".to_owned();
        StoredEvent { seq: 1, epoch: 1, id: "evt_1".to_owned(), kind, properties, at: Timestamp(1) }
    }

    #[test]
    fn fragments_always_continue_what_the_client_has() {
        let live = Arc::<OpenTexts>::default();
        let send = |offset, text: &str| {
            let fragment = fragment(offset, text);
            live.extend(&fragment);
            fragment
        };
        live.observe(&updated("", json!({"start": 1})));
        let first = send(0, "ab");
        let mut late = ClientTexts::new(Arc::clone(&live));
        let text = |continuation: Option<Continuation<'_>>| match continuation {
            Some(Continuation::Text(text)) => text.to_owned(),
            Some(Continuation::Part(part)) => format!("={}", open_text(&part).unwrap()),
            None => String::new(),
        };
        let second = send(2, "cd");
        assert_eq!(text(late.proceed(&first)), "=abcd", "the whole text so far");
        assert_eq!(text(late.proceed(&second)), "", "the client has it");
        assert_eq!(text(late.proceed(&send(4, "ef"))), "ef");
        late.change(&TextChange::Open {
            part: "prt_1".parse().unwrap(),
            message: "msg_1".parse().unwrap(),
            have_bytes: 0,
        });
        assert_eq!(text(late.proceed(&send(6, "g"))), "=abcdefg", "an event took the text back");
        let part = serde_json::from_str::<serde_json::Value>(&updated("abc", json!({"start": 1})).properties);
        let stored: Part = serde_json::from_value(part.unwrap()["part"].take()).unwrap();
        assert_eq!(open_text(&late.complete(stored)), Some("abcdefg"), "the stored text lags behind");
        live.observe(&updated("abcdefgh", json!({"start": 1, "end": 2})));
        let mut later = ClientTexts::new(Arc::clone(&live));
        assert_eq!(later.proceed(&fragment(7, "h")), None, "the part has ended");
    }
}
