//! Copies the history of a session for another session, under new ids. Snapshots are left out, because their names mean nothing in
//! another workspace.

use domain::{
    conversation::{
        message::Message,
        part::{Body, Part, ToolState},
    },
    event::Event,
    ids::{MessageId, PartId, SessionId, Timestamp},
};
use serde_json::Value;
use std::collections::HashMap;
use store::log::{messages::MessageWithParts, outline::MessageOutline};

/// Creates the ids of a copy.
pub(super) trait IdSource: Send {
    fn message(&mut self) -> MessageId;
    fn part(&mut self) -> PartId;
}

/// The end of a copy. Unfinished steps are left out too.
pub(super) struct CopyEnd<'a> {
    /// The first message that is not copied; `None`: all messages are copied.
    pub(super) message: Option<&'a MessageId>,
    /// If set, the parts of that message before this one are copied too.
    pub(super) part: Option<&'a PartId>,
}

impl CopyEnd<'_> {
    /// The position before which messages are copied; `None` if the message at the end does not exist.
    pub(super) fn before_seq(&self, outline: &[MessageOutline]) -> Option<u64> {
        let Some(id) = self.message else { return Some(outline.last().map_or(0, |last| last.seq + 1)) };
        let message = outline.iter().find(|message| message.id == *id)?;
        Some(if self.part.is_some() { message.seq + 1 } else { message.seq })
    }
}

/// Copies messages in their order, page by page.
pub(super) struct Copier<'a, I> {
    ids: I,
    end: CopyEnd<'a>,
    at: Timestamp,
    new: NewIds<'a>,
}

impl<'a, I: IdSource> Copier<'a, I> {
    /// Copies to the new session `session`, at the time `at`.
    pub(super) fn new(session: &'a SessionId, end: CopyEnd<'a>, ids: I, at: Timestamp) -> Self {
        Self { ids, end, at, new: NewIds { session, messages: HashMap::new(), parts: HashMap::new() } }
    }

    /// The events that create these messages in the new session.
    pub(super) fn events(&mut self, entries: &[MessageWithParts]) -> Vec<Event> {
        let is_complete = |entry: &&MessageWithParts| match &entry.message {
            Message::User(_) => true,
            Message::Assistant(step) => step.time.completed.is_some(),
        };
        let mut events = vec![];
        for entry in entries.iter().filter(is_complete) {
            self.new.messages.insert(entry.message.id().clone(), self.ids.message());
            let ids = &mut self.ids;
            self.new.parts.extend(entry.parts.iter().map(|(_, part)| (part.id.clone(), ids.part())));
            events.push(Event::MessageUpdated(Box::new(self.new.message(&entry.message))));
            let is_cut = Some(entry.message.id()) == self.end.message;
            let stays = |part: &&Part| !is_cut || Some(&part.id) != self.end.part;
            let stored_parts = entry.parts.iter().map(|(_, part)| part).take_while(stays);
            let copied = stored_parts.filter_map(|part| self.new.part(part));
            events.extend(copied.map(|part| Event::PartUpdated { part: Box::new(part), at: self.at }));
        }
        events
    }
}

/// The new ids of what was copied so far.
struct NewIds<'a> {
    session: &'a SessionId,
    messages: HashMap<MessageId, MessageId>,
    parts: HashMap<PartId, PartId>,
}

impl NewIds<'_> {
    fn of_message(&self, id: &MessageId) -> MessageId {
        self.messages.get(id).unwrap_or(id).clone()
    }

    fn message(&self, message: &Message) -> Message {
        let mut message = message.clone();
        match &mut message {
            Message::User(user) => {
                user.id = self.of_message(&user.id);
                user.session_id = self.session.clone();
            }
            Message::Assistant(step) => {
                step.id = self.of_message(&step.id);
                step.parent_id = self.of_message(&step.parent_id);
                step.session_id = self.session.clone();
            }
        }
        message
    }

    /// `None` for a part that contains only a snapshot.
    fn part(&self, part: &Part) -> Option<Part> {
        let mut body = part.body.clone();
        match &mut body {
            Body::Patch(_) | Body::Snapshot(_) => return None,
            Body::StepStart(start) => start.snapshot = None,
            Body::StepFinish(finish) => finish.snapshot = None,
            Body::Compaction(compaction) => {
                compaction.tail_start_id = compaction.tail_start_id.as_ref().map(|id| self.of_message(id));
            }
            // A mark can name a part of the same message.
            Body::Text(text) => {
                for mark in text.metadata.iter_mut().flat_map(serde_json::Map::values_mut) {
                    self.rename(mark);
                }
            }
            Body::Tool(tool) => {
                if let ToolState::Completed { attachments, .. } = &mut tool.state {
                    let renamed = attachments.iter().filter_map(|part| self.part(part)).collect();
                    *attachments = renamed;
                }
            }
            Body::Reasoning(_) | Body::File(_) | Body::Agent(_) | Body::Subtask(_) | Body::Retry(_) => {}
        }
        Some(Part {
            id: self.parts.get(&part.id).unwrap_or(&part.id).clone(),
            session_id: self.session.clone(),
            message_id: self.of_message(&part.message_id),
            body,
        })
    }

    fn rename(&self, mark: &mut Value) {
        let part =
            mark.as_str().and_then(|text| text.parse().ok()).and_then(|id: PartId| self.parts.get(&id));
        if let Some(part) = part {
            *mark = part.as_str().into();
        }
    }
}

/// The title of a fork: the next number after the origin's.
pub(super) fn title(title: &str) -> String {
    let numbered = title.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (fork #"));
    let known = numbered.and_then(|(words, number)| Some((words, number.parse::<u32>().ok()?)));
    let (words, number) = known.unwrap_or((title, 0));
    let words = domain::text::head(words, domain::limits::NAME_BYTES_MAX - " (fork #4294967295)".len());
    format!("{words} (fork #{})", number.saturating_add(1))
}

#[cfg(test)]
mod tests;
