//! The words of the command line: every command with its flags. `main` carries them out.

use crate::{
    commands::{
        admin, audit, config, context, environment, github, key, migrate, project,
        requests::{answer, approvals, why},
        secret,
        session::{
            budget, checkout, egress, export, family, history, messages, prompt, pty, push, sessions, watch,
        },
        tenant, worktree,
    },
    completion, help,
    stack::{
        service::{ModelScriptArgs, ServiceArgs},
        target::{self, Connection},
        up,
    },
    terminal::output::{self, OutputArgs},
};
use clap::{
    CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind, parser::ValueSource,
};
use std::{ffi::OsString, path::PathBuf};

/// Coding agents as a service. `flotilla up` starts everything on this machine.
#[derive(Debug, Parser)]
#[command(name = "flotilla", version = help::VERSION, max_term_width = 100, after_help = help::AFTER)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the whole stack on this machine; Ctrl-C stops it.
    #[command(after_help = help::UP)]
    Up(Box<up::UpArgs>),
    /// Stop the stack of a data directory.
    Down,
    #[command(flatten)]
    Tenant(TenantCommand),
    /// Show, read or replace settings.
    Config(config::ConfigArgs),
    /// Create, list and revoke API keys.
    Key(key::KeyArgs),
    /// Create and list tenants, and set their limits; for operators.
    #[command(name = "tenant")]
    Tenants(tenant::TenantArgs),
    /// Bring a database up to date, before the services of this version start; for operators.
    #[command(after_help = migrate::HELP)]
    Migrate(migrate::MigrateArgs),
    /// Show or export who changed what of a tenant: keys, settings, secrets, projects, budgets.
    Audit(audit::AuditArgs),
    /// Work on issues and pull requests at GitHub: the App, its installations, and what GitHub has told.
    Github(github::GithubArgs),
    /// See and control the work of all tenants; for operators.
    Admin(admin::AdminArgs),
    /// List, choose, add and remove the gateways that you work with.
    Context(context::ContextArgs),
    /// Check an API key for a gateway, keep both as a context, and make it the current one.
    #[command(after_help = help::LOGIN)]
    Login(context::LoginArgs),
    /// Show what is installed and what is missing.
    Doctor,
    /// Show the versions of this program and of the gateway.
    Version,
    /// Print completions for a shell, which know the sessions, projects, models and contexts too.
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a directory.
    #[command(after_help = help::MAN)]
    Man {
        /// The directory.
        directory: PathBuf,
    },
    #[command(flatten)]
    Service(ServiceCommand),
}

/// A command that calls the gateway with the key of a tenant.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Start a task in a repository and watch it.
    #[command(after_help = help::with_exit_codes(help::RUN))]
    Run(Box<prompt::RunArgs>),
    /// Continue a session.
    #[command(after_help = help::with_exit_codes(help::SAY))]
    Say(prompt::SayArgs),
    /// Run a command in the files of an idle session; its agent sees it with the next prompt.
    #[command(after_help = help::SHELL, visible_alias = "exec")]
    Shell(prompt::ShellArgs),
    /// Open a terminal in the sandbox of a session, while its agent may work.
    #[command(after_help = pty::HELP)]
    Pty(pty::PtyArgs),
    /// Show a session from its beginning until it is idle.
    #[command(after_help = help::EXIT_CODES, visible_alias = "attach")]
    Watch(watch::WatchArgs),
    /// List sessions, the last used first; subtasks stand below their session.
    #[command(visible_aliases = ["list", "ps"])]
    Ls(sessions::ListArgs),
    /// Show the changes of a session, or of one of its turns.
    Diff {
        /// The session.
        id: String,
        /// Only the changes of this prompt's turn, by its id or the beginning or end of it; `flotilla messages --ids` shows the ids.
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
    /// Let a session whose files are lost continue with those that it began with.
    RestartWorkspace {
        /// The session.
        id: String,
    },
    /// Put a session's result on a branch of your repository.
    #[command(after_help = help::CHECKOUT)]
    Checkout(checkout::CheckoutArgs),
    /// Push a session's result to the repository that its files came from.
    Push(push::PushArgs),
    /// Rename a session.
    Rename(sessions::RenameArgs),
    /// Hide a session from lists until its next prompt.
    Archive(sessions::ArchiveArgs),
    /// Delete sessions with their subtasks and files.
    #[command(visible_alias = "rm")]
    Delete(family::DeleteArgs),
    /// Show a session with its subtasks.
    Tree(family::TreeArgs),
    /// Show the conversation of a session.
    #[command(visible_alias = "logs")]
    Messages(messages::MessagesArgs),
    /// Print a session with its conversation as one JSON object, in the form of `opencode export`.
    Export(export::ExportArgs),
    /// Say what a session waits for, and estimate for how long.
    #[command(visible_alias = "status")]
    Why(why::WhyArgs),
    /// List the requests of sessions to people, and answer them.
    #[command(after_help = help::ANSWER)]
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
    /// List the models that prompts may name.
    Models,
    /// Create, list and change projects: the repositories that new sessions open.
    Project(project::ProjectArgs),
    /// List, create, remove and reset worktrees: directories of a project with a branch each.
    Worktree(worktree::WorktreeArgs),
    /// Show what a session reached of the network.
    Egress(egress::EgressArgs),
    /// Write, allow and try the environments of projects; show and remove what their scripts made.
    #[command(after_help = help::ENV)]
    Env(environment::EnvironmentArgs),
    /// Set, list and remove secrets: passwords and tokens for servers outside.
    Secret(secret::SecretArgs),
}

