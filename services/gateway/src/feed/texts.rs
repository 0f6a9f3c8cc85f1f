//! The texts of the parts that stream, as far as a feed told them: whoever joins in the middle begins with these.

use crate::messages;
use domain::{event::StoredEvent, ids::PartId, part::Part};
use rpc::v1;
use serde::Deserialize;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Bytes of all texts of a tenant, beyond which new ones are not kept: whoever joins waits for the parts' own events.
const TEXTS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Texts by part.
#[derive(Debug, Default)]
pub(crate) struct Texts(Mutex<HashMap<PartId, String>>);

#[derive(Deserialize)]
struct Updated {
    part: Part,
}

#[derive(Deserialize)]
struct Removed {
    #[serde(rename = "partID")]
    part_id: PartId,
}

impl Texts {
    /// What was told of a part that streams.
    pub(crate) fn get(&self, part: &PartId) -> Option<String> {
        self.lock().get(part).cloned()
    }

    /// Notes a part that begins.
    pub(super) fn begin(&self, part: &PartId, text: &str) {
        let mut texts = self.lock();
        if texts.values().map(String::len).sum::<usize>() < TEXTS_BYTES_MAX {
            texts.insert(part.clone(), text.to_owned());
        }
    }

    /// Notes which parts begin and end.
    pub(super) fn observe(&self, event: &StoredEvent) {
        match event.kind.as_str() {
            "message.part.updated" => {
                let Ok(Updated { part }) = serde_json::from_str(&event.properties) else { return };
                match messages::open_text(&part) {
                    Some(text) => self.begin(&part.id, text),
                    None => drop(self.lock().remove(&part.id)),
                }
            }
            "message.part.removed" => {
                if let Ok(Removed { part_id }) = serde_json::from_str(&event.properties) {
                    self.lock().remove(&part_id);
                }
            }
            _ => {}
        }
    }

    /// Adds a fragment that follows on what is known.
    pub(super) fn extend(&self, delta: &v1::Delta) {
        let Ok(part) = delta.part_id.parse::<PartId>() else { return };
        if let Some(text) = self.lock().get_mut(&part)
            && text.len() as u64 == delta.offset_bytes
        {
            text.push_str(&delta.text);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PartId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
