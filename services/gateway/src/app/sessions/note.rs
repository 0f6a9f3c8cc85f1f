//! Notes in a conversation: messages that no person wrote and that need no answer.

use crate::state::{State, now};
use domain::{
    conversation::{
        message::{MessageTime, ModelRef, User},
        part::{Body, NO_REPLY, Part, Text},
    },
    ids::{MessageId, PartId, SessionId},
};
use store::{log::change::Note, rows::session_row::Session};

/// The session that gets a note, with its agent and its model.
#[derive(Debug, Clone)]
pub(in crate::app) struct NoteContext<'a> {
    pub(in crate::app) session: &'a SessionId,
    pub(in crate::app) agent: &'a str,
    pub(in crate::app) model: ModelRef,
}

impl<'a> NoteContext<'a> {
    pub(in crate::app) fn of(session: &'a Session) -> Self {
        let info = &session.info;
        let model = ModelRef { provider_id: info.model.provider_id.clone(), model_id: info.model.id.clone() };
        Self { session: &info.id, agent: &info.agent, model }
    }
}

/// Makes a note with this text.
pub(in crate::app) fn note(state: &State, context: NoteContext<'_>, text: Text) -> Note {
    let NoteContext { session, agent, model } = context;
    let message = User {
        id: state.id(MessageId::make),
        session_id: session.clone(),
        time: MessageTime { created: now(), completed: None },
        agent: agent.to_owned(),
        model: model.into(),
        system: None,
        tools: None,
        format: None,
        summary: None,
    };
    let text = Part {
        id: state.id(PartId::make),
        session_id: session.clone(),
        message_id: message.id.clone(),
        body: Body::Text(text.marked(NO_REPLY, true)),
    };
    Note { message: Box::new(message), text: Box::new(text) }
}
