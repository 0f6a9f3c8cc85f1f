//! The entries of a conversation: which of them a model sees, and which are prompts and summaries. A finished summary
//! replaces everything before it, except for an unchanged tail. All of this is derived from the messages each time, so that a
//! new worker and the previous one derive the same.

use domain::{
    conversation::{
        command::{self, CommandRequest as Invocation, CommandState},
        message::{Assistant, Message, User},
        part::{
            Body, NO_REPLY, Part, Text, ToolState,
            attached::{Compaction, Subtask},
        },
    },
    ids::{MessageId, PartId},
    limits,
    turn::view::Due,
};
use store::log::messages::MessageWithParts;

/// Mark on the text that lets a turn continue after a summary: OpenCode's.
pub(crate) const CONTINUE: &str = "compaction_continue";
/// Mark on the texts of a prompt that is repeated after a summary.
pub(crate) const REPLAY: &str = "compaction_replay";

/// The author and purpose of a user message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A person or a client, who wants an answer.
    Prompt,
    /// A person or a client, who wants no answer.
    Note,
    /// The loop, around a summary.
    Loop,
}

/// A command that a prompt invokes.
#[derive(Debug, Clone)]
pub(crate) struct CommandPrompt {
    /// The text part that invokes it.
    pub(crate) part: Part,
    pub(crate) invocation: Invocation,
    pub(crate) user: User,
}

/// A call that a prompt requests itself, without a model. The id is that of the requesting part.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PromptCall<'a> {
    /// A task for a subagent.
    Task(&'a PartId, &'a Subtask),
    /// A command of the shell.
    Shell(&'a PartId, &'a str),
}

impl<'a> PromptCall<'a> {
    fn of(part: &'a Part) -> Option<Self> {
        if let Body::Subtask(subtask) = &part.body {
            return Some(Self::Task(&part.id, subtask));
        }
        let command = part.body.as_text().and_then(command::shell_of)?;
        Some(Self::Shell(&part.id, command))
    }
}

/// Returns the author of a user message.
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

/// Whether an entry is a note.
pub(super) fn is_note(entry: &MessageWithParts) -> bool {
    origin(&entry.parts) == Origin::Note
}

fn texts(parts: &[(u64, Part)]) -> impl Iterator<Item = &Text> {
    parts.iter().filter_map(|(_, part)| part.body.as_text())
}

/// The request for a summary, if the message is one.
pub(crate) fn compaction(parts: &[(u64, Part)]) -> Option<&Compaction> {
    parts.iter().find_map(|(_, part)| part.body.as_compaction())
}

pub(crate) fn as_user(entry: &MessageWithParts) -> Option<&User> {
    match &entry.message {
        Message::User(user) => Some(user),
        Message::Assistant(_) => None,
    }
}

pub(super) fn as_step(entry: &MessageWithParts) -> Option<&Assistant> {
    match &entry.message {
        Message::Assistant(assistant) => Some(assistant),
        Message::User(_) => None,
    }
}

/// Whether the answer of a step is complete.
pub(crate) fn is_finished(step: &Assistant) -> bool {
    step.finish.is_some() && step.error.is_none()
}

/// A finished summary, by positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct SummaryPosition {
    /// The message that requested it.
    request: usize,
    /// The step that wrote it.
    pub(super) step: usize,
}

/// Finds the newest finished summary.
pub(super) fn newest_summary(entries: &[MessageWithParts]) -> Option<SummaryPosition> {
    entries.iter().enumerate().rev().find_map(|(at, entry)| {
        let step = as_step(entry).filter(|step| step.is_summary() && is_finished(step))?;
        let request = position(entries, &step.parent_id)?;
        compaction(&entries[request].parts).map(|_| SummaryPosition { request, step: at })
    })
}

/// Finds the position of a message.
pub(crate) fn position(entries: &[MessageWithParts], id: &MessageId) -> Option<usize> {
    entries.iter().rposition(|entry| entry.message.id() == id)
}

/// Counts the steps that finished since the newest summary; `None`: there is no summary.
pub(crate) fn steps_since_summary(entries: &[MessageWithParts]) -> Option<u32> {
    let summary = newest_summary(entries)?;
    let steps = entries[summary.step + 1..].iter().filter_map(as_step);
    let finished = steps.filter(|step| is_finished(step) && !step.is_summary());
    Some(u32::try_from(finished.count()).unwrap_or(u32::MAX))
}

/// The entries that the model sees, in order: the newest summary with its request, the tail that was kept, and everything
/// later.
pub(crate) fn visible(entries: &[MessageWithParts]) -> Vec<&MessageWithParts> {
    let is_plain = |entry: &&MessageWithParts| {
        compaction(&entry.parts).is_none() && !as_step(entry).is_some_and(Assistant::is_summary)
    };
    let Some(SummaryPosition { request, step }) = newest_summary(entries) else {
        return entries.iter().filter(is_plain).collect();
    };
    let tail = compaction(&entries[request].parts).and_then(|compaction| compaction.tail_start_id.as_ref());
    let tail = tail.and_then(|id| position(entries, id)).filter(|tail| *tail < request).unwrap_or(request);
    let rest = entries[tail..].iter().filter(is_plain);
    [&entries[request], &entries[step]].into_iter().chain(rest).collect()
}

