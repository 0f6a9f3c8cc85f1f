//! The prompts that changed files, derived from the parts of a conversation: every worker derives the same from the
//! snapshots before and after each turn.

use super::entries::{self, Origin};
use domain::{
    conversation::{
        message::{Message, User},
        part::{Body, Part},
    },
    ids::MessageId,
};
use store::log::messages::MessageWithParts;

/// A prompt whose turn changed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TurnChange<'a> {
    pub(crate) user: &'a User,
    /// The snapshot before its first step.
    pub(crate) from: &'a str,
    /// The snapshot after its last step.
    pub(crate) to: &'a str,
}

/// Lists the prompts that changed files and have no summary of the changes yet; always includes the newest prompt if it
/// changed files.
pub(crate) fn unsummarized(entries: &[MessageWithParts]) -> Vec<TurnChange<'_>> {
    let prompts = entries.iter().enumerate().filter(|(_, entry)| is_prompt(entry));
    let places: Vec<usize> = prompts.map(|(at, _)| at).collect();
    let turns = places.iter().enumerate().filter_map(|(number, at)| {
        let next = places.get(number + 1);
        let user = entries::as_user(&entries[*at])?;
        let steps = &entries[at + 1..next.copied().unwrap_or(entries.len())];
        let changed = parts(steps).any(|part| matches!(part.body, Body::Patch(_)));
        let is_summarized = user.summary.is_some() && next.is_some();
        let (from, to) = first_snapshot(steps).zip(last_snapshot(steps))?;
        (changed && !is_summarized && from != to).then_some(TurnChange { user, from, to })
    });
    turns.collect()
}

/// A step that is over, and whose changes of the files are not known yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UnsettledStep<'a> {
    pub(crate) id: &'a MessageId,
    /// The snapshot before it.
    pub(crate) from: Option<&'a str>,
}

/// Finds the newest step of the turn that is over and whose calls may have changed files, if nothing tells the state of the files after it.
/// `may_change_files` tells it of the parts of a step.
pub(crate) fn unsettled(
    entries: &[MessageWithParts],
    may_change_files: impl Fn(&[(u64, Part)]) -> bool,
) -> Option<UnsettledStep<'_>> {
    let turn = entries.iter().rev().take_while(|entry| !is_prompt(entry));
    for entry in turn {
        let Message::Assistant(step) = &entry.message else { continue };
        let from = start_snapshot(&entry.parts);
        if step.time.completed.is_some() && may_change_files(&entry.parts) {
            let is_finish = |(_, part): &(u64, Part)| part.body.as_step_finish().is_some();
            let at = entry.parts.iter().position(is_finish)?;
            let is_unknown = last_state(&entry.parts[at..]).is_none();
            return is_unknown.then_some(UnsettledStep { id: &step.id, from });
        }
        if from.is_some() {
            return None;
        }
    }
    None
}

/// The snapshot before a step, if the step recorded one.
pub(crate) fn start_snapshot(parts: &[(u64, Part)]) -> Option<&str> {
    parts.iter().find_map(|(_, part)| snapshot_before(&part.body))
}

/// The snapshot after a step, if the step recorded one.
pub(crate) fn end_snapshot(parts: &[(u64, Part)]) -> Option<&str> {
    parts.iter().rev().find_map(|(_, part)| part.body.as_step_finish()?.snapshot.as_deref())
}

/// The oldest recorded snapshot.
pub(crate) fn first_snapshot(entries: &[MessageWithParts]) -> Option<&str> {
    parts(entries).find_map(|part| snapshot_before(&part.body))
}

/// The newest recorded snapshot.
pub(crate) fn last_snapshot(entries: &[MessageWithParts]) -> Option<&str> {
    entries.iter().rev().find_map(|entry| last_state(&entry.parts))
}

/// The newest snapshot among parts, unless it is that of a `step-start`.
fn last_state(parts: &[(u64, Part)]) -> Option<&str> {
    parts.iter().rev().map(|(_, part)| &part.body).find_map(|body| {
        if let Body::Snapshot(snapshot) = body {
            // A step without a model call, an aborted one, or one that was settled later records its end this way.
            return Some(snapshot.snapshot.as_str());
        }
        body.as_step_finish()?.snapshot.as_deref()
    })
}

fn snapshot_before(body: &Body) -> Option<&str> {
    match body {
        Body::StepStart(start) => start.snapshot.as_deref(),
        Body::Snapshot(snapshot) => Some(&snapshot.snapshot),
        Body::Text(_)
        | Body::Reasoning(_)
        | Body::Tool(_)
        | Body::File(_)
        | Body::Agent(_)
        | Body::Subtask(_)
        | Body::Compaction(_)
        | Body::Patch(_)
        | Body::StepFinish(_)
        | Body::Retry(_) => None,
    }
}

fn parts(entries: &[MessageWithParts]) -> impl Iterator<Item = &Part> {
    entries.iter().flat_map(|entry| &entry.parts).map(|(_, part)| part)
}

/// Messages without a reply, and messages that the loop writes around a summary, belong to the turn around them.
fn is_prompt(entry: &MessageWithParts) -> bool {
    let is_user = matches!(entry.message, Message::User(_));
    let is_asked = entries::origin(&entry.parts) == Origin::Prompt;
    is_user && is_asked && entries::compaction(&entry.parts).is_none()
}

#[cfg(test)]
mod tests;
