//! What of a conversation a model sees: a finished summary takes the place of what came before it, beside a tail that is
//! kept as it is. And the places of prompts and summaries, read from the messages each time, so that a new worker and an
//! old one see the same.

pub(crate) mod prune;
pub(crate) mod summary;
pub(crate) mod title;

use crate::commands::Wanted;
use domain::{
    command::{self, CommandRequest, Progress},
    ids::MessageId,
    limits,
    message::{Assistant, Message, User},
    part::{Body, NO_REPLY, Part, Text, ToolState, attached::Compaction},
    turn::Due,
};
use store::log::messages::MessageWithParts;

/// Mark on the text that lets a turn go on after a summary: OpenCode's.
pub(crate) const CONTINUE: &str = "compaction_continue";
/// Mark on the texts of a prompt that is asked again after a summary.
pub(crate) const REPLAY: &str = "compaction_replay";

/// Who wrote a user message, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Somebody who wants an answer.
    Prompt,
    /// Somebody who wants none.
    Note,
    /// The loop, around a summary.
    Loop,
}

/// Who wrote a user message.
pub(crate) fn origin(parts: &[(u64, Part)]) -> Origin {
    let marks = |mark: &str| texts(parts).any(|text| text.mark(mark).is_some());
    if marks(NO_REPLY) {
        Origin::Note
    } else if marks(CONTINUE) || marks(REPLAY) || compaction(parts).is_some_and(|it| it.auto) {
        Origin::Loop
    } else {
        Origin::Prompt
    }
}

fn texts(parts: &[(u64, Part)]) -> impl Iterator<Item = &Text> {
    parts.iter().filter_map(|(_, part)| match &part.body {
        Body::Text(text) => Some(text),
        _ => None,
    })
}

/// The wish to sum up, if the message is one.
pub(crate) fn compaction(parts: &[(u64, Part)]) -> Option<&Compaction> {
    parts.iter().find_map(|(_, part)| match &part.body {
        Body::Compaction(compaction) => Some(compaction),
        _ => None,
    })
}

/// The message of a person or of the loop.
pub(crate) fn as_user(entry: &MessageWithParts) -> Option<&User> {
    match &entry.message {
        Message::User(user) => Some(user),
        Message::Assistant(_) => None,
    }
}

fn as_step(entry: &MessageWithParts) -> Option<&Assistant> {
    match &entry.message {
        Message::Assistant(assistant) => Some(assistant),
        Message::User(_) => None,
    }
}

/// A step whose answer is whole.
pub(crate) fn is_finished(step: &Assistant) -> bool {
    step.finish.is_some() && step.error.is_none()
}

/// The newest finished summary and the wish that it fulfils, as places.
fn newest_summary(entries: &[MessageWithParts]) -> Option<(usize, usize)> {
    entries.iter().enumerate().rev().find_map(|(at, entry)| {
        let step = as_step(entry).filter(|step| step.is_summary() && is_finished(step))?;
        let asked = place(entries, &step.parent_id)?;
        compaction(&entries[asked].parts).map(|_| (asked, at))
    })
}

pub(crate) fn place(entries: &[MessageWithParts], id: &MessageId) -> Option<usize> {
    entries.iter().rposition(|entry| entry.message.id() == id)
}

/// Steps that were finished since the newest summary; `None`: there is none.
pub(crate) fn steps_since_summary(entries: &[MessageWithParts]) -> Option<u32> {
    let (_, summary) = newest_summary(entries)?;
    let steps = entries[summary + 1..].iter().filter_map(as_step);
    let finished = steps.filter(|step| is_finished(step) && !step.is_summary());
    Some(u32::try_from(finished.count()).unwrap_or(u32::MAX))
}

/// What the model sees, in its order: the newest summary with the wish for it, the tail that was kept, and what came later.
pub(crate) fn visible(entries: &[MessageWithParts]) -> Vec<&MessageWithParts> {
    let is_plain = |entry: &&MessageWithParts| {
        compaction(&entry.parts).is_none() && !as_step(entry).is_some_and(Assistant::is_summary)
    };
    let Some((asked, summary)) = newest_summary(entries) else {
        return entries.iter().filter(is_plain).collect();
    };
    let tail = compaction(&entries[asked].parts).and_then(|compaction| compaction.tail_start_id.as_ref());
    let tail = tail.and_then(|id| place(entries, id)).filter(|tail| *tail < asked).unwrap_or(asked);
    let rest = entries[tail..].iter().filter(is_plain);
    [&entries[asked], &entries[summary]].into_iter().chain(rest).collect()
}

/// What must be done before the newest prompt is answered: everything that was asked for since the last whole answer.
pub(crate) fn due(entries: &[MessageWithParts]) -> Due {
    if commands(entries).next().is_some() {
        Due::Preparation
    } else if asked_summary(entries).is_some() {
        Due::Summary
    } else if calls(entries).next().is_some() {
        Due::Calls
    } else {
        Due::Nothing
    }
}

