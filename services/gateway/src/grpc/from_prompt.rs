//! A prompt from the wire to what `intake` takes: only its form is read here, `intake` judges it.

use super::to_wire;
use crate::intake::{Asked, parts::AskedPart};
use domain::{
    command,
    message::Format,
    part::{
        Body, Text,
        attached::{Compaction, File, Mention, Subtask},
    },
    text::without_nul,
};
use rpc::{
    status::invalid,
    v1::{self, prompt_part::Kind},
};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use tonic::Status;

/// Reads a prompt.
///
/// # Errors
/// `message_id_invalid`, `part_id_invalid`, `part_empty`, `source_invalid`, `schema_invalid`.
pub(super) fn asked(request: v1::AcceptPromptRequest) -> Result<Asked, Status> {
    let message_id = match request.message_id.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| invalid("message_id_invalid", "a message's id is msg_…"))?),
    };
    Ok(Asked {
        text: request.text,
        parts: request.parts.into_iter().map(part).collect::<Result<_, _>>()?,
        model: to_wire::from_model(request.model),
        variant: request.variant,
        agent: request.agent,
        system: request.system,
        tools: request.tools.into_iter().collect::<BTreeMap<_, _>>(),
        format: request.format.map(format).transpose()?.flatten(),
        no_reply: request.no_reply,
        message_id,
        idempotency_key: request.idempotency_key,
    })
}

fn part(part: v1::PromptPart) -> Result<AskedPart, Status> {
    let id = match part.id.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| invalid("part_id_invalid", "a part's id is prt_…"))?),
    };
    let body = match part.kind {
        None => {
            return Err(invalid("part_empty", "a part of a prompt is a text, a file, an agent or a task"));
        }
        Some(Kind::Text(text)) => Body::Text(Text { text, ..Text::default() }),
        Some(Kind::File(file)) => Body::File(File {
            mime: file.mime,
            filename: (!file.filename.is_empty()).then_some(file.filename),
            url: file.url,
            source: source(&file.source_json)?,
        }),
        Some(Kind::Agent(agent)) => {
            Body::Agent(Mention { name: agent.name, source: source(&agent.source_json)? })
        }
        Some(Kind::Subtask(task)) => Body::Subtask(Subtask {
            prompt: task.prompt,
            description: task.description,
            agent: task.agent,
            model: to_wire::from_model(task.model),
            command: (!task.command.is_empty()).then_some(task.command),
        }),
        Some(Kind::Command(command)) => Body::Text(
            domain::command::CommandRequest {
                name: without_nul(&command.name).into_owned(),
                arguments: without_nul(&command.arguments).into_owned(),
                progress: command::Progress::Asked,
            }
            .text(),
        ),
        Some(Kind::Shell(shell)) => Body::Text(command::shell(&without_nul(&shell.command))),
        Some(Kind::Compaction(_)) => {
            Body::Compaction(Compaction { auto: false, overflow: None, tail_start_id: None })
        }
    };
    Ok(AskedPart { id, body })
}

fn source<T: DeserializeOwned>(json: &str) -> Result<Option<T>, Status> {
    if json.is_empty() {
        return Ok(None);
    }
    let wrong = |error| invalid("source_invalid", format!("where the prompt names a part: {error}"));
    serde_json::from_str(json).map(Some).map_err(wrong)
}

fn format(format: v1::OutputFormat) -> Result<Option<Format>, Status> {
    if format.json_schema.is_empty() {
        return Ok(None);
    }
    let wrong = |error| invalid("schema_invalid", format!("the schema of the answer is no JSON: {error}"));
    let schema = serde_json::from_str(&format.json_schema).map_err(wrong)?;
    Ok(Some(Format::JsonSchema { schema, retry_count: format.retry_count }))
}