/// What the worker must do before it answers the newest prompt: everything that was requested since the last complete
/// answer.
pub(crate) fn due(entries: &[MessageWithParts]) -> Due {
    if command_prompts(entries).next().is_some() {
        Due::Preparation
    } else if summary_request(entries).is_some() {
        Due::Summary
    } else if prompt_calls(entries).next().is_some() {
        Due::Calls
    } else {
        Due::Nothing
    }
}

/// The entries since the last answer.
fn unanswered(entries: &[MessageWithParts]) -> &[MessageWithParts] {
    let is_over = |step: &Assistant| step.finish.is_some() || step.error.is_some();
    let answered = entries.iter().rposition(|entry| as_step(entry).is_some_and(is_over));
    &entries[answered.map_or(0, |at| at + 1)..]
}

/// The newest request for a summary that has no answer yet.
pub(crate) fn summary_request(entries: &[MessageWithParts]) -> Option<&User> {
    unanswered(entries).iter().rev().filter(|entry| compaction(&entry.parts).is_some()).find_map(as_user)
}

/// The calls that prompts request and no step has begun, oldest first.
pub(crate) fn prompt_calls(entries: &[MessageWithParts]) -> impl Iterator<Item = PromptCall<'_>> {
    let parts = unanswered(entries).iter().flat_map(|entry| &entry.parts);
    parts.filter_map(|(_, part)| PromptCall::of(part))
}

/// The shell command that a prompt runs.
pub(crate) fn shell_command(parts: &[(u64, Part)]) -> Option<&str> {
    texts(parts).find_map(command::shell_of)
}

/// The milliseconds after which the shell command that a prompt runs is ended. `None`: it runs none.
pub(crate) fn shell_timeout_ms(parts: &[(u64, Part)]) -> Option<u32> {
    texts(parts).find(|text| command::shell_of(text).is_some()).map(command::shell_timeout_of)
}

/// The commands of unanswered prompts that are not expanded yet, oldest first.
pub(crate) fn command_prompts(entries: &[MessageWithParts]) -> impl Iterator<Item = CommandPrompt> {
    let users = unanswered(entries).iter().filter_map(|entry| Some((as_user(entry)?, &entry.parts)));
    users.flat_map(|(user, parts)| {
        invocations(parts, CommandState::Asked).map(|(part, _, invocation)| CommandPrompt {
            part: part.clone(),
            invocation,
            user: user.clone(),
        })
    })
}

/// The expanded commands whose execution no event has announced yet, oldest first.
pub(crate) fn expanded_commands(
    entries: &[MessageWithParts],
) -> impl Iterator<Item = (&Part, &Text, Invocation)> {
    let users = entries.iter().filter(|entry| as_user(entry).is_some());
    let users = users.filter(|entry| origin(&entry.parts) == Origin::Prompt);
    users.flat_map(|entry| invocations(&entry.parts, CommandState::Expanded))
}

fn invocations(
    parts: &[(u64, Part)],
    progress: CommandState,
) -> impl Iterator<Item = (&Part, &Text, Invocation)> {
    let all = parts.iter().filter_map(|(_, part)| {
        let text = part.body.as_text()?;
        Some((part, text, Invocation::of(text)?))
    });
    all.filter(move |(_, _, invocation)| invocation.progress == progress)
}

/// The prompt before the summary request at `request`, if a model refused it as too long; notes may follow it. The prompt is repeated after the
/// summary of the entries before it. `None` if there are none.
pub(crate) fn repeated_prompt(entries: &[MessageWithParts], request: usize) -> Option<usize> {
    compaction(&entries[request].parts).filter(|compaction| compaction.overflow == Some(true))?;
    let is_step = |entry: &MessageWithParts| as_step(entry).is_some_and(is_finished);
    let prompt = entries[..request]
        .iter()
        .rposition(|entry| (as_user(entry).is_some() && !is_note(entry)) || is_step(entry))?;
    as_user(&entries[prompt])?;
    entries[..prompt].iter().any(is_step).then_some(prompt)
}

/// Estimates the number of tokens of a message for the model.
pub(crate) fn size(entry: &MessageWithParts) -> u64 {
    let estimate = domain::conversation::context::estimate;
    let of = |(_, part): &(u64, Part)| match &part.body {
        Body::Text(text) => estimate(&text.text),
        Body::Reasoning(thought) => estimate(&thought.text),
        Body::File(_) => limits::MEDIA_TOKENS,
        Body::Tool(tool) => {
            let answer_tokens = match &tool.state {
                ToolState::Completed { output, time, attachments, .. } if time.compacted.is_none() => {
                    let media = u64::try_from(attachments.len()).unwrap_or_default();
                    estimate(output).saturating_add(media.saturating_mul(limits::MEDIA_TOKENS))
                }
                ToolState::Error { error, .. } => estimate(error),
                ToolState::Completed { .. } | ToolState::Pending { .. } | ToolState::Running { .. } => 0,
            };
            estimate(&tool.state.input().to_string()).saturating_add(answer_tokens)
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
