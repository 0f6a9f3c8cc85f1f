//! `flotilla`: the command line for people (gRPC to a gateway), every service, and `flotilla up` for all of it at once.

mod arguments;
mod client;
mod commands;
mod completion;
mod exit;
mod help;
mod input;
mod lookup;
mod repository;
mod stack;
mod stream;
mod terminal;

use anyhow::Result;
use arguments::{Cli, Command, ServiceCommand, TenantCommand};
use client::Client;
use commands::{
    admin, audit, config, context, environment, github, key, migrate, models,
    program::{doctor, manual, version},
    project,
    requests::{answer, approvals, why},
    secret,
    session::{
        budget, checkout, egress, export, family, history, messages, outcome, prompt, pty, push, sessions,
        watch,
    },
    tenant, worktree,
};
use exit::Exit;
use lookup::SessionFinder;
use stack::{
    down,
    service::{self, ServiceArgs},
    up,
};
use std::{ffi::OsString, num::NonZero, process::ExitCode};
use terminal::output::{self, Output};

/// Threads for each processor. A request of one tenant with a body of some MiB holds a thread for tens of milliseconds. With a thread for each
/// processor, two such requests would keep all others waiting; with more, the kernel gives each its turn.
const THREADS_PER_PROCESSOR: usize = 4;

fn main() -> ExitCode {
    completion::answer_shell(arguments::command);
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
    let cli = match arguments::parse(words.iter().cloned()) {
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

async fn run(cli: Cli, output: &Output) -> Result<ExitCode> {
    let Cli { connection, command, .. } = cli;
    let exit = match command {
        Command::Service(command) => return serve(command).await,
        Command::Migrate(arguments) => Box::pin(migrate::run(output, &arguments)).await?,
        Command::Down => down::run(&connection, output).await?,
        Command::Up(arguments) => up::run(*arguments, output, connection.data).await?,
        Command::Admin(arguments) => {
            let client = arguments.operator.open(&connection, output)?;
            admin::run(&client, output, arguments).await?
        }
        Command::Audit(arguments) => audit::run(&connection, output, arguments).await?,
        Command::Github(arguments) => github::run(&connection, output, arguments).await?,
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
        Command::Doctor => doctor::run(&connection, output).await?,
        Command::Version => version::run(&connection, output).await?,
        Command::Completion { shell } => completion::register(output, shell)?,
        Command::Man { directory } => manual::write(output, arguments::for_manual(), &directory)?,
        Command::Tenant(TenantCommand::Env(arguments)) if !arguments.is_remote() => {
            environment::run_here(output, &arguments)?
        }
        Command::Tenant(command) => {
            let client = Client::open(&connection, output);
            let client = client.map_err(|error| told(output, command.has_outcome(), error))?;
            call_gateway(&client, output, command).await?
        }
    };
    Ok(ExitCode::from(exit.code()))
}

/// The error of a command that cannot begin, after the last line of one whose last line says how it ended.
fn told(output: &Output, has_outcome: bool, error: anyhow::Error) -> anyhow::Error {
    if has_outcome { outcome::failed(output, None, error) } else { error }
}

/// Runs a command of a tenant.
async fn call_gateway(client: &Client, output: &Output, mut command: TenantCommand) -> Result<Exit> {
    let has_outcome = command.has_outcome();
    let mut finder = SessionFinder::new(client, output);
    for named in command.sessions_mut() {
        let found = finder.find(named).await;
        *named = found.map_err(|error| told(output, has_outcome, error))?;
    }
    match command {
        TenantCommand::Run(arguments) => Box::pin(prompt::run(client, output, *arguments)).await,
        TenantCommand::Say(arguments) => prompt::say(client, output, arguments).await,
        TenantCommand::Shell(arguments) => prompt::shell(client, output, arguments).await,
        TenantCommand::Pty(arguments) => pty::run(client, output, arguments).await,
        TenantCommand::Watch(arguments) => watch::run(client, output, arguments).await,
        TenantCommand::Ls(arguments) => sessions::list(client, output, arguments).await,
        TenantCommand::Diff { id, message } => sessions::diff(client, output, &id, message.as_deref()).await,
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
        TenantCommand::Messages(arguments) => messages::run(client, output, arguments).await,
        TenantCommand::Export(arguments) => export::run(client, output, arguments).await,
        TenantCommand::Models => models::run(client, output).await,
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
mod tests;
