//! Which prompts changed files, read from the parts of a conversation: the states before and after, so that every worker
//! finds the same.

use crate::context::{self, Origin};
use domain::{
    message::{Message, User},
    part::{Body, Part},
};
use store::log::messages::MessageWithParts;

/// A prompt whose turn changed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changed<'a> {
    pub(crate) user: &'a User,
    /// The files before its first step.
    pub(crate) from: &'a str,
    /// The files after its last one.
    pub(crate) to: &'a str,
}

/// The prompts that changed files and do not say how; the newest one in any case, if it did.
pub(crate) fn untold(entries: &[MessageWithParts]) -> Vec<Changed<'_>> {
    let prompts = entries.iter().enumerate().filter(|(_, entry)| is_prompt(entry));
    let places: Vec<usize> = prompts.map(|(at, _)| at).collect();
    let turns = places.iter().enumerate().filter_map(|(number, at)| {
        let next = places.get(number + 1);
        let user = context::as_user(&entries[*at])?;
        let steps = &entries[at + 1..next.copied().unwrap_or(entries.len())];
        let changed = parts(steps).any(|part| matches!(part.body, Body::Patch(_)));
        let is_told = user.summary.is_some() && next.is_some();
        let (from, to) = first(steps).zip(last(steps))?;
        (changed && !is_told && from != to).then_some(Changed { user, from, to })
    });
    turns.collect()
}

/// The state of the files before a step, if it says so.
pub(crate) fn start(parts: &[(u64, Part)]) -> Option<&str> {
    parts.iter().find_map(|(_, part)| begins_with(&part.body))
}

/// The state of the files after a step, if it says so.
pub(crate) fn end(parts: &[(u64, Part)]) -> Option<&str> {
    parts.iter().rev().find_map(|(_, part)| match &part.body {
        Body::StepFinish(finish) => finish.snapshot.as_deref(),
        _ => None,
    })
}

/// The oldest known state of the files.
pub(crate) fn first(entries: &[MessageWithParts]) -> Option<&str> {
    parts(entries).find_map(|part| begins_with(&part.body))
}

/// The newest known state of the files.
pub(crate) fn last(entries: &[MessageWithParts]) -> Option<&str> {
    let parts = entries.iter().rev().flat_map(|entry| entry.parts.iter().rev());
    parts.map(|(_, part)| &part.body).find_map(|body| match body {
        Body::StepFinish(finish) => finish.snapshot.as_deref(),
        // Of a step without a model call, or that was stopped.
        Body::Snapshot(snapshot) => Some(snapshot.snapshot.as_str()),
        _ => None,
    })
}

fn begins_with(body: &Body) -> Option<&str> {
    match body {
        Body::StepStart(start) => start.snapshot.as_deref(),
        Body::Snapshot(snapshot) => Some(&snapshot.snapshot),
        _ => None,
    }
}

fn parts(entries: &[MessageWithParts]) -> impl Iterator<Item = &Part> {
    entries.iter().flat_map(|entry| &entry.parts).map(|(_, part)| part)
}

/// A note, and what the loop writes around a summary, belong to the turn that they stand in.
fn is_prompt(entry: &MessageWithParts) -> bool {
    let is_user = matches!(entry.message, Message::User(_));
    let is_asked = context::origin(&entry.parts) == Origin::Prompt;
    is_user && is_asked && context::compaction(&entry.parts).is_none()
}

#[cfg(test)]
mod tests;
