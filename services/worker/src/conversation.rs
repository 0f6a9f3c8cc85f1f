//! The conversation of one session in memory: loaded once, kept up by each write, and what a turn decides by.

use crate::{
    changes,
    context::{self, Origin},
    structured,
    turn::{doubt, waiting::REFUSED},
};
use domain::{
    event::Event,
    ids::{MessageId, PartId, SessionId, TenantId},
    message::{self, Assistant, Message, User},
    money::Tokens,
    part::{Body, Part, Tool, ToolState},
    turn::{LastStep, View, outcome_of},
};
use std::collections::BTreeSet;
use store::{
    Store,
    error::Error,
    log::messages::MessageWithParts,
    session::mailbox::{Kind, MailboxInput},
};

/// Messages of a conversation that counts as long: below that, changing threads costs more than it spares.
const LONG_ENTRIES: usize = 100;

/// Messages in order, each with its parts in order.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    entries: Vec<MessageWithParts>,
    /// The place of the newest prompt that was read from Postgres.
    read_to: u64,
    /// Nothing up to this place was read: the newest summary stands for it.
    left_out: u64,
}

impl Conversation {
    pub(crate) fn entries(&self) -> &[MessageWithParts] {
        &self.entries
    }

    /// Does work that grows with the conversation. A long one would hold up every session that shares its thread: they are
    /// given to another one meanwhile.
    pub(crate) fn work<'a, T>(&'a self, work: impl FnOnce(&'a [MessageWithParts]) -> T) -> T {
        if self.entries.len() < LONG_ENTRIES {
            return work(&self.entries);
        }
        tokio::task::block_in_place(|| work(&self.entries))
    }

    /// Whether the conversation is known from its first message on.
    pub(crate) fn is_whole(&self) -> bool {
        self.left_out == 0
    }

