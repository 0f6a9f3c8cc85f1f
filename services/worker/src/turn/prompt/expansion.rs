//! Expands the commands of prompts: the template of that name from the repository, this version or a skill, with the client's
//! arguments, the output of its shell commands, and the files and agents that it mentions.
// Continues in `domain::conversation::command::template`, which fills the template in, and `tools::bash`, which runs shell commands.

use crate::{
    calls::{judge::Judge, permissions::Permissions, run::SilentCalls},
    conversation::entries::CommandPrompt,
    process::{deps::Deps, sandbox::Identity},
    repository::{guidance::Guidance, workspace::Workspace},
    tools::{
        outcome::{ToolError, opening_error, sandbox_error},
        tool::Tool,
    },
};
use domain::{
    conversation::{
        command::{
            self, Command,
            template::{self, Piece},
        },
        media,
        message::Error,
        part::{
            Body, Part,
            attached::{File, Mention},
        },
    },
    limits,
    policy::{agent::Mode, permission::Verdict},
    session::WORKSPACE,
};
use futures::future::try_join_all;
use rpc::v1::{self, ErrorCode, FileKind};
use serde_json::json;
use std::sync::Arc;

/// Files and agents that one command may name: the worker looks up each of them. It ignores further ones.
const COMMAND_MENTIONS_MAX: usize = 32;

/// The inputs of an expansion.
pub(super) struct ExpansionMeans {
    pub(super) deps: Arc<Deps>,
    pub(super) identity: Identity,
    pub(super) workspace: Workspace,
    pub(super) guidance: Arc<Guidance>,
    pub(super) permissions: Permissions,
    pub(super) silent_calls: SilentCalls,
}

/// The expanded command.
#[derive(Debug)]
pub(in crate::turn) struct Expansion {
    pub(super) prompt: CommandPrompt,
    /// The agent that answers, and whether it does so as a subtask.
    pub(super) command: Command,
    pub(super) text: String,
    /// Files and agents that it mentions.
    pub(super) mentions: Vec<Body>,
}

/// The id under which the sandbox knows a shell command of an expansion.
pub(super) fn exec_id(part: &Part, number: usize) -> String {
    format!("{}-{number}", part.id)
}

/// Expands the commands of prompts. A repetition, also by another worker, attaches to shell commands that are already
/// running.
///
/// # Errors
/// An error that ends the turn.
pub(super) async fn expand_all(
    means: ExpansionMeans,
    prompts: Vec<CommandPrompt>,
) -> Result<Vec<Expansion>, ToolError> {
    try_join_all(prompts.into_iter().map(|prompt| expand(&means, prompt))).await
}

async fn expand(means: &ExpansionMeans, prompt: CommandPrompt) -> Result<Expansion, ToolError> {
    let command = find(means, &prompt).await?;
    let pieces = template::expand(&command.template, &prompt.invocation.arguments);
    let mut named: Vec<String> = vec![];
    for piece in &pieces {
        // Mentions in the output of a shell command do not count, because no person wrote it.
        if let Piece::Text(text) = piece {
            named.extend(template::mentions(text).into_iter().map(ToOwned::to_owned));
        }
    }
    named.truncate(COMMAND_MENTIONS_MAX);
    let shells = pieces.iter().filter(|piece| matches!(piece, Piece::Shell(_))).count();
    if shells > limits::COMMAND_SHELLS_MAX {
        let most = limits::COMMAND_SHELLS_MAX;
        return Err(command_error(&prompt, &format!("runs {shells} shell commands; the limit is {most}")));
    }
    if shells > 0 || !named.is_empty() {
        means.workspace.ready().await.map_err(|status| opening_error(&status))?;
        let network = means.workspace.egress().ready().await;
        network.map_err(|status| opening_error(&status))?;
    }
    let agent = command.agent.as_deref().unwrap_or(&prompt.user.agent);
    let mut number = 0;
    let texts = pieces.into_iter().map(|piece| {
        let exec = matches!(piece, Piece::Shell(_)).then(|| exec_id(&prompt.part, number));
        number += usize::from(exec.is_some());
        piece_text(means, agent, piece, exec)
    });
    let text = try_join_all(texts).await?.concat();
    if text.len() > limits::PROMPT_BYTES_MAX {
        let (bytes, most) = (text.len(), limits::PROMPT_BYTES_MAX);
        return Err(command_error(&prompt, &format!("expands to {bytes} bytes; the limit is {most} bytes")));
    }
    let named = try_join_all(named.iter().map(|name| mention(means, name))).await?;
    Ok(Expansion { prompt, command, text, mentions: named.into_iter().flatten().collect() })
}

