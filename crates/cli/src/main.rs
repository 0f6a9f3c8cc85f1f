//! `flotilla`: the command line for people (gRPC to a gateway), every service, and `flotilla up` for all of it at once.

mod client;
mod commands;
mod exit;
mod repository;
mod stack;
mod stream;
mod terminal;

use anyhow::{Context as _, Result};
use clap::{
    CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind, parser::ValueSource,
};
use client::Client;
use commands::{
    admin, config, context, key, project,
    requests::{answer, approvals, why},
    session::{budget, checkout, family, history, prompt, sessions, watch},
    tenant,
};
use exit::Exit;
use stack::{
    service::{self, ModelScriptArgs, ServiceArgs},
    target::{self, Connection},
    up,
};
use std::{ffi::OsString, process::ExitCode};
use terminal::out;

/// Coding agents as a service. `flotilla up` starts everything on this machine.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the whole stack on this machine; Ctrl-C stops it.
    Up(Box<up::UpArgs>),
    /// Start a task in a repository and watch it.
    #[command(after_help = EXIT_CODES)]
    Run(Box<prompt::RunArgs>),
    /// Continue a session.
    #[command(after_help = EXIT_CODES)]
    Say(Box<prompt::SayArgs>),
    /// Run a command in the files of an idle session; its agent sees it with the next prompt.
    #[command(after_help = EXIT_CODES)]
    Shell(prompt::ShellArgs),
    /// Show a session from its beginning until it is idle.
    #[command(after_help = EXIT_CODES)]
    Watch(watch::WatchArgs),
    /// List sessions, the last used first.
    Ls(sessions::ListArgs),
    /// Show the changes of a session, or of one of its turns.
    Diff {
        /// The session.
        id: String,
        /// Only the changes of this prompt's turn; `flotilla messages --json` shows the ids.
        #[arg(long, value_name = "MESSAGE")]
        message: Option<String>,
    },
    /// Print the whole output of a tool call that a session shows in part.
    Output {
        /// The session.
        id: String,
        /// The path of the output, as the tool call names it.
        path: String,
    },
    /// Create a session from an earlier point of another one.
    Fork(history::ForkArgs),
    /// Revert a session to before a message: its files now, its messages with the next prompt.
    Revert(history::RevertArgs),
    /// Undo a revert.
    Unrevert {
        /// The session.
        id: String,
    },
    /// Let a session continue whose files its sandbox machine lost: with the files that it began with.
    RestartWorkspace {
        /// The session.
        id: String,
    },
    /// Put a session's result on a branch of your repository.
    Checkout(checkout::CheckoutArgs),
    /// Rename a session.
    Rename(sessions::RenameArgs),
    /// Hide a session from lists until its next prompt.
    Archive(sessions::ArchiveArgs),
    /// Delete sessions with their subtasks and files.
    Delete(family::DeleteArgs),
    /// Show a session with its subtasks.
    Tree(family::TreeArgs),
    /// Show the conversation of a session.
    Messages(sessions::MessagesArgs),
    /// Say what a session waits for, and estimate for how long.
    Why(why::WhyArgs),
    /// List the requests of sessions to people, and answer them.
    Answer(answer::AnswerArgs),
    /// Show or set the budget of a session and its subtasks.
    Budget(budget::BudgetArgs),
    /// List or revoke the "always" answers for a project or the tenant.
    Approvals(approvals::ApprovalsArgs),
    /// Stop the running turn of a session.
    Abort {
        /// The session.
        id: String,
    },
    /// Create, list and change projects: the repositories that new sessions open.
    Project(project::ProjectArgs),
    /// Show, read or replace settings.
    Config(config::ConfigArgs),
    /// Create, list and revoke API keys.
    Key(key::KeyArgs),
    /// Create and list tenants, and set their limits; for operators.
    Tenant(tenant::TenantArgs),
    /// See and control the work of all tenants; for operators.
    Admin(admin::AdminArgs),
    /// List, choose, add and remove the gateways that you work with.
    Context(context::ContextArgs),
    /// Check an API key for a gateway, keep both as a context, and make it the current one.
    Login(context::LoginArgs),
    /// Show what is installed and what is missing.
    Doctor,
    /// Print completions for a shell.
    Completion {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    #[command(flatten)]
    Service(ServiceCommand),
}

/// A service that runs until it is stopped.
#[derive(Debug, Subcommand)]
enum ServiceCommand {
    /// Run the gateway.
    Gateway(Box<ServiceArgs<gateway::config::Config>>),
    /// Run a worker.
    Worker(Box<ServiceArgs<worker::config::Config>>),
    /// Run the sandbox service.
    Sandbox(Box<ServiceArgs<sandbox::config::Config>>),
    /// Run the scripted model server.
    ModelScript(Box<ServiceArgs<ModelScriptArgs>>),
}

/// The commands that call no gateway, each with those of the gateway's flags that it takes nevertheless.
const WITHOUT_GATEWAY: [(&str, &[&str]); 6] = [
    ("up", &["data"]),
    ("completion", &[]),
    ("gateway", &[]),
    ("worker", &[]),
    ("sandbox", &[]),
    ("model-script", &[]),
];

const EXIT_CODES: &str = "Exit codes: 0 done, 1 wrong usage or no connection, 2 failed or aborted, 3 needs a human, \
4 out of budget, 5 still running after --timeout, 130 Ctrl-C (the turn continues).";

