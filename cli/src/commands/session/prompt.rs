//! `flotilla run` and `flotilla say`: send a prompt, with its repository, and show the turn.

mod attach;
mod piped;
mod rules;

use crate::{
    client::{Client, call},
    commands::{
        project,
        session::{
            budget,
            opening::{OpenedProject, open_project, open_repository},
            outcome::{Outcome, failed},
            presentation::{Purpose, Show, ShowArgs},
            watch,
        },
        worktree,
    },
    exit::Exit,
    lookup,
    repository::source::RepositoryArgs,
    stream::follow::{Reading, Until},
    terminal::output::Output,
};
use anyhow::{Context as _, Result};
use attach::AttachArgs;
use domain::{limits, text};
use rpc::v1::{
    AcceptPromptRequest, AcceptPromptResponse, CreateSessionRequest, ModelRef, PermissionRule,
    PermissionVerdict, SessionClass, ShellPart, prompt_part::Kind,
};
use rules::RuleSubject;
use serde_json::{Value, json};
use std::io::Read as _;

/// `flotilla run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The task. `-` or no task reads it from standard input; a pipe or a file there comes after a task that is given.
    prompt: Option<String>,
    /// Continue the last used session of this directory, or of --project, instead of starting one.
    #[arg(short = 'c', long = "continue", conflicts_with_all = [
        "repo", "base", "dirty", "depth", "worktree", "model", "title", "class", "ask", "deny", "budget", "on_ask", "questions",
    ])]
    is_continuation: bool,
    #[command(flatten)]
    files: RepositoryArgs,
    /// Start in this project, by name or id, with the project's own files instead of a repository of yours.
    #[arg(long, value_name = "PROJECT", conflicts_with_all = ["repo", "base", "dirty"])]
    project: Option<String>,
    /// Start in this worktree of the project, by name or directory: on its branch.
    #[arg(long, value_name = "WORKTREE", requires = "project")]
    worktree: Option<String>,
    /// The model that answers; default: the tenant's.
    #[arg(long, value_name = "PROVIDER/MODEL", value_parser = parse_model)]
    model: Option<ModelRef>,
    /// Title of the session; default: a small model makes one from the prompt.
    #[arg(long)]
    title: Option<String>,
    /// How urgent it is: sessions that a person waits for go before pull requests, and those before batches.
    #[arg(long, value_enum, default_value_t = Class::Interactive)]
    class: Class,
    /// Ask before a tool is used: its name, or NAME:PATTERN for a command, a path or an agent. May be repeated.
    #[arg(long, value_name = "TOOL[:PATTERN]", value_parser = rules::parse)]
    ask: Vec<RuleSubject>,
    /// Never use a tool; same syntax as --ask. May be repeated.
    #[arg(long, value_name = "TOOL[:PATTERN]", value_parser = rules::parse)]
    deny: Vec<RuleSubject>,
    /// Common budget of the session and its subtasks, in dollars. When it is spent, they wait for `flotilla budget`.
    #[arg(long, value_name = "DOLLARS", value_parser = budget::parse)]
    budget: Option<budget::Max>,
    /// What to do instead of asking a person: wait for the answer, continue without it, or end the turn.
    #[arg(long, value_enum, default_value_t = OnAsk::Park)]
    on_ask: OnAsk,
    /// Let the agent ask questions, including whether to carry out a plan; it waits for the answers.
    #[arg(long)]
    questions: bool,
    /// Send the prompt, print the session's id and exit.
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    attach: AttachArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// What a session does instead of asking a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnAsk {
    Park,
    Deny,
    Fail,
}

impl OnAsk {
    fn to_wire(self) -> rpc::v1::OnAsk {
        match self {
            Self::Park => rpc::v1::OnAsk::Park,
            Self::Deny => rpc::v1::OnAsk::Deny,
            Self::Fail => rpc::v1::OnAsk::Fail,
        }
    }
}

/// How urgent a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Class {
    Interactive,
    Pr,
    Batch,
}