/// Finds a command in the repository; else in this version, else among the skills.
async fn find(means: &ExpansionMeans, prompt: &CommandPrompt) -> Result<Command, ToolError> {
    let name = &prompt.invocation.name;
    let commands = &means.guidance.settings.commands;
    if let Some(command) = commands.get(name).cloned().or_else(|| command::built_in(name)) {
        return Ok(command);
    }
    let mut skills = means.guidance.skills.iter().map(|skill| &skill.name);
    if skills.any(|skill| skill == name) {
        // A commit has its name; only the files have its text.
        means.workspace.ready().await.map_err(|status| opening_error(&status))?;
        let exec = exec_id(&prompt.part, 0);
        let skill = means.silent_calls.perform(Tool::Skill, &exec, json!({"name": name})).await?;
        return Ok(Command { template: skill.text, ..Command::default() });
    }
    let mut names: Vec<&str> = commands.keys().map(String::as_str).chain(command::BUILT_IN).collect();
    names.extend(means.guidance.skills.iter().map(|skill| skill.name.as_str()));
    names.sort_unstable();
    names.dedup();
    let message = format!("the command /{name} does not exist; available commands: {}", names.join(", "));
    Err(ToolError::Broken(Error::coded(ErrorCode::CommandNotFound.as_str(), message)))
}

fn command_error(prompt: &CommandPrompt, what: &str) -> ToolError {
    let message = format!("the command /{} {what}", prompt.invocation.name);
    ToolError::Broken(Error::coded(ErrorCode::CommandInvalid.as_str(), message))
}

/// The text of a piece. A client that names a command thereby allows its shell commands, unless a rule denies them.
async fn piece_text(
    means: &ExpansionMeans,
    agent: &str,
    piece: Piece,
    exec: Option<String>,
) -> Result<String, ToolError> {
    let (shell, exec) = match (piece, exec) {
        (Piece::Text(text), _) => return Ok(text),
        (Piece::Shell(shell), exec) => (shell, exec.unwrap_or_default()),
    };
    // A rule may name arguments, and arguments must not hide a command of the template.
    for command in [&shell.command, &shell.shown] {
        let converter = means.deps.converter.of(means.identity.tenant);
        let judge = Judge { permissions: &means.permissions, agent, converter };
        if judge.verdict(Tool::Bash, &json!({"command": command})).await == Verdict::Deny {
            return Ok(format!("(`{}` was not run: a rule denies it)", shell.shown));
        }
    }
    match means.silent_calls.perform(Tool::Bash, &exec, json!({"command": shell.line()})).await {
        Ok(output) => Ok(output.text.trim_end().to_owned()),
        Err(ToolError::Model(text)) => Ok(text),
        Err(error) => Err(error),
    }
}

/// The file or the agent that a name mentions, if it exists.
async fn mention(means: &ExpansionMeans, name: &str) -> Result<Option<Body>, ToolError> {
    let path = if name.starts_with('/') { name.to_owned() } else { format!("{WORKSPACE}/{name}") };
    let read = means.deps.sandbox.call(|mut client| {
        let request = v1::ReadLinesRequest {
            fence: means.identity.fence(),
            path: path.clone(),
            first_line: 1,
            lines_max: 1,
            line_chars_max: 1,
            bytes_max: limits::LINE_CHARS,
        };
        async move { client.read_lines(request).await }
    });
    let kind = match read.await.map_err(|status| sandbox_error(&status)) {
        Ok(read) => Some(read.kind()),
        Err(ToolError::Model(_)) => None,
        Err(error) => return Err(error),
    };
    if let Some(kind) = kind {
        let mime = match kind {
            FileKind::Directory => "application/x-directory",
            FileKind::Text | FileKind::Binary | FileKind::Other | FileKind::Unspecified => {
                media::of_name(&path).unwrap_or("text/plain")
            }
        };
        let url = format!("file://{}", encoded(&path));
        let filename = Some(name.to_owned());
        return Ok(Some(Body::File(File { mime: mime.to_owned(), filename, url, source: None })));
    }
    let is_agent = means.permissions.agents(Mode::Subagent).iter().any(|(agent, _)| agent == name);
    Ok(is_agent.then(|| Body::Agent(Mention { name: name.to_owned(), source: None })))
}

/// A path in the form of a URL.
fn encoded(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}
