//! `flotilla env`: the environments of projects. `build` has them built, `check` tries them, `proposals` shows those that repositories propose and decides
//! about them, and `init` writes one.

mod build;
mod changes;
mod check;
mod init;
mod layers;
mod proposals;
mod refusals;
mod versions;

use crate::{client::Client, exit::Exit, terminal::output::Output};
use anyhow::Result;

/// `flotilla env`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnvironmentArgs {
    #[command(subcommand)]
    command: EnvironmentCommand,
}

#[derive(Debug, clap::Subcommand)]
enum EnvironmentCommand {
    /// List the environments, newest build first.
    Ls {
        /// Only those of this project, by name or id.
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
    },
    /// Have the setup and the install of a project built now, if they are not there, and show what the first of them prints. A session of the project is opened for it and deleted
    /// afterwards.
    Build {
        /// The project, by name or id.
        #[arg(long, value_name = "PROJECT")]
        project: String,
    },
    /// Try the environment of a repository: have it built, and run a command in it, such as the tests. A session is opened for it and deleted afterwards. The exit
    /// code is that of the command.
    Check(check::CheckArgs),
    #[command(flatten)]
    File(FileCommand),
    /// List the environments that the repositories of a project propose, newest first.
    Proposals {
        /// The project, by name or id.
        #[arg(long, value_name = "PROJECT")]
        project: String,
    },
    /// Show an environment that a repository proposes, and what it changes against the one that is allowed now.
    Show(proposals::ProposalArgs),
    /// Let sessions of a project use an environment that its repository proposes. Needs a key of an admin.
    Allow(proposals::ProposalArgs),
    /// Keep sessions of a project from using an environment that its repository proposes. Needs a key of an admin.
    Deny(proposals::ProposalArgs),
    /// Show what the newest build of an environment printed; of a long output, the end.
    Log {
        /// The key of the environment, or its first digits.
        key: String,
    },
    /// Remove an environment that no session uses, with its log. The next session that needs it builds it again.
    Rm {
        /// The key of the environment, or its first digits.
        key: String,
    },
}

/// A command about the file in which a repository describes its environment. It calls no gateway.
#[derive(Debug, clap::Subcommand)]
enum FileCommand {
    /// Write .flotilla/config.yaml for a repository, from its lock files and the files in which it names versions.
    Init(init::InitArgs),
    /// Print the JSON schema of .flotilla/config.yaml, for editors.
    Schema,
}

fn write_file(output: &Output, command: &FileCommand) -> Result<()> {
    match command {
        FileCommand::Init(arguments) => init::run(output, arguments),
        FileCommand::Schema => output.write(settings::proposal::SCHEMA),
    }
}

impl EnvironmentArgs {
    /// Whether the command calls the gateway.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self.command, EnvironmentCommand::File(_))
    }
}

/// Runs a command that calls no gateway.
pub(crate) fn run_here(output: &Output, arguments: &EnvironmentArgs) -> Result<Exit> {
    if let EnvironmentCommand::File(command) = &arguments.command {
        write_file(output, command)?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: EnvironmentArgs) -> Result<Exit> {
    match arguments.command {
        EnvironmentCommand::Ls { project } => layers::list(client, output, project).await?,
        EnvironmentCommand::Build { project } => return build::run(client, output, &project).await,
        EnvironmentCommand::Check(arguments) => return check::run(client, output, &arguments).await,
        EnvironmentCommand::File(command) => write_file(output, &command)?,
        EnvironmentCommand::Proposals { project } => proposals::list(client, output, &project).await?,
        EnvironmentCommand::Show(arguments) => proposals::show(client, output, &arguments).await?,
        EnvironmentCommand::Allow(arguments) => proposals::decide(client, output, &arguments, true).await?,
        EnvironmentCommand::Deny(arguments) => proposals::decide(client, output, &arguments, false).await?,
        EnvironmentCommand::Log { key } => layers::log(client, output, &key).await?,
        EnvironmentCommand::Rm { key } => layers::remove(client, output, &key).await?,
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::fake::Fake;
    use rpc::v1::Project;
    use serde_json::json;

    #[tokio::test]
    async fn environments_are_listed_with_their_projects_and_their_logs_are_shown() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        let project = Project { id: "prj_1".to_owned(), name: "shop".to_owned(), ..Project::default() };
        fake.0.lock().unwrap().projects = vec![project];
        fake.run(&output, &["env", "ls", "--project", "shop"]).await.unwrap();
        let text = output.take();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("shop") && lines[1].contains("ready"), "{text}");
        assert!(lines[2].contains("setup_failed"), "{text}");
        fake.run(&output, &["env", "log", "b"]).await.unwrap();
        // Nothing in a log moves the cursor.
        assert_eq!(output.take(), "one\n\u{fffd}[2Jtwo\n");
        assert!(output.take_notes().contains("exit code 3 (setup_failed)"));
        fake.run(&output, &["env", "rm", "a…"]).await.unwrap();
        assert_eq!(output.take(), "a is removed\n");
        let unknown = fake.run(&output, &["env", "log", "c"]).await.unwrap_err().to_string();
        assert!(unknown.contains("no environment has a key that begins with \"c\""), "{unknown}");
        {
            let mut state = fake.0.lock().unwrap();
            state.events = vec![("session.idle", json!({"outcome": "done"}))];
            state.begins_build = true;
        }
        fake.run(&output, &["env", "build", "--project", "shop"]).await.unwrap();
        assert!(output.take().contains("log of c\nlog of d\n"));
        let notes = "setup c runs\nsetup c: ready after 1 s\ninstall d runs\ninstall d: ready after 2 s\n";
        let told = output.take_notes();
        assert!(told.contains(notes), "{told}");
        let orders = fake.0.lock().unwrap().orders.clone();
        let removed = orders.iter().position(|order| order == "remove environment a");
        assert_eq!((orders[0].as_str(), removed.is_some()), ("list environments of \"prj_1\"", true));
    }
}