impl Class {
    fn to_wire(self) -> SessionClass {
        match self {
            Self::Interactive => SessionClass::Interactive,
            Self::Pr => SessionClass::Pr,
            Self::Batch => SessionClass::Batch,
        }
    }
}

/// `flotilla say`.
#[derive(Debug, clap::Args)]
pub(crate) struct SayArgs {
    /// The session.
    pub(crate) id: String,
    /// The next task. `-` or no task reads it from standard input; a pipe or a file there comes after a task that is given.
    text: Option<String>,
    /// Send the prompt and exit.
    #[arg(long)]
    detach: bool,
    /// Only store the prompt: no turn starts, and the answer to the next prompt takes it into account.
    #[arg(long)]
    no_reply: bool,
    #[command(flatten)]
    attach: AttachArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// `flotilla shell`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShellArgs {
    /// The session.
    pub(crate) id: String,
    /// The command, for bash.
    command: String,
    /// Show what the command changed, below its output.
    #[arg(long)]
    patch: bool,
    #[command(flatten)]
    limit: CommandLimit,
}

/// How long a command of a person may run.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct CommandLimit {
    /// End the command after this many seconds, with everything that it started; default: an hour, at most twelve.
    #[arg(long, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::SHELL_TIMEOUT_MAX_MS / 1_000)))]
    timeout: Option<u32>,
}

impl CommandLimit {
    fn part(self, command: &str) -> ShellPart {
        let timeout_ms = self.timeout.map_or(0, |seconds| seconds * 1_000);
        ShellPart { command: command.to_owned(), timeout_ms }
    }
}

/// Creates a session for a repository and sends its first prompt.
pub(crate) async fn run(client: &Client, output: &Output, arguments: RunArgs) -> Result<Exit> {
    if arguments.is_continuation {
        return resume(client, output, arguments).await;
    }
    // Git ends with Ctrl-C too, and what was packed so far is removed.
    let started = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => return interrupted(output),
        started = start(client, output, &arguments) => started,
    };
    let (session_id, prompt) = started.map_err(|error| failed(output, None, error))?;
    let accepted = accept(client, &session_id, prompt).await;
    let accepted = accepted.map_err(|error| failed(output, Some(&session_id), error))?;
    if arguments.detach {
        output.result(&session_id, &accepted_json(&session_id, &accepted))?;
        return Ok(Exit::Done);
    }
    let reading = Reading::of_all(client, &session_id);
    show(client, output, reading, &Acceptance { answer: accepted, show: &arguments.show }).await
}

/// Continues the last used session of a project.
async fn resume(client: &Client, output: &Output, arguments: RunArgs) -> Result<Exit> {
    let find = async {
        let project_id = match &arguments.project {
            Some(named) => Some(project::find(client, named).await?.id),
            None => None,
        };
        lookup::newest(client, output, project_id).await
    };
    let session = find.await.map_err(|error| failed(output, None, error))?;
    let RunArgs { prompt: text, detach, attach, show, .. } = arguments;
    say(client, output, SayArgs { id: session.id, text, detach, no_reply: false, attach, show }).await
}

/// The end of a command that was interrupted before there was a session.
fn interrupted(output: &Output) -> Result<Exit> {
    let message = "interrupted; no prompt was sent".to_owned();
    if output.is_json() {
        output.json(&Outcome::of_interruption(message).to_json(None))?;
    } else {
        output.note(&message);
    }
    Ok(Exit::Interrupted)
}

/// Creates the session, and makes its first prompt.
async fn start(
    client: &Client,
    output: &Output,
    arguments: &RunArgs,
) -> Result<(String, AcceptPromptRequest)> {
    let mut prompt = prompt(piped::read(output, arguments.prompt.as_deref())?)?;
    // Before anything is sent: a refused prompt must not leave an empty session behind.
    arguments.attach.add_to(&mut prompt)?;
    for note in arguments.ask.iter().chain(&arguments.deny).filter_map(RuleSubject::note) {
        output.note(&note);
    }
    check(client, arguments).await?;
    let OpenedProject { project_id, source, remote, renewal: _ } = match &arguments.project {
        Some(named) => open_project(client, output, named).await?,
        None => open_repository(client, output, &arguments.files).await?,
    };
    let worktree = match (&arguments.project, &arguments.worktree) {
        (Some(project), Some(named)) => worktree::find_directory(client, project, named).await?,
        _ => String::new(),
    };
    let session = CreateSessionRequest {
        project_id,
        worktree,
        source,
        idempotency_key: random_key()?,
        remote,
        ..session(arguments)
    };
    let create = async || client.sessions().create_session(session.clone()).await;
    let session = call("create the session", create).await?;
    Ok((session.session.unwrap_or_default().id, prompt))
}

