//! `flotilla worktree`: further directories of a project, whose sessions begin on a branch of their own.

use super::project;
use crate::{
    client::{Client, call},
    exit::{Exit, coded},
    terminal::{
        output::{ListText, Output},
        paint::Paint,
        table::{Side, Table},
    },
};
use anyhow::{Context as _, Result};
use rpc::v1::{
    CreateWorktreeRequest, ErrorCode, ListWorktreesRequest, Project, RemoveWorktreeRequest,
    ResetWorktreeRequest, Worktree,
};
use serde_json::{Value, json};

/// `flotilla worktree`.
#[derive(Debug, clap::Args)]
pub(crate) struct WorktreeArgs {
    #[command(subcommand)]
    command: WorktreeCommand,
}

/// The project that a command is about.
#[derive(Debug, clap::Args)]
struct ProjectArg {
    /// The project's name or id.
    #[arg(long, value_name = "PROJECT")]
    project: String,
}

#[derive(Debug, clap::Subcommand)]
enum WorktreeCommand {
    /// List the worktrees of a project.
    Ls {
        #[command(flatten)]
        of: ProjectArg,
    },
    /// Create a worktree. The files of its sessions begin on the branch opencode/NAME, at its newest commit if the repository has it.
    Create {
        /// Its name; default: one that the gateway chooses.
        name: Option<String>,
        #[command(flatten)]
        of: ProjectArg,
    },
    /// Remove a worktree. Its sessions stay in the project with their files.
    Remove {
        /// Its name or its directory.
        worktree: String,
        #[command(flatten)]
        of: ProjectArg,
    },
    /// Let a worktree begin anew on another branch. Its sessions stay in the project with their files.
    Reset {
        /// Its name or its directory.
        worktree: String,
        #[command(flatten)]
        of: ProjectArg,
    },
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: WorktreeArgs) -> Result<Exit> {
    // A change is not repeated by itself: a second one could name or remove another worktree.
    match arguments.command {
        WorktreeCommand::Ls { of } => {
            let project = project::find(client, &of.project).await?;
            let none = "no worktrees yet; `flotilla worktree create` makes one";
            output.list(&list(client, &project).await?, &ListText { to_json, table: &table, none })?;
        }
        WorktreeCommand::Create { name, of } => {
            let project_id = project::find(client, &of.project).await?.id;
            let request = CreateWorktreeRequest { project_id, name: name.unwrap_or_default() };
            let created = client.projects().create_worktree(request).await.context("create the worktree")?;
            print(output, &created.into_inner().worktree.unwrap_or_default())?;
        }
        WorktreeCommand::Remove { worktree, of } => {
            let project = project::find(client, &of.project).await?;
            let Worktree { directory, .. } = find(client, &project, &worktree).await?;
            let request = RemoveWorktreeRequest { project_id: project.id, directory: directory.clone() };
            client.projects().remove_worktree(request).await.context("remove the worktree")?;
            let object = json!({"type": "deletion", "id": directory, "is_deleted": true});
            output.result(&format!("{directory} is removed; its sessions stay in the project"), &object)?;
        }
        WorktreeCommand::Reset { worktree, of } => {
            let project = project::find(client, &of.project).await?;
            let Worktree { directory, .. } = find(client, &project, &worktree).await?;
            let request = ResetWorktreeRequest { project_id: project.id, directory };
            let reset = client.projects().reset_worktree(request).await.context("reset the worktree")?;
            print(output, &reset.into_inner().worktree.unwrap_or_default())?;
        }
    }
    Ok(Exit::Done)
}

async fn list(client: &Client, project: &Project) -> Result<Vec<Worktree>> {
    let request = ListWorktreesRequest { project_id: project.id.clone() };
    let list = async || client.projects().list_worktrees(request.clone()).await;
    Ok(call("list the worktrees", list).await?.worktrees)
}

/// Finds the directory of a worktree of a project, both by their names.
pub(crate) async fn find_directory(client: &Client, project: &str, named: &str) -> Result<String> {
    let project = project::find(client, project).await?;
    Ok(find(client, &project, named).await?.directory)
}

/// Finds a worktree of a project by its directory or its name.
async fn find(client: &Client, project: &Project, named: &str) -> Result<Worktree> {
    let worktrees = list(client, project).await?;
    let by_directory = worktrees.iter().find(|it| it.directory == named);
    let found = by_directory.or_else(|| worktrees.iter().find(|it| it.name == named));
    found.cloned().ok_or_else(|| {
        let name = &project.name;
        let message = format!(
            "the project {name} has no worktree {named}; `flotilla worktree ls --project {name}` lists them"
        );
        coded(ErrorCode::WorktreeUnknown, message)
    })
}

fn print(output: &Output, worktree: &Worktree) -> Result<()> {
    output.result(&format!("{}  {}", worktree.directory, worktree.branch), &to_json(worktree))
}

fn table(worktrees: &[Worktree], paint: Paint) -> String {
    let mut table = Table::new([("NAME", Side::Left), ("BRANCH", Side::Left), ("DIRECTORY", Side::Left)]);
    for Worktree { name, branch, directory } in worktrees {
        table.push([name.clone(), branch.clone(), directory.clone()]);
    }
    table.text(paint)
}

fn to_json(Worktree { directory, name, branch }: &Worktree) -> Value {
    json!({"type": "worktree", "directory": directory, "name": name, "branch": branch})
}
