//! The clients' view: I5, I6 and I12.

use super::{Invariant, Violation};
use crate::faults::{
    canary,
    history::{History, Transcript},
};
use std::collections::{BTreeMap, BTreeSet};
use testkit::dump::Session;

/// Each subscriber got every stored event once, in order, as it is stored, from the first to the last.
pub(super) fn saw_what_is_stored(history: &History) -> Vec<Violation> {
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
    for seen in &transcript.events {
        if seen.seq != before + 1 {
            return Some(format!("a subscriber got event {} after {before}", seen.seq));
        }
        before = seen.seq;
        let at = usize::try_from(seen.seq - 1).unwrap_or(usize::MAX);
        let Some(stored) = session.events.get(at) else {
            return Some(format!("a subscriber got event {}, which is not stored", seen.seq));
        };
        let is_same = (seen.epoch, &seen.id, &seen.kind, &seen.properties)
            == (stored.epoch, &stored.id, &stored.kind, &stored.properties);
        if !is_same {
            return Some(format!(
                "event {} reached a subscriber as {} {}, and is stored as {} {}",
                seen.seq, seen.kind, seen.id, stored.kind, stored.id
            ));
        }
    }
    let head = session.events.last().map_or(0, |event| event.seq);
    (before != head).then(|| format!("a subscriber got events up to {before} of {head}"))
}

/// On each connection the fragments of a part follow on each other, all of them are pieces of its final text, and none comes
/// after its part was taken back.
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
            if let Some(gone) = removed.get(delta.part_id.as_str()).filter(|gone| **gone <= delta.after_seq) {
                blame(format!("came although event {gone} had taken the part back"));
            }
            let end = ends.entry((delta.connection, &delta.part_id)).or_insert(delta.offset);
            if delta.offset != *end {
                blame(format!("came where {end} was next"));
            }
            *end = delta.offset + delta.text.len();
            // The parts of a failed attempt have been removed.
            if let Some(text) = texts.get(delta.part_id.as_str())
                && text.get(delta.offset..*end) != Some(delta.text.as_str())
            {
                blame(format!("says {:?}, which the final text does not", delta.text));
            }
        }
    }
    violations
}

/// Wherever a canary appears, its reader belongs to its tenant.
pub(super) fn tenants_see_their_own(history: &History) -> Vec<Violation> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for prompt in &history.prompts {
        owners.insert(&prompt.session_id, prompt.tenant);
    }
    let mut found = BTreeSet::new();
    let mut look = |whose: &str, tenant: usize, place: &str, text: &str| {
        for strange in canary::find(text).into_iter().filter(|word| canary::tenant(word) != Some(tenant)) {
            found.insert((whose.to_owned(), format!("{place} of tenant {tenant} has {strange}")));
        }
    };
    for transcript in &history.transcripts {
        let (id, tenant) = (&transcript.session_id, transcript.tenant);
        for event in &transcript.events {
            look(id, tenant, "an event", &event.properties.to_string());
        }
        transcript.deltas.iter().for_each(|delta| look(id, tenant, "a fragment", &delta.text));
    }
    for request in &history.requests {
        if let Some(tenant) = owners.get(request.session_id.as_str()) {
            look(&request.session_id, *tenant, "a model call", &request.canaries.join(" "));
        }
    }
    for effect in &history.effects {
        if let Some(tenant) = owners.get(effect.session_id.as_str()) {
            look(&effect.session_id, *tenant, "a workspace", &effect.canary);
        }
    }
    let violation = |(whose, what): (String, String)| Violation::new(Invariant::I12, &whose, what);
    found.into_iter().map(violation).collect()
}