/// The session that the arguments describe, without its project and its files.
fn session(arguments: &RunArgs) -> CreateSessionRequest {
    CreateSessionRequest {
        title: arguments.title.clone().unwrap_or_default(),
        model: arguments.model.clone(),
        class: arguments.class.to_wire().into(),
        permission_rules: rules(arguments),
        budget_usd_picos: arguments.budget.map_or(0, budget::Max::to_wire),
        on_ask: arguments.on_ask.to_wire().into(),
        ..CreateSessionRequest::default()
    }
}

/// Has the gateway check the session before a repository is packed and sent.
async fn check(client: &Client, arguments: &RunArgs) -> Result<()> {
    let request = CreateSessionRequest { validate_only: true, ..session(arguments) };
    let check = async || client.sessions().create_session(request.clone()).await;
    call("create the session", check).await.map(drop)
}

/// Sends a further prompt and shows its turn.
pub(crate) async fn say(client: &Client, output: &Output, arguments: SayArgs) -> Result<Exit> {
    let SayArgs { id, text, .. } = arguments;
    let text = piped::read(output, text.as_deref());
    let mut prompt = text.and_then(prompt).map_err(|error| failed(output, Some(&id), error))?;
    arguments.attach.add_to(&mut prompt).map_err(|error| failed(output, Some(&id), error))?;
    prompt.no_reply = arguments.no_reply;
    if arguments.detach || arguments.no_reply {
        let accepted = accept(client, &id, prompt).await.map_err(|error| failed(output, Some(&id), error))?;
        output.result(&id, &accepted_json(&id, &accepted))?;
        return Ok(Exit::Done);
    }
    hand_in(client, output, Handing { id: &id, prompt, show: &arguments.show }).await
}

/// Runs a command in the files of a session, without its agent, shows the result, and ends with the code of the command.
pub(crate) async fn shell(client: &Client, output: &Output, arguments: ShellArgs) -> Result<Exit> {
    let show =
        ShowArgs { outputs: true, timeout: None, purpose: Purpose::Shell { with_patch: arguments.patch } };
    let command = arguments.limit.part(&arguments.command);
    send_command(client, output, &arguments.id, command, &show).await
}

/// Runs a command in a session that is deleted afterwards, and shows what it prints.
pub(crate) async fn try_command(
    client: &Client,
    output: &Output,
    id: &str,
    command: &str,
    limit: CommandLimit,
) -> Result<Exit> {
    let show = ShowArgs { outputs: true, timeout: None, purpose: Purpose::Trial };
    send_command(client, output, id, limit.part(command), &show).await
}

/// Runs a command in the files of a session, without its agent, and shows the turn.
async fn send_command(
    client: &Client,
    output: &Output,
    id: &str,
    command: ShellPart,
    show: &ShowArgs,
) -> Result<Exit> {
    let mut prompt = prompt(String::new())?;
    prompt.parts.push(Kind::Shell(command).into());
    hand_in(client, output, Handing { id, prompt, show }).await
}

/// Opens the files of a session without its agent: its first command does nothing. Shows what goes wrong.
pub(crate) async fn open_files(client: &Client, output: &Output, id: &str) -> Result<Exit> {
    let show = ShowArgs { outputs: false, timeout: None, purpose: Purpose::Trial };
    send_command(client, output, id, CommandLimit::default().part(":"), &show).await
}

/// A prompt for an existing session.
struct Handing<'a> {
    id: &'a str,
    prompt: AcceptPromptRequest,
    show: &'a ShowArgs,
}

