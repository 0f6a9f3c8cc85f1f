//! `flotilla`: the command line for people (gRPC to a gateway), every service, and `flotilla up` for all of it at once.

mod client;
mod commands;
mod exit;
mod input;
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
    admin, config, context, environment, key, project,
    requests::{answer, approvals, why},
    secret,
    session::{budget, checkout, egress, family, history, outcome, prompt, pty, push, sessions, watch},
    tenant, worktree,
};
use exit::Exit;
use stack::{
    service::{self, ModelScriptArgs, ServiceArgs},
    target::{self, Connection},
    up,
};
use std::{ffi::OsString, num::NonZero, process::ExitCode};
use terminal::output::{self, Output, OutputArgs};

/// Coding agents as a service. `flotilla up` starts everything on this machine.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the whole stack on this machine; Ctrl-C stops it.
    Up(Box<up::UpArgs>),
    #[command(flatten)]
    Tenant(TenantCommand),
    /// Show, read or replace settings.
    Config(config::ConfigArgs),
    /// Create, list and revoke API keys.
    Key(key::KeyArgs),
    /// Create and list tenants, and set their limits; for operators.
    #[command(name = "tenant")]
    Tenants(tenant::TenantArgs),
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

/// A command that calls the gateway with the key of a tenant.
#[derive(Debug, Subcommand)]
enum TenantCommand {
    /// Start a task in a repository and watch it.
    #[command(after_help = EXIT_CODES)]
    Run(Box<prompt::RunArgs>),
    /// Continue a session.
    #[command(after_help = EXIT_CODES)]
    Say(Box<prompt::SayArgs>),
    /// Run a command in the files of an idle session; its agent sees it with the next prompt.
    #[command(after_help = EXIT_CODES)]
    Shell(prompt::ShellArgs),
    /// Open a terminal in the sandbox of a session, while its agent may work.
    #[command(after_help = pty::HELP)]
    Pty(pty::PtyArgs),
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
    /// Push a session's result to the repository that its files came from.
    Push(push::PushArgs),
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
    /// List, create, remove and reset worktrees: directories of a project whose sessions begin on a branch of their own.
    Worktree(worktree::WorktreeArgs),
    /// Show what a session reached of the network.
    Egress(egress::EgressArgs),
    /// Write, allow and try the environments of projects; show and remove what their scripts made.
    Env(environment::EnvironmentArgs),
    /// Set, list and remove secrets: passwords and tokens for servers outside, which nothing shows again.
    Secret(secret::SecretArgs),
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
    /// Run the broker, which keeps secrets.
    Broker(Box<ServiceArgs<broker::config::Config>>),
    /// Run the scripted model server.
    ModelScript(Box<ServiceArgs<ModelScriptArgs>>),
}

/// The commands that call no gateway or print no records, each with those of the common flags that it takes.
const LIMITED: [(&str, &[&str]); 7] = [
    ("up", &["data", "json"]),
    ("completion", &[]),
    ("gateway", &[]),
    ("worker", &[]),
    ("sandbox", &[]),
    ("broker", &[]),
    ("model-script", &[]),
];

const EXIT_CODES: &str = "Exit codes: 0 done, 1 wrong usage (also a --command that does not exist) or no connection, 2 failed or aborted, 3 needs a human, \
4 out of budget, 5 still running after --timeout, 130 Ctrl-C (the turn continues).";

/// Threads for each processor. A request of one tenant with a body of some MiB holds a thread for tens of milliseconds. With a thread for each
/// processor, two such requests would keep all others waiting; with more, the kernel gives each its turn.
const THREADS_PER_PROCESSOR: usize = 4;

fn main() -> ExitCode {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = processors * THREADS_PER_PROCESSOR;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(start()),
        Err(error) => {
            output::note(&format!("flotilla: cannot start threads: {error}"));
            ExitCode::from(Exit::Usage.code())
        }
    }
}

async fn start() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match parse(words.iter().cloned()) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            if error.use_stderr() && wants_json(&words) {
                output::note(&exit::error_json(exit::USAGE, error.render().to_string().trim()).to_string());
            } else {
                // Clap returns help and version as errors too. If the output is closed, the error cannot be shown.
                drop(error.print());
            }
            return ExitCode::from(code.code());
        }
    };
    let output = Output::new(cli.output);
    match Box::pin(run(cli, &output)).await {
        Ok(code) => code,
        Err(error) => {
            match exit::sentence(&error) {
                Some(sentence) if output.is_json() => {
                    output::note(&exit::error_json(&exit::code(&error), &sentence).to_string());
                }
                Some(sentence) => output::note(&format!("flotilla: {sentence}")),
                None => {}
            }
            ExitCode::from(Exit::Usage.code())
        }
    }
}

/// Whether a command line that cannot be understood asks for JSON.
fn wants_json(words: &[OsString]) -> bool {
    words.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// The flags of every command that some commands do not take.
fn common_flags() -> impl Iterator<Item = &'static str> {
    target::FLAGS.into_iter().chain(output::FLAGS)
}

