//! The prompts that changed files, derived from the parts of a conversation: every worker derives the same from the
//! snapshots before and after each turn.

use super::entries::{self, Origin};
use domain::conversation::{
    message::{Message, User},
    part::{Body, Part},
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
    let parts = entries.iter().rev().flat_map(|entry| entry.parts.iter().rev());
    parts.map(|(_, part)| &part.body).find_map(|body| {
        if let Body::Snapshot(snapshot) = body {
            // A step without a model call, or an aborted one, records its end this way.
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
