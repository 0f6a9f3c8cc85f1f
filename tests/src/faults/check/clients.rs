//! The clients' view: I5, I6 and I12.

use super::violation::{Invariant, Violation};
use crate::faults::{
    history::{History, Transcript},
    workload::canary,
};
use std::collections::{BTreeMap, BTreeSet};
use testkit::dump::Session;

/// Each subscriber received every stored event once, in order and unchanged.
pub(super) fn subscribers_got_the_stored_events(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for transcript in &history.transcripts {
        let Some(session) = history.session(&transcript.session_id) else { continue };
        if let Some(what) = difference(transcript, session) {
            violations.push(Violation::new(Invariant::I5, &session.id, what));
        }
    }
    violations
}

fn difference(transcript: &Transcript, session: &Session) -> Option<String> {
    let mut before = 0;
    for received in &transcript.events {
        if received.seq != before + 1 {
            return Some(format!("a subscriber received event {} after {before}", received.seq));
        }
        before = received.seq;
        let at = usize::try_from(received.seq - 1).unwrap_or(usize::MAX);
        let Some(stored) = session.events.get(at) else {
            return Some(format!("a subscriber received event {}, which is not stored", received.seq));
        };
        let is_same = (received.epoch, &received.id, &received.kind, &received.properties)
            == (stored.epoch, &stored.id, &stored.kind, &stored.properties);
        if !is_same {
            return Some(format!(
                "a subscriber received event {} as {} {}, but it is stored as {} {}",
                received.seq, received.kind, received.id, stored.kind, stored.id
            ));
        }
    }
    let head = session.events.last().map_or(0, |event| event.seq);
    (before != head).then(|| format!("a subscriber received events up to {before} of {head}"))
}

/// On each connection the fragments of a part are contiguous and agree with its final text, and none arrives after the
/// part was removed.
pub(super) fn fragments_agree(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for transcript in &history.transcripts {
        let Some(session) = history.session(&transcript.session_id) else { continue };
        let texts: BTreeMap<&str, &str> = session
            .parts
            .iter()
            .filter(|part| part.data["time"]["end"].is_number())
            .filter_map(|part| Some((part.id.as_str(), part.data["text"].as_str()?)))
            .collect();
        let removals = session.events.iter().filter(|event| event.kind == "message.part.removed");
        let removed: BTreeMap<&str, i64> =
            removals.filter_map(|event| Some((event.properties["partID"].as_str()?, event.seq))).collect();
        let mut ends: BTreeMap<(u32, &str), usize> = BTreeMap::new();
        for delta in &transcript.deltas {
            let mut blame = |what: String| {
                let what = format!("a fragment of {} at {} {what}", delta.part_id, delta.offset);
                violations.push(Violation::new(Invariant::I6, &session.id, what));
            };
            if let Some(removal) = removed.get(delta.part_id.as_str()).filter(|seq| **seq <= delta.after_seq)
            {
                blame(format!("arrived after event {removal} had removed the part"));
            }
            let end = ends.entry((delta.connection, &delta.part_id)).or_insert(delta.offset);
            if delta.offset != *end {
                blame(format!("arrived where {end} was expected"));
            }
            *end = delta.offset + delta.text.len();
            // The parts of a failed attempt have been removed.
            if let Some(text) = texts.get(delta.part_id.as_str())
                && text.get(delta.offset..*end) != Some(delta.text.as_str())
            {
                blame(format!("contains {:?}, which is not in the final text", delta.text));
            }
        }
    }
    violations
}

/// A canary appears only where its tenant can read it.
pub(super) fn tenants_see_their_own(history: &History) -> Vec<Violation> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for prompt in &history.prompts {
        owners.insert(&prompt.session_id, prompt.tenant);
    }
    let mut found = BTreeSet::new();
    let mut search = |session: &str, tenant: usize, place: &str, text: &str| {
        for foreign in canary::find(text).into_iter().filter(|word| canary::tenant(word) != Some(tenant)) {
            found.insert((session.to_owned(), format!("{place} of tenant {tenant} contains {foreign}")));
        }
    };
    for transcript in &history.transcripts {
        let (id, tenant) = (&transcript.session_id, transcript.tenant);
        for event in &transcript.events {
            search(id, tenant, "an event", &event.properties.to_string());
        }
        transcript.deltas.iter().for_each(|delta| search(id, tenant, "a fragment", &delta.text));
    }
    for request in &history.requests {
        if let Some(tenant) = owners.get(request.session_id.as_str()) {
            search(&request.session_id, *tenant, "a model call", &request.canaries.join(" "));
        }
    }
    for effect in &history.effects {
        if let Some(tenant) = owners.get(effect.session_id.as_str()) {
            search(&effect.session_id, *tenant, "a workspace", &effect.canary);
        }
    }
    let violation = |(session, what): (String, String)| Violation::new(Invariant::I12, &session, what);
    found.into_iter().map(violation).collect()
}
