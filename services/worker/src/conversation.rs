//! The conversation of one session in memory: loaded once, kept up by each write, and what a turn decides by.

use crate::turn::waiting::REFUSED;
use domain::{
    event::Event,
    ids::{MessageId, PartId},
    message::{Assistant, Message, User},
    part::{Body, Part, Tool, ToolState},
    turn::{LastStep, View, outcome_of},
};
use std::collections::BTreeSet;
use store::{inputs::Pending, messages::Entry};

/// Messages in order, each with its parts in order.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    entries: Vec<Entry>,
}

impl Conversation {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The place of the newest known prompt; 0 when there is none. Everything after it may hold prompts that are not
    /// known: they are accepted while the loop writes its own messages.
    pub(crate) fn newest_user_seq(&self) -> u64 {
        let newest = self.entries.iter().rev().find(|entry| matches!(entry.message, Message::User(_)));
        newest.map_or(0, |entry| entry.seq)
    }

    pub(crate) fn extend(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            if self.entries.iter().all(|known| known.message.id() != entry.message.id()) {
                self.entries.push(entry);
            }
        }
        self.entries.sort_by_key(|entry| entry.seq);
    }

    /// Takes over what a write stored.
    pub(crate) fn apply(&mut self, event: &Event, seq: u64) {
        match event {
            Event::MessageUpdated(message) => match self.find_mut(message.id()) {
                Some(entry) => entry.message = (**message).clone(),
                None => self.entries.push(Entry { seq, message: (**message).clone(), parts: vec![] }),
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
            Event::SessionCreated(_)
            | Event::SessionUpdated(_)
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
            | Event::RequestAsked(_)
            | Event::RequestAnswered { .. } => {}
        }
    }

    fn find_mut(&mut self, id: &MessageId) -> Option<&mut Entry> {
        self.entries.iter_mut().rev().find(|entry| entry.message.id() == id)
    }

    /// The newest prompt; with an abort in the mailbox, the newest that was accepted before it.
    pub(crate) fn newest_user(&self, inputs: &[Pending]) -> Option<&User> {
        let abort = inputs.iter().rev().find(|input| input.kind == "abort").map(|input| input.seq);
        let later: BTreeSet<&MessageId> = inputs
            .iter()
            .filter(|input| abort.is_some_and(|abort| input.seq > abort))
            .filter_map(|input| input.message_id.as_ref())
            .collect();
        self.entries.iter().rev().find_map(|entry| match &entry.message {
            Message::User(user) if !later.contains(&user.id) => Some(user),
            Message::User(_) | Message::Assistant(_) => None,
        })
    }

    /// The newest step with its parts.
    pub(crate) fn last_step(&self) -> Option<(&Assistant, &[(u64, Part)])> {
        self.entries.iter().rev().find_map(|entry| match &entry.message {
            Message::Assistant(assistant) => Some((&**assistant, &entry.parts[..])),
            Message::User(_) => None,
        })
    }

    /// A tool call of the newest step.
    pub(crate) fn tool_call(&self, call_id: &str) -> Option<(&PartId, &Tool)> {
        let (_, parts) = self.last_step()?;
        parts.iter().find_map(|(_, part)| match &part.body {
            Body::Tool(tool) if tool.call_id == call_id => Some((&part.id, tool)),
            _ => None,
        })
    }

    /// What the agent said last: the newest text of the newest step that has one since the newest prompt.
    pub(crate) fn last_text(&self) -> Option<&str> {
        let is_step = |entry: &&Entry| matches!(entry.message, Message::Assistant(_));
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
    pub(crate) fn view(&self, inputs: &[Pending], leaving: bool) -> View {
        let newest_user = self.newest_user(inputs).map(|user| user.id.clone());
        let turn: Vec<&Entry> = self
            .entries
            .iter()
            .rev()
            .take_while(|entry| Some(entry.message.id()) != newest_user.as_ref())
            .filter(|entry| matches!(entry.message, Message::Assistant(_)))
            .collect();
        View {
            aborted: inputs.iter().any(|input| input.kind == "abort"),
            steps: u32::try_from(turn.len()).unwrap_or(u32::MAX),
            repeated_calls: repeated_calls(&turn),
            last: self.last_step().map(last_step),
            newest_user,
            out_of_budget: false,
            leaving,
        }
    }
}

fn last_step((assistant, parts): (&Assistant, &[(u64, Part)])) -> LastStep {
    let tools = parts.iter().filter_map(|(_, part)| match &part.body {
        Body::Tool(tool) => Some(tool),
        _ => None,
    });
    let (mut called, mut refused, mut open) = (false, false, vec![]);
    for tool in tools {
        called = true;
        if let ToolState::Error { metadata: Some(metadata), .. } = &tool.state {
            refused |= metadata.contains_key(REFUSED);
        }
        if !tool.state.is_over() {
            open.push(tool.call_id.clone());
        }
    }
    let finish = assistant.finish.as_deref();
    let retries = parts.iter().filter(|(_, part)| matches!(part.body, Body::Retry(_))).count();
    LastStep {
        parent: assistant.parent_id.clone(),
        answered: finish.is_some() || assistant.error.is_some(),
        closed: assistant.time.completed.is_some(),
        // A model that says "stop" and calls a tool all the same wants to see its answer.
        continues: called || finish == Some("tool-calls") || finish == Some("unknown"),
        failed: assistant.error.as_ref().map(outcome_of),
        refused,
        open: if assistant.error.is_some() { vec![] } else { open },
        retries: u32::try_from(retries).unwrap_or(u32::MAX),
    }
}

/// How many of the newest calls of a turn (given newest step first) are one and the same with the same answer.
fn repeated_calls(steps: &[&Entry]) -> usize {
    let mut calls =
        steps.iter().flat_map(|entry| entry.parts.iter().rev()).filter_map(|(_, part)| match &part.body {
            Body::Tool(tool) => match &tool.state {
                ToolState::Completed { input, output, .. } => Some((&tool.tool, input, output)),
                ToolState::Error { input, error, .. } => Some((&tool.tool, input, error)),
                ToolState::Pending { .. } | ToolState::Running { .. } => None,
            },
            _ => None,
        });
    let Some(first) = calls.next() else { return 0 };
    1 + calls.take_while(|call| *call == first).count()
}

#[cfg(test)]
mod tests;