/// Reads the command line. Commands neither show nor take the common flags that mean nothing to them.
fn parse(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    command.build();
    for (name, own) in LIMITED {
        let is_hidden = |flag: &str| common_flags().any(|it| it == flag) && !own.contains(&flag);
        command = command.mut_subcommand(name, |sub| {
            sub.mut_args(|arg| if is_hidden(arg.get_id().as_str()) { arg.hide(true) } else { arg })
        });
    }
    let matches = command.try_get_matches_from_mut(words)?;
    if let Some((name, own)) = LIMITED.into_iter().find(|(name, _)| matches.subcommand_name() == Some(name)) {
        let given = |flag: &&str| matches.value_source(flag) == Some(ValueSource::CommandLine);
        if let Some(flag) = common_flags().filter(|flag| !own.contains(flag)).find(given) {
            let message = format!("`flotilla {name}` takes no --{}", flag.replace('_', "-"));
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
    }
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.connection.note_flags(&matches);
    Ok(cli)
}

async fn run(cli: Cli, output: &Output) -> Result<ExitCode> {
    let Cli { connection, command, .. } = cli;
    let exit = match command {
        Command::Service(command) => return serve(command).await,
        Command::Up(arguments) => up::run(*arguments, output, connection.data).await?,
        Command::Admin(arguments) => {
            let client = arguments.operator.open(&connection, output)?;
            admin::run(&client, output, arguments).await?
        }
        Command::Key(arguments) => key::run(&connection, output, arguments).await?,
        Command::Tenants(arguments) => {
            let client = arguments.operator.open(&connection, output)?;
            tenant::run(&client, output, arguments).await?
        }
        Command::Config(arguments) if arguments.is_remote() => {
            config::run(&Client::open(&connection, output)?, output, arguments).await?
        }
        Command::Config(arguments) => config::run_here(output, &arguments)?,
        Command::Context(arguments) => context::run(&connection, output, arguments)?,
        Command::Login(arguments) => context::login(&connection, output, arguments).await?,
        Command::Doctor => commands::program::doctor::run(&connection, output).await?,
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "flotilla", &mut script);
            output.write(&String::from_utf8(script).context("read the completions")?)?;
            Exit::Done
        }
        Command::Tenant(TenantCommand::Env(arguments)) if !arguments.is_remote() => {
            environment::run_here(output, &arguments)?
        }
        Command::Tenant(command) => {
            let client = Client::open(&connection, output);
            // The last line of these commands says how they ended, also if they cannot begin.
            let client = match &command {
                TenantCommand::Run(_)
                | TenantCommand::Say(_)
                | TenantCommand::Shell(_)
                | TenantCommand::Watch(_) => client.map_err(|error| outcome::failed(output, None, error))?,
                _ => client?,
            };
            call_gateway(&client, output, command).await?
        }
    };
    Ok(ExitCode::from(exit.code()))
}

/// Runs a command of a tenant.
async fn call_gateway(client: &Client, output: &Output, command: TenantCommand) -> Result<Exit> {
    match command {
        TenantCommand::Run(arguments) => Box::pin(prompt::run(client, output, *arguments)).await,
        TenantCommand::Say(arguments) => prompt::say(client, output, *arguments).await,
        TenantCommand::Shell(arguments) => prompt::shell(client, output, arguments).await,
        TenantCommand::Pty(arguments) => pty::run(client, output, arguments).await,
        TenantCommand::Watch(arguments) => watch::run(client, output, arguments).await,
        TenantCommand::Ls(arguments) => sessions::list(client, output, arguments).await,
        TenantCommand::Diff { id, message } => {
            sessions::diff(client, output, &id, message.unwrap_or_default()).await
        }
        TenantCommand::Output { id, path } => sessions::output(client, output, &id, &path).await,
        TenantCommand::Fork(arguments) => history::fork(client, output, arguments).await,
        TenantCommand::Revert(arguments) => history::revert(client, output, arguments).await,
        TenantCommand::RestartWorkspace { id } => history::restart_workspace(client, output, &id).await,
        TenantCommand::Unrevert { id } => history::unrevert(client, output, &id).await,
        TenantCommand::Checkout(arguments) => checkout::run(client, output, arguments).await,
        TenantCommand::Push(arguments) => push::run(client, output, arguments).await,
        TenantCommand::Rename(arguments) => sessions::rename(client, output, arguments).await,
        TenantCommand::Archive(arguments) => sessions::archive(client, output, arguments).await,
        TenantCommand::Delete(arguments) => family::delete(client, output, arguments).await,
        TenantCommand::Tree(arguments) => family::tree(client, output, arguments).await,
        TenantCommand::Messages(arguments) => sessions::messages(client, output, arguments).await,
        TenantCommand::Why(arguments) => why::run(client, output, arguments).await,
        TenantCommand::Answer(arguments) => answer::run(client, output, arguments).await,
        TenantCommand::Approvals(arguments) => approvals::run(client, output, arguments).await,
        TenantCommand::Budget(arguments) => budget::run(client, output, arguments).await,
        TenantCommand::Abort { id } => sessions::abort(client, output, &id).await,
        TenantCommand::Project(arguments) => project::run(client, output, arguments).await,
        TenantCommand::Worktree(arguments) => worktree::run(client, output, arguments).await,
        TenantCommand::Egress(arguments) => egress::run(client, output, arguments).await,
        TenantCommand::Env(arguments) => Box::pin(environment::run(client, output, arguments)).await,
        TenantCommand::Secret(arguments) => secret::run(client, output, arguments).await,
    }
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
        ServiceCommand::Broker(arguments) => {
            let ServiceArgs { config, common } = *arguments;
            service::run("broker", common, |service| broker::run(config, service)).await
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
