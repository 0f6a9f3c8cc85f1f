//! The texts of open parts, as far as a feed sent them. A client that joins in the middle of a part starts with this
//! text.

use super::event::{Fragment, open_text};
use domain::{conversation::part::Part, event::StoredEvent, ids::PartId};
use serde::Deserialize;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Bytes of all texts of a tenant. Beyond that, new texts are not kept, and a client that joins waits for the part's own
/// event.
const TEXTS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Texts by part.
#[derive(Debug, Default)]
pub(crate) struct OpenTexts(Mutex<HashMap<PartId, String>>);

#[derive(Deserialize)]
struct PartUpdate {
    part: Part,
}

#[derive(Deserialize)]
struct PartRemoval {
    #[serde(rename = "partID")]
    part_id: PartId,
}

impl OpenTexts {
    /// The text of an open part so far.
    pub(crate) fn get(&self, part: &PartId) -> Option<String> {
        self.lock().get(part).cloned()
    }

    /// Adds an open part.
    pub(super) fn begin(&self, part: &PartId, text: &str) {
        let mut texts = self.lock();
        if texts.values().map(String::len).sum::<usize>() < TEXTS_BYTES_MAX {
            texts.insert(part.clone(), text.to_owned());
        }
    }

    /// Processes an event that opens or closes a part.
    pub(super) fn observe(&self, event: &StoredEvent) {
        match event.kind.as_str() {
            "message.part.updated" => {
                let Ok(PartUpdate { part }) = serde_json::from_str(&event.properties) else { return };
                match open_text(&part) {
                    Some(text) => self.begin(&part.id, text),
                    None => drop(self.lock().remove(&part.id)),
                }
            }
            "message.part.removed" => {
                if let Ok(PartRemoval { part_id }) = serde_json::from_str(&event.properties) {
                    self.lock().remove(&part_id);
                }
            }
            _ => {}
        }
    }

    /// Appends a fragment, if it continues the text.
    pub(super) fn extend(&self, fragment: &Fragment) {
        if let Some(text) = self.lock().get_mut(&fragment.part_id)
            && text.len() as u64 == fragment.offset_bytes
        {
            text.push_str(&fragment.text);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PartId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
