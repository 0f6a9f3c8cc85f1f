//! Commands of prompts: what the repository, this version or a skill says under a name, with what the caller adds to it, the
//! output of its commands of the shell, and the files and agents that it names.
// Continues in `domain::command::template`, which fills in, and `tools::bash`, which runs.

use crate::{
    deps::Deps,
    guidance::Guidance,
    rights::Rights,
    sandbox::Identity,
    tools::{
        Tool, ToolError,
        run::{Aside, refused},
    },
    workspace::{self, Workspace},
};
use domain::{
    agent::Mode,
    command::{
        self, Command, CommandRequest,
        template::{self, Piece},
    },
    limits, media,
    message::{Error, User},
    part::{
        Body, Part,
        attached::{File, Mention},
    },
    permission::Verdict,
    session::WORKSPACE,
};
use futures::future::try_join_all;
use rpc::v1::{self, FileKind};
use serde_json::json;
use std::sync::Arc;

/// What an expansion may use.
pub(crate) struct Means {
    pub(crate) deps: Arc<Deps>,
    pub(crate) identity: Identity,
    pub(crate) workspace: Workspace,
    pub(crate) guidance: Arc<Guidance>,
    pub(crate) rights: Rights,
    pub(crate) aside: Aside,
}

/// A command that a prompt asks for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The text that asks.
    pub(crate) part: Part,
    pub(crate) asked: CommandRequest,
    pub(crate) user: User,
}

/// What it says.
pub(crate) struct Expanded {
    pub(crate) wanted: Wanted,
    /// Who answers, and whether as a subtask.
    pub(crate) command: Command,
    pub(crate) text: String,
    /// Files and agents that it names.
    pub(crate) named: Vec<Body>,
}

/// The names under which the sandbox knows the commands of the shell in a text, whatever it says.
pub(crate) fn execs(part: &Part) -> impl Iterator<Item = String> {
    (0..limits::COMMAND_SHELLS_MAX).map(move |number| exec_id(part, number))
}

fn exec_id(part: &Part, number: usize) -> String {
    format!("{}-{number}", part.id)
}

/// Expands all commands that prompts ask for. Doing it again, by another worker too, attaches to what runs already.
///
/// # Errors
/// What ends the turn.
pub(crate) async fn expand_all(means: Means, wanted: Vec<Wanted>) -> Result<Vec<Expanded>, ToolError> {
    try_join_all(wanted.into_iter().map(|wanted| expand(&means, wanted))).await
}

async fn expand(means: &Means, wanted: Wanted) -> Result<Expanded, ToolError> {
    let command = find(means, &wanted).await?;
    let pieces = template::expand(&command.template, &wanted.asked.arguments);
    let mut named: Vec<String> = vec![];
    for piece in &pieces {
        // What a command of the shell writes names nothing: nobody chose it.
        if let Piece::Text(text) = piece {
            named.extend(template::mentions(text).into_iter().map(ToOwned::to_owned));
        }
    }
    named.truncate(limits::COMMAND_MENTIONS_MAX);
    let shells = pieces.iter().filter(|piece| matches!(piece, Piece::Shell(_))).count();
    if shells > limits::COMMAND_SHELLS_MAX {
        let most = limits::COMMAND_SHELLS_MAX;
        return Err(wrong(&wanted, &format!("runs {shells} commands of the shell; at most {most} are run")));
    }
    if shells > 0 || !named.is_empty() {
        means.workspace.ready().await.map_err(|status| ToolError::Broken(workspace::failure(&status)))?;
    }
    let agent = command.agent.as_deref().unwrap_or(&wanted.user.agent);
    let mut number = 0;
    let texts = pieces.into_iter().map(|piece| {
        let exec = matches!(piece, Piece::Shell(_)).then(|| exec_id(&wanted.part, number));
        number += usize::from(exec.is_some());
        said(means, agent, piece, exec)
    });
    let text = try_join_all(texts).await?.concat();
    if text.len() > limits::PROMPT_BYTES_MAX {
        let (bytes, most) = (text.len(), limits::PROMPT_BYTES_MAX);
        return Err(wrong(&wanted, &format!("has {bytes} bytes; at most {most} are taken")));
    }
    let named = try_join_all(named.iter().map(|name| name_of(means, name))).await?;
    Ok(Expanded { wanted, command, text, named: named.into_iter().flatten().collect() })
}

/// What the repository says under a name; else this version, else a skill.
async fn find(means: &Means, wanted: &Wanted) -> Result<Command, ToolError> {
    let name = &wanted.asked.name;
    let commands = &means.guidance.settings.commands;
    if let Some(command) = commands.get(name).cloned().or_else(|| command::built_in(name)) {
        return Ok(command);
    }
    let mut skills = means.guidance.skills.iter().map(|skill| &skill.name);
    if skills.any(|skill| skill == name) {
        let exec = exec_id(&wanted.part, 0);
        let skill = means.aside.perform(Tool::Skill, &exec, json!({"name": name})).await?;
        return Ok(Command { template: skill.text, ..Command::default() });
    }
    let mut known: Vec<&str> = commands.keys().map(String::as_str).chain(command::BUILT_IN).collect();
    known.extend(means.guidance.skills.iter().map(|skill| skill.name.as_str()));
    known.sort_unstable();
    known.dedup();
    Err(wrong(wanted, &format!("does not exist; there are: {}", known.join(", "))))
}

fn wrong(wanted: &Wanted, what: &str) -> ToolError {
    ToolError::Broken(Error::new("UnknownError", format!("The command /{} {what}", wanted.asked.name)))
}

/// What stands in the place of a piece. Who asks for a command by its name allows what it runs, unless that is denied.
async fn said(means: &Means, agent: &str, piece: Piece, exec: Option<String>) -> Result<String, ToolError> {
    let (words, exec) = match (piece, exec) {
        (Piece::Text(text), _) => return Ok(text),
        (Piece::Shell(words), exec) => (words, exec.unwrap_or_default()),
    };
    let input = json!({"command": words});
    if means.rights.verdict(agent, Tool::Bash, &input) == Verdict::Deny {
        return Ok(format!("(`{words}` was not run: it is denied here)"));
    }
    match means.aside.perform(Tool::Bash, &exec, input).await {
        Ok(output) => Ok(output.text.trim_end().to_owned()),
        Err(ToolError::Model(text)) => Ok(text),
        Err(error) => Err(error),
    }
}

/// The file or the agent of a name, if there is one.
async fn name_of(means: &Means, name: &str) -> Result<Option<Body>, ToolError> {
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
    let kind = match read.await.map_err(|status| refused(&status)) {
        Ok(read) => Some(read.kind()),
        Err(ToolError::Model(_)) => None,
        Err(error) => return Err(error),
    };
    if let Some(kind) = kind {
        let mime = match kind {
            FileKind::Directory => "application/x-directory",
            _ => media::of_name(&path).unwrap_or("text/plain"),
        };
        let url = format!("file://{}", encoded(&path));
        let filename = Some(name.to_owned());
        return Ok(Some(Body::File(File { mime: mime.to_owned(), filename, url, source: None })));
    }
    let is_agent = means.rights.agents(Mode::Subagent).iter().any(|(agent, _)| agent == name);
    Ok(is_agent.then(|| Body::Agent(Mention { name: name.to_owned(), source: None })))
}

/// A path as an address says it.
fn encoded(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}
