//! Prompts in OpenCode's shape, and the models that they name.

use crate::{
    app::prompts::request::{PromptPart, PromptRequest, VariantChoice},
    errors::{error::Error, invalid::Invalid},
};
use domain::conversation::{
    message::{self, ModelRef},
    part::{
        self, Text,
        attached::{Mention, Subtask},
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::collections::BTreeMap;

/// A model in the form that prompts use.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::http) struct Model {
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "modelID", alias = "id")]
    model_id: String,
    /// Of a session. Prompts name theirs next to the model.
    #[serde(default)]
    variant: Option<String>,
}

impl From<Model> for ModelRef {
    fn from(model: Model) -> Self {
        Self { provider_id: model.provider_id, model_id: model.model_id }
    }
}

impl Model {
    /// The variant that clients of a session see; OpenCode's name for the provider's default is no variant.
    pub(in crate::http) fn variant(&self) -> &str {
        self.variant.as_deref().filter(|name| *name != "default").unwrap_or_default()
    }

    /// The model; `None` if both names are empty.
    pub(in crate::http) fn chosen(self) -> Option<ModelRef> {
        Some(ModelRef::from(self)).filter(|model| !model.provider_id.is_empty() || !model.model_id.is_empty())
    }
}

/// A model in the form that commands use: `provider/model`.
pub(in crate::http) fn model(text: &str) -> Option<ModelRef> {
    let (provider_id, model_id) = text.split_once('/')?;
    let (provider_id, model_id) = (provider_id.to_owned(), model_id.to_owned());
    let model = Model { provider_id, model_id, variant: None };
    model.chosen()
}

/// The body of `POST /session/{id}/message`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::http) struct Prompt {
    #[serde(rename = "messageID")]
    message_id: Option<String>,
    model: Option<Model>,
    agent: Option<String>,
    no_reply: bool,
    tools: BTreeMap<String, bool>,
    format: Option<Format>,
    system: Option<String>,
    variant: Option<String>,
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    Text,
    #[serde(rename_all = "camelCase")]
    JsonSchema {
        schema: Value,
        retry_count: Option<u32>,
    },
}

/// A part of a prompt.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct Part {
    id: Option<String>,
    #[serde(flatten)]
    kind: PartKind,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum PartKind {
    Text {
        text: String,
    },
    File {
        mime: String,
        filename: Option<String>,
        url: String,
        source: Option<Value>,
    },
    Agent {
        name: String,
        source: Option<Value>,
    },
    Subtask {
        prompt: String,
        description: String,
        agent: String,
        model: Option<Model>,
        command: Option<String>,
    },
}

impl TryFrom<Prompt> for PromptRequest {
    type Error = Error;

    fn try_from(prompt: Prompt) -> Result<Self, Error> {
        let format = prompt.format.and_then(|format| match format {
            Format::Text => None,
            Format::JsonSchema { schema, retry_count } => {
                Some(message::Format::JsonSchema { schema, retry_count })
            }
        });
        Ok(Self {
            parts: prompt.parts.into_iter().map(PromptPart::try_from).collect::<Result<_, _>>()?,
            model: prompt.model.and_then(Model::chosen),
            variant: variant(prompt.variant.unwrap_or_default()),
            agent: prompt.agent.unwrap_or_default(),
            system: prompt.system.unwrap_or_default(),
            tools: prompt.tools,
            format,
            no_reply: prompt.no_reply,
            message_id: message_id(prompt.message_id.as_deref().unwrap_or_default())?,
            ..Self::default()
        })
    }
}

/// The effort that a client chose. OpenCode's clients name theirs with every prompt: without a name it is the provider's.
pub(in crate::http) fn variant(name: String) -> VariantChoice {
    if name.is_empty() { VariantChoice::Provider } else { VariantChoice::Named(name) }
}

/// The id that a client chose for a message; an empty id counts as none.
pub(in crate::http) fn message_id(text: &str) -> Result<Option<domain::ids::MessageId>, Error> {
    let wrong = |_| Invalid::MessageId.because("a message id begins with msg_");
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(wrong) }
}

impl TryFrom<Part> for PromptPart {
    type Error = Error;

    fn try_from(part: Part) -> Result<Self, Error> {
        let id = match part.id.as_deref().unwrap_or_default() {
            "" => None,
            id => Some(id.parse().map_err(|_| Invalid::PartId.because("a part id begins with prt_"))?),
        };
        Ok(Self { id, body: body(part.kind)? })
    }
}

fn body(kind: PartKind) -> Result<part::Body, Error> {
    Ok(match kind {
        PartKind::Text { text } => part::Body::Text(Text { text, ..Text::default() }),
        PartKind::File { mime, filename, url, source } => part::Body::File(part::attached::File {
            mime,
            filename: filename.filter(|name| !name.is_empty()),
            url,
            source: self::source(source)?,
        }),
        PartKind::Agent { name, source } => {
            part::Body::Agent(Mention { name, source: self::source(source)? })
        }
        PartKind::Subtask { prompt, description, agent, model, command } => part::Body::Subtask(Subtask {
            prompt,
            description,
            agent,
            model: model.and_then(Model::chosen),
            command: command.filter(|command| !command.is_empty()),
        }),
    })
}

fn source<T: DeserializeOwned>(source: Option<Value>) -> Result<Option<T>, Error> {
    let wrong = |error| Invalid::Source.because(format!("cannot read the source of a part: {error}"));
    source.map(serde_json::from_value).transpose().map_err(wrong)
}