#[tokio::main]
async fn main() -> ExitCode {
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Clap returns help and version as errors too. If the output is closed, the error cannot be shown.
            drop(error.print());
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            return ExitCode::from(code.code());
        }
    };
    match Box::pin(run(cli)).await {
        Ok(code) => code,
        Err(error) => {
            if let Some(sentence) = exit::sentence(&error) {
                out::note(&format!("flotilla: {sentence}"));
            }
            ExitCode::from(Exit::Usage.code())
        }
    }
}

/// Reads the command line. Commands that call no gateway neither show nor take the flags that choose one.
fn parse(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    command.build();
    for (name, own) in WITHOUT_GATEWAY {
        let is_hidden = |flag: &str| target::FLAGS.contains(&flag) && !own.contains(&flag);
        command = command.mut_subcommand(name, |sub| {
            sub.mut_args(|arg| if is_hidden(arg.get_id().as_str()) { arg.hide(true) } else { arg })
        });
    }
    let matches = command.try_get_matches_from_mut(words)?;
    if let Some((name, own)) =
        WITHOUT_GATEWAY.into_iter().find(|(name, _)| matches.subcommand_name() == Some(name))
    {
        let given = |flag: &&str| matches.value_source(flag) == Some(ValueSource::CommandLine);
        if let Some(flag) = target::FLAGS.into_iter().filter(|flag| !own.contains(flag)).find(given) {
            let message =
                format!("`flotilla {name}` calls no gateway and takes no --{}", flag.replace('_', "-"));
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
    }
    Cli::from_arg_matches(&matches)
}

async fn run(cli: Cli) -> Result<ExitCode> {
    let Cli { connection, command } = cli;
    let exit = match command {
        Command::Up(arguments) => up::run(*arguments, connection.data).await?,
        Command::Run(arguments) => prompt::run(&Client::open(&connection)?, *arguments).await?,
        Command::Say(arguments) => prompt::say(&Client::open(&connection)?, *arguments).await?,
        Command::Shell(arguments) => prompt::shell(&Client::open(&connection)?, arguments).await?,
        Command::Watch(arguments) => watch::run(&Client::open(&connection)?, arguments).await?,
        Command::Ls(arguments) => sessions::list(&Client::open(&connection)?, arguments).await?,
        Command::Diff { id, message } => {
            sessions::diff(&Client::open(&connection)?, &id, message.unwrap_or_default()).await?
        }
        Command::Output { id, path } => sessions::output(&Client::open(&connection)?, &id, &path).await?,
        Command::Fork(arguments) => history::fork(&Client::open(&connection)?, arguments).await?,
        Command::Revert(arguments) => history::revert(&Client::open(&connection)?, arguments).await?,
        Command::RestartWorkspace { id } => {
            history::restart_workspace(&Client::open(&connection)?, &id).await?
        }
        Command::Unrevert { id } => history::unrevert(&Client::open(&connection)?, &id).await?,
        Command::Checkout(arguments) => checkout::run(&Client::open(&connection)?, arguments).await?,
        Command::Rename(arguments) => sessions::rename(&Client::open(&connection)?, arguments).await?,
        Command::Archive(arguments) => sessions::archive(&Client::open(&connection)?, arguments).await?,
        Command::Delete(arguments) => family::delete(&Client::open(&connection)?, arguments).await?,
        Command::Tree(arguments) => family::tree(&Client::open(&connection)?, arguments).await?,
        Command::Messages(arguments) => sessions::messages(&Client::open(&connection)?, arguments).await?,
        Command::Why(arguments) => why::run(&Client::open(&connection)?, arguments).await?,
        Command::Answer(arguments) => answer::run(&Client::open(&connection)?, arguments).await?,
        Command::Approvals(arguments) => approvals::run(&Client::open(&connection)?, arguments).await?,
        Command::Budget(arguments) => budget::run(&Client::open(&connection)?, arguments).await?,
        Command::Admin(arguments) => {
            let client = arguments.operator.open(&connection)?;
            admin::run(&client, arguments).await?
        }
        Command::Key(arguments) => key::run(&connection, arguments).await?,
        Command::Tenant(arguments) => {
            let client = arguments.operator.open(&connection)?;
            tenant::run(&client, arguments).await?
        }
        Command::Abort { id } => sessions::abort(&Client::open(&connection)?, &id).await?,
        Command::Project(arguments) => project::run(&Client::open(&connection)?, arguments).await?,
        Command::Config(arguments) if arguments.is_remote() => {
            config::run(&Client::open(&connection)?, arguments).await?
        }
        Command::Config(arguments) => config::run_here(&arguments)?,
        Command::Context(arguments) => context::run(&connection, arguments)?,
        Command::Login(arguments) => context::login(&connection, arguments).await?,
        Command::Doctor => commands::doctor::run(&connection).await?,
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "flotilla", &mut script);
            out::write(&String::from_utf8(script).context("read the completions")?)?;
            Exit::Done
        }
        Command::Service(command) => return serve(command).await,
    };
    Ok(ExitCode::from(exit.code()))
}

async fn serve(command: ServiceCommand) -> Result<ExitCode> {
    match command {
        ServiceCommand::Gateway(arguments) => {
            let ServiceArgs { config, common } = *arguments;
            service::run("gateway", common, |service| gateway::run(config, service)).await
        }
        ServiceCommand::Worker(arguments) => {
            let ServiceArgs { config, common } = *arguments;
            service::run("worker", common, |service| worker::run(config, service)).await
        }
        ServiceCommand::Sandbox(arguments) => {
            let ServiceArgs { config, common } = *arguments;
            service::run("sandbox", common, |service| sandbox::run(config, service)).await
        }
        ServiceCommand::ModelScript(arguments) => {
            let ServiceArgs { config, common } = *arguments;
            service::run("model-script", common, |service| service::model_script(config, service)).await
        }
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
