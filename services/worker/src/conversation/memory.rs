//! The conversation of one session in memory: loaded once, updated by each write, and condensed to the facts that a turn
//! decides by.

use super::{
    changes,
    entries::{self, Origin},
    marks::{self, Repetition},
    structured,
};
use domain::{
    conversation::{
        message::{self, Assistant, Message, User},
        part::{Body, Part, Tool, ToolState},
    },
    event::Event,
    ids::{MessageId, PartId, SessionId, TenantId, Timestamp},
    money::Tokens,
    text::json_bytes,
    turn::{
        outcome::outcome_of,
        view::{LastStep, View},
    },
};
use serde_json::Value;
use std::collections::BTreeSet;
use store::{
    Store,
    error::Error,
    log::messages::MessageWithParts,
    session::mailbox::{Kind, MailboxInput},
};

/// Number of messages from which a conversation counts as long. For a shorter one, moving to another thread costs
/// more than it saves.
const LONG_ENTRIES: usize = 100;
/// Bytes of texts, outputs and files from which on a conversation needs a summary, whatever the model can take: every loop has its
/// conversation in memory. A model gets at most 16 MiB of files, and a million tokens of text are some 4 MiB.
const HEAVY_BYTES: usize = 32 * 1024 * 1024;
/// About the memory that a message or a part takes in addition to its content.
const ROW_BYTES: usize = 1024;

/// Messages in order, each with its parts in order.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    entries: Vec<MessageWithParts>,
    /// Bytes of its texts, outputs and files.
    bytes: usize,
    /// The position of the newest prompt that was read from Postgres.
    read_to: u64,
    /// Nothing up to this position was loaded, because the newest summary replaces it.
    left_out: u64,
}

impl Conversation {
    pub(crate) fn entries(&self) -> &[MessageWithParts] {
        &self.entries
    }

    /// Does work that grows with the conversation. A long conversation would delay every session on the same thread, so the
    /// runtime moves the other sessions to another thread meanwhile.
    pub(crate) fn work<'a, T>(&'a self, work: impl FnOnce(&'a [MessageWithParts]) -> T) -> T {
        if self.entries.len() < LONG_ENTRIES {
            return work(&self.entries);
        }
        tokio::task::block_in_place(|| work(&self.entries))
    }

    /// Whether the conversation is loaded from its first message on.
    pub(crate) fn is_whole(&self) -> bool {
        self.left_out == 0
    }

    /// Whether the conversation needs a summary because of its size in memory.
    pub(crate) fn is_heavy(&self) -> bool {
        self.bytes > HEAVY_BYTES
    }

    /// Begins with as much of the past as a loop needs: the messages after the position `left_out`.
    pub(crate) fn from_messages(messages: Vec<MessageWithParts>, left_out: u64) -> Self {
        let mut conversation = Self { left_out, ..Self::default() };
        conversation.extend(messages);
        conversation
    }

    /// Continues a conversation that was kept since an earlier turn, with the messages after [`Conversation::read_after`]. Without one, begins as
    /// [`Conversation::from_messages`].
    pub(crate) fn begin(kept: Option<Self>, messages: Vec<MessageWithParts>, left_out: u64) -> Self {
        let Some(mut conversation) = kept else { return Self::from_messages(messages, left_out) };
        conversation.extend(messages);
        conversation
    }

    /// Reads new messages.
    ///
    /// Reads again everything after the newest loaded prompt: the gateway accepts prompts while the loop writes its own
    /// messages, and some of those are user messages.
    pub(crate) async fn read(
        &mut self,
        store: &Store,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<(), Error> {
        let entries = store.load_conversation(tenant, session, self.read_after()).await?;
        self.extend(entries);
        self.complete(store, tenant, session).await
    }

    /// The position after which new messages are read.
    pub(crate) fn read_after(&self) -> u64 {
        self.read_to.max(self.left_out)
    }

    /// About the memory that the conversation takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let rows: usize = self.entries.iter().map(|entry| 1 + entry.parts.len()).sum();
        self.bytes + rows * ROW_BYTES
    }