/// What came since the last answer.
fn unanswered(entries: &[MessageWithParts]) -> &[MessageWithParts] {
    let is_over = |step: &Assistant| step.finish.is_some() || step.error.is_some();
    let answered = entries.iter().rposition(|entry| as_step(entry).is_some_and(is_over));
    &entries[answered.map_or(0, |at| at + 1)..]
}

/// The wish to sum up that has no answer yet.
pub(crate) fn asked_summary(entries: &[MessageWithParts]) -> Option<&User> {
    unanswered(entries).iter().rev().filter(|entry| compaction(&entry.parts).is_some()).find_map(as_user)
}

/// The parts that ask for calls which no step has begun, oldest first: tasks, and a command of the shell.
pub(crate) fn calls(entries: &[MessageWithParts]) -> impl Iterator<Item = &Part> {
    let parts = unanswered(entries).iter().flat_map(|entry| &entry.parts).map(|(_, part)| part);
    parts.filter(|part| match &part.body {
        Body::Subtask(_) => true,
        Body::Text(text) => command::shell_of(text).is_some(),
        _ => false,
    })
}

/// The command of the shell that a message asks for.
pub(crate) fn asked_shell(parts: &[(u64, Part)]) -> Option<&str> {
    texts(parts).find_map(command::shell_of)
}

/// The commands that prompts without an answer ask for and nobody looked into, oldest first.
pub(crate) fn commands(entries: &[MessageWithParts]) -> impl Iterator<Item = Wanted> {
    let users = unanswered(entries).iter().filter_map(|entry| Some((as_user(entry)?, &entry.parts)));
    users.flat_map(|(user, parts)| {
        asked_commands(parts, Progress::Asked).map(|(part, _, asked)| Wanted {
            part: part.clone(),
            asked,
            user: user.clone(),
        })
    })
}

/// The commands whose turn is not said to be over, oldest first.
pub(crate) fn expanded_commands(
    entries: &[MessageWithParts],
) -> impl Iterator<Item = (&Part, &Text, CommandRequest)> {
    let users = entries.iter().filter(|entry| as_user(entry).is_some());
    let users = users.filter(|entry| origin(&entry.parts) == Origin::Prompt);
    users.flat_map(|entry| asked_commands(&entry.parts, Progress::Expanded))
}

fn asked_commands(
    parts: &[(u64, Part)],
    progress: Progress,
) -> impl Iterator<Item = (&Part, &Text, CommandRequest)> {
    let asked = parts.iter().filter_map(|(_, part)| match &part.body {
        Body::Text(text) => Some((part, text, CommandRequest::of(text)?)),
        _ => None,
    });
    asked.filter(move |(_, _, asked)| asked.progress == progress)
}

/// The newest prompt of a person before the wish at `asked` that had no finished step: a model refused it as too long, and it
/// is asked again after the summary of what came before it. `None` if there is nothing before it to sum up.
pub(crate) fn replayed(entries: &[MessageWithParts], asked: usize) -> Option<usize> {
    compaction(&entries[asked].parts).filter(|compaction| compaction.overflow == Some(true))?;
    let is_step = |entry: &MessageWithParts| as_step(entry).is_some_and(is_finished);
    let prompt = entries[..asked].iter().rposition(|entry| as_user(entry).is_some() || is_step(entry))?;
    as_user(&entries[prompt]).filter(|_| origin(&entries[prompt].parts) != Origin::Note)?;
    entries[..prompt].iter().any(is_step).then_some(prompt)
}

/// About how many tokens a message has for the model.
pub(crate) fn size(entry: &MessageWithParts) -> u64 {
    let estimate = domain::context::estimate;
    let of = |(_, part): &(u64, Part)| match &part.body {
        Body::Text(text) => estimate(&text.text),
        Body::Reasoning(thought) => estimate(&thought.text),
        Body::File(_) => limits::MEDIA_TOKENS,
        Body::Tool(tool) => {
            let said = match &tool.state {
                ToolState::Completed { output, time, attachments, .. } if time.compacted.is_none() => {
                    let media = u64::try_from(attachments.len()).unwrap_or_default();
                    estimate(output).saturating_add(media.saturating_mul(limits::MEDIA_TOKENS))
                }
                ToolState::Error { error, .. } => estimate(error),
                ToolState::Completed { .. } | ToolState::Pending { .. } | ToolState::Running { .. } => 0,
            };
            estimate(&tool.state.input().to_string()).saturating_add(said)
        }
        Body::Agent(_)
        | Body::Subtask(_)
        | Body::Compaction(_)
        | Body::Patch(_)
        | Body::Snapshot(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Retry(_) => 0,
    };
    entry.parts.iter().map(of).sum()
}

#[cfg(test)]
pub(crate) mod tests;
