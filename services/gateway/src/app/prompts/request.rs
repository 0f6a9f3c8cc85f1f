//! A prompt as a client sends it, independent of the protocol.

use domain::{
    conversation::{
        message::{Format, ModelRef},
        part::Body,
    },
    ids::{MessageId, PartId},
};
use std::collections::BTreeMap;
pub(crate) use store::session::inputs::VariantChoice;

/// A prompt. An empty text leaves the choice to the session.
#[derive(Debug, Clone, Default)]
pub(crate) struct PromptRequest {
    /// The first part, unless it is empty.
    pub(crate) text: String,
    pub(crate) parts: Vec<PromptPart>,
    pub(crate) model: Option<ModelRef>,
    pub(crate) variant: VariantChoice,
    pub(crate) agent: String,
    pub(crate) system: String,
    /// Tools that are switched on or off for this prompt.
    pub(crate) tools: BTreeMap<String, bool>,
    pub(crate) format: Option<Format>,
    /// Stores the prompt without starting a turn.
    pub(crate) no_reply: bool,
    /// The id that the client chose for the message.
    pub(crate) message_id: Option<MessageId>,
    pub(crate) idempotency_key: String,
    /// Whether the receipt has the position of the session in the queue of its tenant. For people.
    pub(crate) with_queue_position: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromptPart {
    /// The id that the client chose for the part.
    pub(crate) id: Option<PartId>,
    pub(crate) body: Body,
}

impl From<Body> for PromptPart {
    fn from(body: Body) -> Self {
        Self { id: None, body }
    }
}