async fn hand_in(client: &Client, output: &Output, handing: Handing<'_>) -> Result<Exit> {
    let Handing { id, prompt, show: options } = handing;
    let begin = async {
        // Subscribe before the prompt is sent, so that its first event is not missed.
        let reading = Reading::of_what_comes(client, id).await?;
        anyhow::Ok((reading, accept(client, id, prompt).await?))
    };
    let (reading, answer) = begin.await.map_err(|error| failed(output, Some(id), error))?;
    let reading = reading.not_before(answer.event_seq);
    show(client, output, reading, &Acceptance { answer, show: options }).await
}

/// The rules of the new session. Questions must be enabled explicitly, because no person may be there to answer them.
fn rules(arguments: &RunArgs) -> Vec<PermissionRule> {
    let asks = arguments.ask.iter().map(|subject| subject.rule(PermissionVerdict::Ask));
    let denies = arguments.deny.iter().map(|subject| subject.rule(PermissionVerdict::Deny));
    let silent = ["question", "plan_exit"].into_iter().filter(|_| !arguments.questions);
    let silent = silent.map(|permission| PermissionRule {
        permission: permission.to_owned(),
        pattern: String::new(),
        verdict: PermissionVerdict::Deny.into(),
    });
    asks.chain(denies).chain(silent).collect()
}

fn prompt(text: String) -> Result<AcceptPromptRequest> {
    Ok(AcceptPromptRequest { text, idempotency_key: random_key()?, ..AcceptPromptRequest::default() })
}

async fn accept(
    client: &Client,
    session_id: &str,
    prompt: AcceptPromptRequest,
) -> Result<AcceptPromptResponse> {
    let prompt = AcceptPromptRequest { session_id: session_id.to_owned(), ..prompt };
    call("send the prompt", || async { client.prompts().accept_prompt(prompt.clone()).await }).await
}

/// An accepted prompt, and how its turn is shown.
struct Acceptance<'a> {
    answer: AcceptPromptResponse,
    show: &'a ShowArgs,
}

async fn show(
    client: &Client,
    output: &Output,
    reading: Reading<'_>,
    accepted: &Acceptance<'_>,
) -> Result<Exit> {
    let Acceptance { answer, show: arguments } = accepted;
    if output.is_json() {
        output.json(&accepted_json(reading.session_id(), answer))?;
    } else {
        if arguments.purpose == Purpose::Prompt {
            output.note(&format!("session {}", reading.session_id()));
        }
        if answer.queue_position > 1 {
            output.note(&format!("position {} in the queue", answer.queue_position));
        }
    }
    let until = Until::IdleAfter(answer.event_seq + 1);
    let show = Show { until, prompt: Some(&answer.message_id), arguments };
    watch::to_end(client, output, reading, show).await
}

/// An accepted prompt as `--json` shows it.
fn accepted_json(session_id: &str, accepted: &AcceptPromptResponse) -> Value {
    json!({
        "type": "prompt", "session": session_id, "message_id": accepted.message_id, "event_seq": accepted.event_seq,
        "inputs_ahead": accepted.inputs_ahead, "queue_position": accepted.queue_position,
    })
}

fn parse_model(text: &str) -> Result<ModelRef, String> {
    match text.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
            Ok(ModelRef { provider_id: provider.to_owned(), model_id: model.to_owned() })
        }
        _ => Err("a model must be PROVIDER/MODEL, for example anthropic/claude-sonnet-5".to_owned()),
    }
}

/// Returns a key by which the server recognizes a repeated call.
pub(crate) fn random_key() -> Result<String> {
    let mut bytes = [0_u8; 16];
    let mut random = std::fs::File::open("/dev/urandom").context("open /dev/urandom")?;
    random.read_exact(&mut bytes).context("read /dev/urandom")?;
    Ok(text::hex(&bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_model_has_a_provider() {
        assert_eq!(parse_model("openrouter/meta/llama").unwrap().model_id, "meta/llama");
        assert!(parse_model("gpt").is_err() && parse_model("/x").is_err());
    }
}