    /// Reads what was not read yet; the first time, as much of the past as a loop needs.
    ///
    /// What is read again is everything after the newest prompt that is known: prompts are accepted while the loop writes its
    /// own messages, of which some are user messages.
    pub(crate) async fn read(
        &mut self,
        store: &Store,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<(), Error> {
        if self.entries.is_empty() {
            self.left_out = store.find_horizon(tenant, session).await?;
        }
        let after = self.read_to.max(self.left_out);
        let entries = store.load_conversation(tenant, session, after).await?;
        self.extend(entries);
        if !self.is_whole() && self.newest_prompt().is_none() {
            // Of a fork, for one: nobody knows where the turn began.
            let entries = store.load_conversation(tenant, session, 0).await?;
            *self = Self::default();
            self.extend(entries);
        }
        Ok(())
    }

    fn extend(&mut self, entries: Vec<MessageWithParts>) {
        for entry in entries {
            if matches!(entry.message, Message::User(_)) {
                self.read_to = self.read_to.max(entry.seq);
            }
            if let Err(at) = self.entries.binary_search_by_key(&entry.seq, |known| known.seq) {
                self.entries.insert(at, entry);
            }
        }
    }

    /// Takes over what a write stored.
    pub(crate) fn apply(&mut self, event: &Event, seq: u64) {
        match event {
            Event::MessageUpdated(message) => match self.find_mut(message.id()) {
                Some(entry) => entry.message = (**message).clone(),
                None => {
                    self.entries.push(MessageWithParts { seq, message: (**message).clone(), parts: vec![] })
                }
            },
            Event::PartUpdated { part, .. } => {
                if let Some(entry) = self.find_mut(&part.message_id) {
                    match entry.parts.iter_mut().find(|(_, known)| known.id == part.id) {
                        Some((_, known)) => *known = (**part).clone(),
                        None => entry.parts.push((seq, (**part).clone())),
                    }
                }
            }
            Event::PartRemoved { message_id, part_id } => {
                if let Some(entry) = self.find_mut(message_id) {
                    entry.parts.retain(|(_, part)| &part.id != part_id);
                }
            }
            Event::MessageRemoved(id) => self.entries.retain(|entry| entry.message.id() != id),
            Event::SessionCreated(_)
            | Event::SessionUpdated(_)
            | Event::SessionDeleted(_)
            | Event::SessionStatus(_)
            | Event::SessionIdle(_)
            | Event::SessionError(_)
            | Event::TodoUpdated(_)
            | Event::LoopStarted { .. }
            | Event::LoopHandedOver { .. }
            | Event::SessionWaiting(_)
            | Event::SessionQuarantined { .. }
            | Event::SessionReleased
            | Event::SessionCompacted
            | Event::CommandExecuted { .. }
            | Event::SessionDiff(_)
            | Event::FileEdited(_)
            | Event::FilesChanged(_)
            | Event::BranchUpdated(_)
            | Event::RequestAsked(_)
            | Event::RequestAnswered { .. } => {}
        }
    }

    fn find_mut(&mut self, id: &MessageId) -> Option<&mut MessageWithParts> {
        self.entries.iter_mut().rev().find(|entry| entry.message.id() == id)
    }

    /// The newest message that wants an answer; with an abort in the mailbox, the newest that was accepted before it.
    pub(crate) fn newest_user(&self, inputs: &[MailboxInput]) -> Option<&User> {
        let abort = inputs.iter().rev().find(|input| input.kind == Kind::Abort).map(|input| input.seq);
        let later: BTreeSet<&MessageId> = inputs
            .iter()
            .filter(|input| abort.is_some_and(|abort| input.seq > abort))
            .filter_map(|input| input.message_id.as_ref())
            .collect();
        self.entries.iter().rev().find_map(|entry| match &entry.message {
            Message::User(user) if !later.contains(&user.id) => {
                (context::origin(&entry.parts) != Origin::Note).then_some(user)
            }
            Message::User(_) | Message::Assistant(_) => None,
        })
    }

    /// The newest prompt of a person: its settings are those of the whole turn.
    pub(crate) fn newest_prompt(&self) -> Option<&MessageWithParts> {
        let is_asked = |entry: &&MessageWithParts| {
            context::as_user(entry).is_some() && context::origin(&entry.parts) == Origin::Prompt
        };
        self.entries.iter().rev().find(|entry| is_asked(entry) && context::compaction(&entry.parts).is_none())
    }

    /// The steps of the turn, newest first: since the newest prompt of a person, through every summary.
    fn turn(&self) -> impl Iterator<Item = &MessageWithParts> {
        let newest = self.newest_prompt().map(|entry| entry.message.id());
        let since = self.entries.iter().rev().take_while(move |entry| Some(entry.message.id()) != newest);
        since.filter(|entry| matches!(&entry.message, Message::Assistant(step) if !step.is_summary()))
    }

    /// How many steps the turn has.
    pub(crate) fn steps(&self) -> u32 {
        u32::try_from(self.turn().count()).unwrap_or(u32::MAX)
    }

    /// How many structured answers of the turn did not fit.
    pub(crate) fn misfits(&self) -> u32 {
        let parts = self.turn().flat_map(|entry| &entry.parts);
        let is_misfit = |(_, part): &&(u64, Part)| match &part.body {
            Body::Tool(tool) => {
                tool.tool == structured::NAME && matches!(tool.state, ToolState::Error { .. })
            }
            _ => false,
        };
        u32::try_from(parts.filter(is_misfit).count()).unwrap_or(u32::MAX)
    }

    /// What the newest whole answer used, unless it is a summary.
    pub(crate) fn used(&self) -> Option<Tokens> {
        let finished = self.entries.iter().rev().find_map(|entry| match &entry.message {
            Message::Assistant(step) if context::is_finished(step) => Some(step),
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

    /// The state of the files after the newest finished step of the turn, if it says so.
    pub(crate) fn state_of_turn(&self) -> Option<&str> {
        let is_over = |entry: &&MessageWithParts| match &entry.message {
            Message::Assistant(step) => step.time.completed.is_some(),
            Message::User(_) => false,
        };
        changes::end(&self.turn().find(is_over)?.parts)
    }

    /// A tool call of the newest step.
    pub(crate) fn tool_call(&self, call_id: &str) -> Option<(&PartId, &Tool)> {
        let (_, parts) = self.last_step()?;
        parts.iter().find_map(|(_, part)| match &part.body {
            Body::Tool(tool) if tool.call_id == call_id => Some((&part.id, tool)),
            _ => None,
        })
    }

    /// The newest tool call of all.
    pub(crate) fn newest_call(&self) -> Option<(&Part, &Tool)> {
        let parts = self.entries.iter().rev().flat_map(|entry| entry.parts.iter().rev());
        parts.map(|(_, part)| part).find_map(|part| match &part.body {
            Body::Tool(tool) => Some((part, tool)),
            _ => None,
        })
    }

    /// What the agent said last: the newest text of the newest step that has one since the newest prompt.
    pub(crate) fn last_text(&self) -> Option<&str> {
        let is_step = |entry: &&MessageWithParts| matches!(entry.message, Message::Assistant(_));
        // A prompt that came after the answer is not asked yet.
        let steps = self.entries.iter().rev().skip_while(|entry| !is_step(entry)).take_while(is_step);
        steps.flat_map(|entry| entry.parts.iter().rev()).find_map(|(_, part)| match &part.body {
            Body::Text(text) if !text.text.is_empty() => Some(text.text.as_str()),
            _ => None,
        })
    }

    /// The newest tool calls since the newest prompt, oldest first; at most `count`.
    pub(crate) fn newest_tools(&self, count: usize) -> Vec<(&PartId, &Tool)> {
        let steps =
            self.entries.iter().rev().take_while(|entry| matches!(entry.message, Message::Assistant(_)));
        let parts = steps.flat_map(|entry| entry.parts.iter().rev());
        let tools = parts.filter_map(|(_, part)| match &part.body {
            Body::Tool(tool) => Some((&part.id, tool)),
            _ => None,
        });
        let mut newest: Vec<_> = tools.take(count).collect();
        newest.reverse();
        newest
    }

    /// What a turn decides by.
    pub(crate) fn view(&self, inputs: &[MailboxInput], leaving: bool) -> View {
        let newest_user = self.newest_user(inputs).map(|user| user.id.clone());
        let turn: Vec<&MessageWithParts> = self.turn().collect();
        let last = self
            .last_step()
            .map(|step| LastStep { continues: self.goes_on(step.0, step.1), ..last_step(step) });
        View {
            aborted: inputs.iter().any(|input| input.kind == Kind::Abort),
            steps: self.steps(),
            repeated_calls: repeated_calls(&turn),
            due: context::due(&self.entries),
            is_full: false,
            steps_since_summary: context::steps_since_summary(&self.entries),
            last,
            newest_user,
            out_of_budget: false,
            leaving,
        }
    }

    /// Whether something follows a step by itself.
    fn goes_on(&self, step: &Assistant, parts: &[(u64, Part)]) -> bool {
        if step.is_summary() {
            let asked = context::place(&self.entries, &step.parent_id).map(|at| &self.entries[at].parts);
            return asked.and_then(|parts| context::compaction(parts)).is_some_and(|asked| asked.auto);
        }
        let entries = &self.entries;
        if context::place(entries, &step.parent_id)
            .is_some_and(|at| context::asked_shell(&entries[at].parts).is_some())
        {
            return false;
        }
        // A model that says "stop" and calls a tool all the same wants to see its answer.
        let called = parts.iter().any(|(_, part)| matches!(part.body, Body::Tool(_)));
        let finish = step.finish.as_deref();
        step.structured.is_none() && (called || finish == Some("tool-calls") || finish == Some("unknown"))
    }
}

fn last_step((assistant, parts): (&Assistant, &[(u64, Part)])) -> LastStep {
    let tools = parts.iter().filter_map(|(_, part)| match &part.body {
        Body::Tool(tool) => Some(tool),
        _ => None,
    });
    let (mut refused, mut open) = (false, vec![]);
    for tool in tools {
        if let ToolState::Error { metadata: Some(metadata), .. } = &tool.state {
            refused |= metadata.contains_key(REFUSED);
        }
        if !tool.state.is_over() {
            open.push(tool.call_id.clone());
        }
    }
    let retries = parts.iter().filter(|(_, part)| matches!(part.body, Body::Retry(_))).count();
    LastStep {
        parent: assistant.parent_id.clone(),
        answered: assistant.finish.is_some() || assistant.error.is_some(),
        closed: assistant.time.completed.is_some(),
        continues: false,
        is_summary: assistant.is_summary(),
        overflowed: assistant.error.as_ref().is_some_and(message::Error::is_overflow),
        failed: assistant.error.as_ref().map(outcome_of),
        refused,
        open: if assistant.error.is_some() { vec![] } else { open },
        retries: u32::try_from(retries).unwrap_or(u32::MAX),
    }
}

/// How many of the newest calls of a turn (given newest step first) are one and the same with the same answer; those do not
/// count after which the model was let go on.
fn repeated_calls(steps: &[&MessageWithParts]) -> usize {
    let parts = steps.iter().flat_map(|entry| entry.parts.iter().rev());
    let tools = parts.filter_map(|(_, part)| match &part.body {
        Body::Tool(tool) => Some(tool),
        _ => None,
    });
    let since = tools.take_while(|tool| doubt::mark(&tool.state) != Some(doubt::GOES_ON));
    let mut calls = since.filter_map(|tool| match &tool.state {
        ToolState::Completed { input, output, .. } => Some((&tool.tool, input, output.as_str())),
        ToolState::Error { input, error, .. } => Some((&tool.tool, input, error.as_str())),
        ToolState::Pending { .. } | ToolState::Running { .. } => None,
    });
    let Some(first) = calls.next() else { return 0 };
    1 + calls.take_while(|call| *call == first).count()
}

#[cfg(test)]
mod tests;
