//! A prompt from the wire. This file checks only its form; `app::prompts` checks its content.

use super::{convert, status::to_status};
use crate::{
    app::prompts::request::{PromptPart, PromptRequest, VariantChoice},
    errors::invalid::Invalid,
};
use domain::{
    conversation::{
        command,
        message::Format,
        part::{
            Body, Text,
            attached::{Compaction, File, Mention, Subtask},
        },
    },
    limits,
    text::without_nul,
};
use rpc::v1::{self, prompt_part::Kind};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use tonic::Status;

/// Reads a prompt.
///
/// # Errors
/// `message_id_invalid`, `part_id_invalid`, `part_empty`, `source_invalid`, `schema_invalid`.
pub(super) fn prompt(request: v1::AcceptPromptRequest) -> Result<PromptRequest, Status> {
    let message_id = match request.message_id.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| invalid(Invalid::MessageId, "a message id begins with msg_"))?),
    };
    Ok(PromptRequest {
        text: request.text,
        parts: request.parts.into_iter().map(part).collect::<Result<_, _>>()?,
        model: convert::from_model(request.model),
        variant: match request.variant {
            name if name.is_empty() => VariantChoice::Session,
            name => VariantChoice::Named(name),
        },
        agent: request.agent,
        system: request.system,
        tools: request.tools.into_iter().collect::<BTreeMap<_, _>>(),
        format: request.format.map(format).transpose()?.flatten(),
        no_reply: request.no_reply,
        message_id,
        idempotency_key: request.idempotency_key,
        with_queue_position: true,
    })
}

fn part(part: v1::PromptPart) -> Result<PromptPart, Status> {
    let id = match part.id.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| invalid(Invalid::PartId, "a part id begins with prt_"))?),
    };
    let body = match part.kind {
        None => {
            return Err(invalid(
                Invalid::PartEmpty,
                "a prompt part must be a text, a file, an agent or a task",
            ));
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
            model: convert::from_model(task.model),
            command: (!task.command.is_empty()).then_some(task.command),
        }),
        Some(Kind::Command(command)) => Body::Text(
            domain::conversation::command::CommandRequest {
                name: without_nul(&command.name).into_owned(),
                arguments: without_nul(&command.arguments).into_owned(),
                progress: command::CommandState::Asked,
            }
            .text(),
        ),
        Some(Kind::Shell(shell)) => Body::Text(shell_text(&shell)?),
        Some(Kind::Compaction(_)) => {
            Body::Compaction(Compaction { auto: false, overflow: None, tail_start_id: None })
        }
    };
    Ok(PromptPart { id, body })
}

/// The text that asks for a person's shell command.
fn shell_text(shell: &v1::ShellPart) -> Result<Text, Status> {
    let command = without_nul(&shell.command);
    match shell.timeout_ms {
        0 => Ok(command::shell(&command)),
        timeout_ms if timeout_ms <= limits::SHELL_TIMEOUT_MAX_MS => {
            Ok(command::shell_for(&command, timeout_ms))
        }
        _ => {
            let max_s = limits::SHELL_TIMEOUT_MAX_MS / 1_000;
            Err(invalid(Invalid::Part, format!("a shell command may run {max_s} s at most")))
        }
    }
}

fn source<T: DeserializeOwned>(json: &str) -> Result<Option<T>, Status> {
    if json.is_empty() {
        return Ok(None);
    }
    let wrong = |error| invalid(Invalid::Source, format!("cannot read the source of a part: {error}"));
    serde_json::from_str(json).map(Some).map_err(wrong)
}

fn format(format: v1::OutputFormat) -> Result<Option<Format>, Status> {
    if format.json_schema.is_empty() {
        return Ok(None);
    }
    let wrong = |error| invalid(Invalid::Schema, format!("the answer schema is not valid JSON: {error}"));
    let schema = serde_json::from_str(&format.json_schema).map_err(wrong)?;
    Ok(Some(Format::JsonSchema { schema, retry_count: format.retry_count }))
}

fn invalid(mistake: Invalid, message: impl Into<String>) -> Status {
    to_status(mistake.because(message))
}
