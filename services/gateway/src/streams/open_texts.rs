//! Open parts with their texts, as far as a feed sent them. A client that joins in the middle of a part starts with this
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

#[derive(Debug, Default)]
pub(crate) struct OpenTexts(Mutex<HashMap<PartId, Part>>);

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
    /// An open part with its text so far.
    pub(crate) fn get(&self, part: &PartId) -> Option<Part> {
        self.lock().get(part).cloned()
    }

    /// Adds an open part without its text, which follows in fragments.
    pub(super) fn begin_empty(&self, mut part: Part) {
        if let Some(text) = part.body.text_mut() {
            text.clear();
        }
        self.begin(part);
    }

    fn begin(&self, part: Part) {
        let mut parts = self.lock();
        let bytes: usize = parts.values().filter_map(open_text).map(str::len).sum();
        if bytes < TEXTS_BYTES_MAX {
            parts.insert(part.id.clone(), part);
        }
    }

    /// Processes an event that opens or closes a part.
    pub(crate) fn observe(&self, event: &StoredEvent) {
        match event.kind.as_str() {
            "message.part.updated" => {
                let Ok(PartUpdate { part }) = serde_json::from_str(&event.properties) else { return };
                match open_text(&part) {
                    Some(_) => self.begin(part),
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
    pub(crate) fn extend(&self, fragment: &Fragment) {
        if let Some(text) = self.lock().get_mut(&fragment.part_id).and_then(|part| part.body.text_mut())
            && text.len() as u64 == fragment.offset_bytes
        {
            text.push_str(&fragment.text);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PartId, Part>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