    /// Reads the whole past if the beginning of the turn is not in memory.
    pub(crate) async fn complete(
        &mut self,
        store: &Store,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<(), Error> {
        if !self.is_whole() && self.newest_prompt().is_none() {
            // In a fork, for example, the beginning of the turn is unknown: load everything.
            let entries = store.load_conversation(tenant, session, 0).await?;
            *self = Self::from_messages(entries, 0);
        }
        Ok(())
    }

    fn extend(&mut self, entries: Vec<MessageWithParts>) {
        for entry in entries {
            if matches!(entry.message, Message::User(_)) {
                self.read_to = self.read_to.max(entry.seq);
            }
            if let Err(at) = self.entries.binary_search_by_key(&entry.seq, |known| known.seq) {
                self.bytes += content_bytes(&entry);
                self.entries.insert(at, entry);
            }
        }
    }

    pub(crate) fn apply(&mut self, event: &Event, seq: u64) {
        match event {
            Event::MessageUpdated(message) if self.find_mut(message.id()).is_some() => {
                self.change(message.id(), |entry| entry.message = (**message).clone());
            }
            Event::MessageUpdated(message) => {
                let entry = MessageWithParts { seq, message: (**message).clone(), parts: vec![] };
                self.bytes += content_bytes(&entry);
                self.entries.push(entry);
            }
            Event::PartUpdated { part, .. } => {
                self.change(&part.message_id, |entry| {
                    match entry.parts.iter_mut().find(|(_, known)| known.id == part.id) {
                        Some((_, known)) => *known = (**part).clone(),
                        None => entry.parts.push((seq, (**part).clone())),
                    }
                });
            }
            Event::PartRemoved { message_id, part_id } => {
                self.change(message_id, |entry| entry.parts.retain(|(_, part)| &part.id != part_id));
            }
            Event::MessageRemoved(id) => {
                self.bytes -= self.find_mut(id).map_or(0, |entry| content_bytes(entry));
                self.entries.retain(|entry| entry.message.id() != id);
            }
            Event::SessionCreated(_)
            | Event::SessionUpdated(_)
            | Event::SessionDeleted(_)
            | Event::SessionStatus(_)
            | Event::SessionIdle(_)
            | Event::SessionError(_)
            | Event::TodoUpdated(_)
            | Event::LoopStarted { .. }
            | Event::LoopHandedOver { .. }
            | Event::SnapshotMissed(_)
            | Event::WorkspaceRestarted
            | Event::SessionPushed { .. }
            | Event::SessionWaiting(_)
            | Event::SessionQuarantined { .. }
            | Event::SessionReleased
            | Event::SessionCompacted
            | Event::CommandExecuted { .. }
            | Event::SessionDiff(_)
            | Event::FileEdited(_)
            | Event::FilesChanged(_)
            | Event::BranchUpdated(_)
            | Event::WorktreeReady(_)
            | Event::WorktreeFailed(_)
            | Event::RequestAsked(_)
            | Event::RequestAnswered { .. } => {}
        }
    }

    /// Changes the parts of a message, if it is loaded.
    fn change(&mut self, id: &MessageId, change: impl FnOnce(&mut MessageWithParts)) {
        let Some(entry) = self.find_mut(id) else { return };
        let before = content_bytes(entry);
        change(entry);
        let after = content_bytes(entry);
        self.bytes = self.bytes + after - before;
    }

    fn find_mut(&mut self, id: &MessageId) -> Option<&mut MessageWithParts> {
        self.entries.iter_mut().rev().find(|entry| entry.message.id() == id)
    }

    /// The newest message that requires an answer. If an abort is in the mailbox, the newest one that was accepted before
    /// it.
    pub(crate) fn newest_user(&self, inputs: &[MailboxInput]) -> Option<&User> {
        let abort = inputs.iter().rev().find(|input| input.kind == Kind::Abort).map(|input| input.seq);
        let later: BTreeSet<&MessageId> = inputs
            .iter()
            .filter(|input| abort.is_some_and(|abort| input.seq > abort))
            .filter_map(|input| input.message_id.as_ref())
            .collect();
        self.entries.iter().rev().find_map(|entry| match &entry.message {
            Message::User(user) if !later.contains(&user.id) => {
                (entries::origin(&entry.parts) != Origin::Note).then_some(user)
            }
            Message::User(_) | Message::Assistant(_) => None,
        })
    }

    /// The newest prompt of a person. Its settings are those of the whole turn.
    pub(crate) fn newest_prompt(&self) -> Option<&MessageWithParts> {
        let is_asked = |entry: &&MessageWithParts| {
            entries::as_user(entry).is_some() && entries::origin(&entry.parts) == Origin::Prompt
        };
        self.entries.iter().rev().find(|entry| is_asked(entry) && entries::compaction(&entry.parts).is_none())
    }

    /// The steps of the turn, newest first: all since the newest prompt of a person, across summaries.
    fn turn(&self) -> impl Iterator<Item = &MessageWithParts> {
        let newest = self.newest_prompt().map(|entry| entry.message.id());
        let since = self.entries.iter().rev().take_while(move |entry| Some(entry.message.id()) != newest);
        since.filter(|entry| matches!(&entry.message, Message::Assistant(step) if !step.is_summary()))
    }

    /// The number of steps in the turn so far.
    pub(crate) fn steps(&self) -> u32 {
        u32::try_from(self.turn().count()).unwrap_or(u32::MAX)
    }

    /// The number of the turn's structured answers that did not match the schema.
    pub(crate) fn misfits(&self) -> u32 {
        let is_misfit =
            |tool: &&Tool| tool.tool == structured::NAME && matches!(tool.state, ToolState::Error { .. });
        u32::try_from(self.turn_calls().filter(is_misfit).count()).unwrap_or(u32::MAX)
    }

    /// The tool calls of the turn so far.
    pub(crate) fn turn_calls(&self) -> impl Iterator<Item = &Tool> {
        let parts = self.turn().flat_map(|entry| &entry.parts);
        parts.filter_map(|(_, part)| part.body.as_tool())
    }

    /// The tokens of the newest complete answer, unless it is a summary.
    pub(crate) fn used(&self) -> Option<Tokens> {
        let finished = self.entries.iter().rev().find_map(|entry| match &entry.message {
            Message::Assistant(step) if entries::is_finished(step) => Some(step),
            Message::Assistant(_) | Message::User(_) => None,
        });
        finished.filter(|step| !step.is_summary()).map(|step| step.tokens)
    }

    /// The newest step with its parts.
    pub(crate) fn last_step(&self) -> Option<(&Assistant, &[(u64, Part)])> {
        self.entries.iter().rev().find_map(|entry| match &entry.message {
            Message::Assistant(assistant) => Some((&**assistant, &entry.parts[..])),
            Message::User(_) => None,
        })
    }

    /// The snapshot of the files after the newest finished step of the turn, if that step recorded one.
    pub(crate) fn newest_snapshot(&self) -> Option<&str> {
        let is_over = |entry: &&MessageWithParts| match &entry.message {
            Message::Assistant(step) => step.time.completed.is_some(),
            Message::User(_) => false,
        };
        changes::end_snapshot(&self.turn().find(is_over)?.parts)
    }

    /// A tool call of the newest step.
    pub(crate) fn tool_call(&self, call_id: &str) -> Option<(&PartId, &Tool)> {
        let (_, parts) = self.last_step()?;
        let mut tools = parts.iter().filter_map(|(_, part)| Some((&part.id, part.body.as_tool()?)));
        tools.find(|(_, tool)| tool.call_id == call_id)
    }

    pub(crate) fn newest_call(&self) -> Option<(&Part, &Tool)> {
        let parts = self.entries.iter().rev().flat_map(|entry| entry.parts.iter().rev());
        parts.map(|(_, part)| part).find_map(|part| Some((part, part.body.as_tool()?)))
    }

    /// The agent's last text: the newest one since the newest prompt.
    pub(crate) fn last_text(&self) -> Option<&str> {
        let is_step = |entry: &&MessageWithParts| matches!(entry.message, Message::Assistant(_));
        // A prompt that arrived after the answer has not been answered yet: skip it.
        let steps = self.entries.iter().rev().skip_while(|entry| !is_step(entry)).take_while(is_step);
        let texts =
            steps.flat_map(|entry| entry.parts.iter().rev()).filter_map(|(_, part)| part.body.as_text());
        texts.map(|text| text.text.as_str()).find(|text| !text.is_empty())
    }

    /// The newest tool calls since the newest prompt, oldest first; at most `count`.
    pub(crate) fn newest_tools(&self, count: usize) -> Vec<(&PartId, &Tool)> {
        let steps =
            self.entries.iter().rev().take_while(|entry| matches!(entry.message, Message::Assistant(_)));
        let parts = steps.flat_map(|entry| entry.parts.iter().rev());
        let tools = parts.filter_map(|(_, part)| Some((&part.id, part.body.as_tool()?)));
        let mut newest: Vec<_> = tools.take(count).collect();
        newest.reverse();
        newest
    }

    /// The facts that a turn decides by, as far as the conversation contains them.
    pub(crate) fn view(&self, inputs: &[MailboxInput], leaving: bool) -> View {
        let newest_user = self.newest_user(inputs).map(|user| user.id.clone());
        let turn: Vec<&MessageWithParts> = self.turn().collect();
        let last = self
            .last_step()
            .map(|(step, parts)| LastStep { continues: self.goes_on(step, parts), ..last_step(step, parts) });
        View {
            aborted: inputs.iter().any(|input| input.kind == Kind::Abort),
            steps: self.steps(),
            repeated_calls: repeated_calls(&turn),
            due: entries::due(&self.entries),
            is_full: false,
            steps_since_summary: entries::steps_since_summary(&self.entries),
            last,
            newest_user,
            out_of_budget: false,
            active_at: self.active_at(),
            leaving,
        }
    }

    /// When the newest prompt or step was written.
    fn active_at(&self) -> Timestamp {
        let written = |entry: &MessageWithParts| match &entry.message {
            Message::User(user) => user.time.created,
            Message::Assistant(step) => step.time.completed.unwrap_or(step.time.created),
        };
        self.entries.iter().rev().take(2).map(written).max().unwrap_or_default()
    }

    /// Whether another step follows the newest one, unless something stops the turn between them.
    pub(crate) fn goes_on_after_step(&self) -> bool {
        self.last_step().is_some_and(|(step, parts)| {
            step.error.is_none() && self.goes_on(step, parts) && !last_step(step, parts).rejected
        })
    }

    /// The milliseconds after which the shell command of a person is ended that the newest step runs. `None`: it runs none.
    pub(crate) fn person_timeout_ms(&self) -> Option<u32> {
        let (step, _) = self.last_step()?;
        let prompt = entries::position(&self.entries, &step.parent_id)?;
        entries::shell_timeout_ms(&self.entries[prompt].parts)
    }

    /// Whether the turn continues by itself after a step.
    fn goes_on(&self, step: &Assistant, parts: &[(u64, Part)]) -> bool {
        if step.is_summary() {
            let request = entries::position(&self.entries, &step.parent_id).map(|at| &self.entries[at].parts);
            return request.and_then(|parts| entries::compaction(parts)).is_some_and(|request| request.auto);
        }
        let prompt = entries::position(&self.entries, &step.parent_id);
        if prompt.is_some_and(|at| entries::shell_command(&self.entries[at].parts).is_some()) {
            return false;
        }
        // Only a call asks for another step. The words of providers for the end of an answer prove nothing.
        step.structured.is_none() && parts.iter().any(|(_, part)| matches!(part.body, Body::Tool(_)))
    }
}

fn content_bytes(entry: &MessageWithParts) -> usize {
    let parts = entry.parts.iter().map(|(_, part)| part.body.content_bytes());
    json_bytes(&entry.message) + parts.sum::<usize>()
}

fn last_step(assistant: &Assistant, parts: &[(u64, Part)]) -> LastStep {
    let tools = || parts.iter().filter_map(|(_, part)| part.body.as_tool());
    let open = tools().filter(|tool| !tool.state.is_over()).map(|tool| tool.call_id.clone()).collect();
    let retries = parts.iter().filter(|(_, part)| matches!(part.body, Body::Retry(_))).count();
    LastStep {
        parent: assistant.parent_id.clone(),
        answered: assistant.finish.is_some() || assistant.error.is_some(),
        closed: assistant.time.completed.is_some(),
        continues: false,
        is_summary: assistant.is_summary(),
        overflowed: assistant.error.as_ref().is_some_and(message::Error::is_overflow),
        failed: assistant.error.as_ref().map(outcome_of),
        rejected: tools().any(|tool| marks::is_rejected(&tool.state)),
        open: if assistant.error.is_some() { vec![] } else { open },
        retries: u32::try_from(retries).unwrap_or(u32::MAX),
    }
}

/// Counts the newest calls of a turn (given newest step first) that are identical and got the same answer, since a person or a
/// rule last allowed the model to continue.
fn repeated_calls(steps: &[&MessageWithParts]) -> usize {
    let parts = steps.iter().flat_map(|entry| entry.parts.iter().rev());
    let tools = parts.filter_map(|(_, part)| part.body.as_tool());
    let since = tools.take_while(|tool| !marks::is_marked(&tool.state, Repetition::Allowed));
    let mut calls = since.filter_map(|tool| match &tool.state {
        ToolState::Completed { input, output, .. } => Some((&tool.tool, input, output.as_str())),
        // A call that was cut off three times is a loop, wherever it was cut.
        ToolState::Error { input, error, .. } => {
            let input = if marks::is_unreadable(input) { &Value::Null } else { input };
            Some((&tool.tool, input, error.as_str()))
        }
        ToolState::Pending { .. } | ToolState::Running { .. } => None,
    });
    let Some(first) = calls.next() else { return 0 };
    1 + calls.take_while(|call| *call == first).count()
}

#[cfg(test)]
mod tests;
