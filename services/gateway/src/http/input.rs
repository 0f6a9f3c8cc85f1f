//! Bodies and queries of requests: read in OpenCode's shape, and told what is wrong with them in words.

use super::{error::Refused, read};
use crate::bodies::BODY;
use axum::{
    extract::{self, FromRequest, FromRequestParts, Request},
    http::request::Parts,
};
use domain::message::ModelRef;
use rpc::v1::{self, prompt_part::Kind};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::collections::BTreeMap;

/// A JSON body; no body counts as an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let wrong = |error: String| Refused::Unreadable("Body", error);
        let bytes = read::body(request, BODY).await?;
        let text: &[u8] = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { &bytes };
        // A list would do for an object whose members may all be missing.
        let value = match text.trim_ascii_start().first() {
            Some(b'{') => serde_json::from_slice(text),
            _ => return Err(wrong("the body is no JSON object".to_owned())),
        };
        value.map(Self).map_err(|error| wrong(format!("the body is not what was expected: {error}")))
    }
}

/// What stands in the query.
pub(super) struct Query<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let asked = extract::Query::<T>::try_from_uri(&parts.uri);
        let unreadable = |error| Refused::Unreadable("Query", format!("the query cannot be read: {error}"));
        asked.map(|asked| Self(asked.0)).map_err(unreadable)
    }
}

/// A model as prompts name it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Model {
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "modelID", alias = "id")]
    model_id: String,
}

impl From<Model> for v1::ModelRef {
    fn from(model: Model) -> Self {
        Self { provider_id: model.provider_id, model_id: model.model_id }
    }
}

/// A model as commands name it: `provider/model`.
pub(super) fn model(text: &str) -> Option<v1::ModelRef> {
    let (provider_id, model_id) = text.split_once('/')?;
    let ModelRef { provider_id, model_id } =
        ModelRef { provider_id: provider_id.to_owned(), model_id: model_id.to_owned() };
    Some(v1::ModelRef { provider_id, model_id })
}

/// The body of `POST /session/{id}/message`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Prompt {
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
pub(super) struct Part {
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

impl Prompt {
    /// The same as a call of ours.
    pub(super) fn accept(self, session_id: String) -> v1::AcceptPromptRequest {
        let format = self.format.map(|format| match format {
            Format::Text => v1::OutputFormat::default(),
            Format::JsonSchema { schema, retry_count } => {
                v1::OutputFormat { json_schema: schema.to_string(), retry_count }
            }
        });
        v1::AcceptPromptRequest {
            session_id,
            model: self.model.map(Into::into),
            agent: self.agent.unwrap_or_default(),
            system: self.system.unwrap_or_default(),
            parts: self.parts.into_iter().map(Into::into).collect(),
            no_reply: self.no_reply,
            tools: self.tools.into_iter().collect(),
            variant: self.variant.unwrap_or_default(),
            format,
            message_id: self.message_id.unwrap_or_default(),
            ..Default::default()
        }
    }
}

impl From<Part> for v1::PromptPart {
    fn from(part: Part) -> Self {
        let json = |source: Option<Value>| source.map(|source| source.to_string()).unwrap_or_default();
        let kind = match part.kind {
            PartKind::Text { text } => Kind::Text(text),
            PartKind::File { mime, filename, url, source } => Kind::File(v1::FilePart {
                mime,
                filename: filename.unwrap_or_default(),
                url,
                source_json: json(source),
            }),
            PartKind::Agent { name, source } => {
                Kind::Agent(v1::AgentPart { name, source_json: json(source) })
            }
            PartKind::Subtask { prompt, description, agent, model, command } => {
                Kind::Subtask(v1::SubtaskPart {
                    prompt,
                    description,
                    agent,
                    model: model.map(Into::into),
                    command: command.unwrap_or_default(),
                })
            }
        };
        Self { id: part.id.unwrap_or_default(), kind: Some(kind) }
    }
}
