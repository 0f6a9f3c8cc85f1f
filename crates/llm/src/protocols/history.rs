//! The conversation in a form that every provider accepts: no empty entries, and for each tool call exactly one result,
//! directly after the answer that made the call.

use crate::request::{AssistantPart, Message, ToolResult, UserPart};
use std::borrow::Cow;

/// The text that the model receives for a call without a result.
const NO_RESULT: &str = "The tool call has no result: it was interrupted.";

/// One non-empty entry of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HistoryEntry<'a> {
    User(Vec<&'a UserPart>),
    Assistant(Vec<&'a AssistantPart>),
    /// In the order of the calls, directly after them.
    Results(Vec<Cow<'a, ToolResult>>),
}

pub(crate) fn entries(messages: &[Message]) -> Vec<HistoryEntry<'_>> {
    let mut entries = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            Message::User(parts) => {
                let parts: Vec<_> = parts.iter().filter(|part| !is_empty(part)).collect();
                entries.extend((!parts.is_empty()).then_some(HistoryEntry::User(parts)));
            }
            Message::Assistant(parts) => {
                let is_said = |(at, part): &(usize, &AssistantPart)| says(part) || separates(parts, *at);
                let content: Vec<_> =
                    parts.iter().enumerate().filter(is_said).map(|(_, part)| part).collect();
                if !content.is_empty() {
                    entries.push(HistoryEntry::Assistant(content));
                }
                let results = results(parts, &messages[at + 1..]);
                entries.extend((!results.is_empty()).then_some(HistoryEntry::Results(results)));
            }
            // Already used with the answer that made the calls. Other results have no call.
            Message::ToolResults(_) => {}
        }
    }
    entries
}

fn is_empty(part: &UserPart) -> bool {
    matches!(part, UserPart::Text(text) if text.trim().is_empty())
}

/// Whether the part has content. Signed or encrypted reasoning counts even without text.
fn says(part: &AssistantPart) -> bool {
    match part {
        AssistantPart::Text { text, .. } => !text.trim().is_empty(),
        AssistantPart::Reasoning { text, signature, redacted, details } => {
            !text.is_empty() || signature.is_some() || redacted.is_some() || details.is_some()
        }
        AssistantPart::ToolCall { .. } => true,
    }
}

/// Whether the part at `at` separates two signed reasoning blocks. Their signatures are invalid without it.
fn separates(parts: &[AssistantPart], at: usize) -> bool {
    let is_signed = |part: Option<&AssistantPart>| match part {
        Some(AssistantPart::Reasoning { signature, redacted, .. }) => {
            signature.is_some() || redacted.is_some()
        }
        Some(AssistantPart::Text { .. } | AssistantPart::ToolCall { .. }) | None => false,
    };
    is_signed(at.checked_sub(1).and_then(|before| parts.get(before))) && is_signed(parts.get(at + 1))
}

/// The results of the calls in `parts`, from the messages before the next answer.
fn results<'a>(parts: &'a [AssistantPart], later: &'a [Message]) -> Vec<Cow<'a, ToolResult>> {
    let until_next = || later.iter().take_while(|message| !matches!(message, Message::Assistant(_)));
    let result_of = |id: &str| {
        let results = until_next().filter_map(|message| match message {
            Message::ToolResults(results) => results.iter().find(|result| result.call_id == id),
            Message::User(_) | Message::Assistant(_) => None,
        });
        results.map(Cow::Borrowed).next()
    };
    let result = |part: &'a AssistantPart| match part {
        AssistantPart::ToolCall { id, name, .. } => Some(result_of(id).unwrap_or_else(|| {
            Cow::Owned(ToolResult {
                call_id: id.clone(),
                name: name.clone(),
                text: NO_RESULT.to_owned().into(),
                is_error: true,
                ..ToolResult::default()
            })
        })),
        AssistantPart::Text { .. } | AssistantPart::Reasoning { .. } => None,
    };
    parts.iter().filter_map(result).collect()
}