impl TenantCommand {
    /// The sessions that the command names, as a person wrote them.
    pub(crate) fn sessions_mut(&mut self) -> &mut [String] {
        let one = std::slice::from_mut;
        match self {
            Self::Say(it) => one(&mut it.id),
            Self::Shell(it) => one(&mut it.id),
            Self::Pty(it) => one(&mut it.id),
            Self::Watch(it) => one(&mut it.id),
            Self::Fork(it) => one(&mut it.id),
            Self::Revert(it) => one(&mut it.id),
            Self::Checkout(it) => one(&mut it.id),
            Self::Push(it) => one(&mut it.id),
            Self::Rename(it) => one(&mut it.id),
            Self::Archive(it) => one(&mut it.id),
            Self::Delete(it) => &mut it.ids,
            Self::Tree(it) => one(&mut it.id),
            Self::Messages(it) => one(&mut it.id),
            Self::Export(it) => one(&mut it.id),
            Self::Why(it) => one(&mut it.id),
            Self::Budget(it) => one(&mut it.id),
            Self::Egress(it) => one(it.session_mut()),
            Self::Diff { id, .. }
            | Self::Output { id, .. }
            | Self::Unrevert { id }
            | Self::RestartWorkspace { id }
            | Self::Abort { id } => one(id),
            // A request may stand in the place of the session.
            Self::Answer(_) => &mut [],
            Self::Run(_)
            | Self::Ls(_)
            | Self::Approvals(_)
            | Self::Models
            | Self::Project(_)
            | Self::Worktree(_)
            | Self::Env(_)
            | Self::Secret(_) => &mut [],
        }
    }

    /// Whether its last line says how it ended, also if it cannot begin.
    pub(crate) fn has_outcome(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Say(_) | Self::Shell(_) | Self::Watch(_))
    }
}

/// A service that runs until it is stopped.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
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
const LIMITED: [(&str, &[&str]); 10] = [
    ("migrate", &["json"]),
    ("up", &["data", "json"]),
    ("down", &["data", "context", "json"]),
    ("completion", &[]),
    ("man", &[]),
    ("gateway", &[]),
    ("worker", &[]),
    ("sandbox", &[]),
    ("broker", &[]),
    ("model-script", &[]),
];

/// The flags of every command that some commands do not take.
fn common_flags() -> impl Iterator<Item = &'static str> {
    target::FLAGS.into_iter().chain(output::FLAGS)
}

/// All commands, with their help and with what completes their words. Commands do not show the common flags that mean nothing to them.
pub(crate) fn command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    for (name, own) in LIMITED {
        let is_hidden = |flag: &str| common_flags().any(|it| it == flag) && !own.contains(&flag);
        command = command.mut_subcommand(name, |sub| {
            sub.mut_args(|arg| if is_hidden(arg.get_id().as_str()) { arg.hide(true) } else { arg })
        });
    }
    completion::with_values(help::with_groups(command))
}

/// All commands for the manual, whose pages list the commands of each.
pub(crate) fn for_manual() -> clap::Command {
    Cli::command().disable_help_subcommand(true)
}

/// Reads the command line. Commands do not take the common flags that mean nothing to them.
///
/// # Errors
/// What is wrong, or the help that was asked for.
pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
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
