//! `flotilla project`: the repositories of a tenant. A new session of a project opens the project's source, whoever starts it.

use crate::{
    client::{Client, call},
    exit::Exit,
    repository::source::{Notes, RepositoryArgs, RepositorySource},
    terminal::{
        out,
        paint::Paint,
        table::{Side, Table},
    },
};
use anyhow::{Result, bail};
use domain::limits;
use rpc::v1::{
    CreateProjectRequest, DeleteProjectRequest, DeleteSessionRequest, ListProjectsRequest,
    ListSessionsRequest, Page, Project, SetProjectSourceRequest, Source, source::From,
};
use serde_json::{Value, json};

/// Projects of a list without `--all`.
const LIST_MAX: usize = 100;
/// Characters of a commit's or a bundle's id.
const ID_CHARS: usize = 12;

/// `flotilla project`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProjectArgs {
    #[command(subcommand)]
    command: ProjectCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ProjectCommand {
    /// Create a project. New sessions of it open its repository, also those that `opencode attach --dir NAME` starts.
    Create {
        /// Its name; default: the last component of the repository's path or URL.
        name: Option<String>,
        #[command(flatten)]
        files: RepositoryArgs,
    },
    /// Replace the repository that new sessions of a project open. Existing sessions keep their files.
    Update {
        /// The project's name or id.
        project: String,
        #[command(flatten)]
        files: RepositoryArgs,
    },
    /// Delete a project with its settings. A project with sessions is refused.
    Delete {
        /// The project's name or id.
        project: String,
        /// Delete its sessions with their files too.
        #[arg(long)]
        sessions: bool,
    },
    /// List the projects.
    Ls {
        /// All of them; default: the first 100 by name.
        #[arg(long)]
        all: bool,
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Show one project.
    Show {
        /// The project's name or id.
        project: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(client: &Client, arguments: ProjectArgs) -> Result<Exit> {
    match arguments.command {
        ProjectCommand::Create { name, files } => create(client, name, &files).await?,
        ProjectCommand::Update { project, files } => {
            if !files.is_named() {
                bail!("name the new repository with --repo PATH or --repo URL");
            }
            let project = find(client, &project).await?;
            print(&set_source(client, &project.id, &files).await?)?;
        }
        ProjectCommand::Delete { project, sessions } => {
            let project = find(client, &project).await?;
            if sessions {
                delete_sessions(client, &project.id).await?;
            }
            delete(client, &project).await?;
        }
        ProjectCommand::Ls { all, json } => {
            list(client, if all { usize::MAX } else { LIST_MAX }, json).await?
        }
        ProjectCommand::Show { project, json: false } => print(&find(client, &project).await?)?,
        ProjectCommand::Show { project, json: true } => print_json(&find(client, &project).await?)?,
    }
    Ok(Exit::Done)
}

/// Creates a project. One that exists without files, because `flotilla run` or a client named it, gets its repository now.
async fn create(client: &Client, name: Option<String>, files: &RepositoryArgs) -> Result<()> {
    let name = name.map_or_else(|| files.name(), Ok)?;
    let existing = first(client, usize::MAX).await?.projects.into_iter().find(|project| project.name == name);
    let project = match existing {
        Some(project) if has_files(&project) => {
            bail!(
                "the project {name} exists; `flotilla project update {name} --repo …` replaces its repository"
            )
        }
        Some(project) => set_source(client, &project.id, files).await?,
        None => {
            let RepositorySource { source, place, .. } = files.send(client, Notes::Shown).await?;
            let request =
                CreateProjectRequest { name, source: Some(source), place: Some(place), or_at_place: false };
            let answer = call("create the project", || async {
                client.projects().create_project(request.clone()).await
            });
            answer.await?.project.unwrap_or_default()
        }
    };
    print(&project)
}

async fn set_source(client: &Client, project_id: &str, files: &RepositoryArgs) -> Result<Project> {
    let RepositorySource { source, place, .. } = files.send(client, Notes::Shown).await?;
    let (source, place) = (Some(source), Some(place));
    let request = SetProjectSourceRequest { project_id: project_id.to_owned(), source, place };
    let answer = call("set the repository of the project", || async {
        client.projects().set_project_source(request.clone()).await
    });
    Ok(answer.await?.project.unwrap_or_default())
}

fn has_files(project: &Project) -> bool {
    project.source.as_ref().is_some_and(|source| source.from.is_some())
}

async fn delete(client: &Client, project: &Project) -> Result<()> {
    let request = DeleteProjectRequest { project_id: project.id.clone() };
    call("delete the project", || async { client.projects().delete_project(request.clone()).await }).await?;
    out::note(&format!("deleted {}", project.name));
    Ok(())
}

/// Deletes the sessions of a project. Subtasks are deleted with their parents.
async fn delete_sessions(client: &Client, project_id: &str) -> Result<()> {
    let (mut roots, mut cursor) = (vec![], String::new());
    loop {
        let request = ListSessionsRequest {
            project_id: project_id.to_owned(),
            include_archived: true,
            page: Some(Page { limit: limits::PAGE_MAX, cursor }),
            ..ListSessionsRequest::default()
        };
        let answer =
            call("list sessions", || async { client.sessions().list_sessions(request.clone()).await })
                .await?;
        let is_root = |session: &rpc::v1::Session| session.parent_id.is_empty();
        roots.extend(answer.sessions.into_iter().filter(is_root).map(|session| session.id));
        cursor = answer.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    for session_id in roots {
        let request = DeleteSessionRequest { session_id };
        call("delete a session", || async { client.sessions().delete_session(request.clone()).await })
            .await?;
    }
    Ok(())
}

async fn list(client: &Client, most: usize, is_json: bool) -> Result<()> {
    let Listed { projects, has_more } = first(client, most).await?;
    if has_more {
        out::note("… there are more; --all shows them");
    }
    if is_json {
        return projects.iter().try_for_each(print_json);
    }
    let mut table = Table::new([("NAME", Side::Left), ("ID", Side::Left), ("SOURCE", Side::Left)]);
    for project in projects {
        let source = describe(project.source.as_ref());
        table.push([project.name, project.id, source]);
    }
    out::write(&table.text(Paint::for_stdout()))
}

/// Finds a project by its name or id.
async fn find(client: &Client, project: &str) -> Result<Project> {
    let projects = first(client, usize::MAX).await?.projects;
    let by_id = projects.iter().find(|it| it.id == project);
    let found = by_id.or_else(|| projects.iter().find(|it| it.name == project));
    let Some(found) = found else { bail!("there is no project {project}; `flotilla project ls` lists them") };
    Ok(found.clone())
}

/// Projects in a list, by name.
struct Listed {
    projects: Vec<Project>,
    has_more: bool,
}

/// The first projects, at most `most`.
async fn first(client: &Client, most: usize) -> Result<Listed> {
    let (mut projects, mut cursor) = (vec![], String::new());
    loop {
        let page = Some(Page { limit: limits::PAGE_MAX, cursor });
        let request = ListProjectsRequest { page };
        let answer =
            call("list the projects", || async { client.projects().list_projects(request.clone()).await })
                .await?;
        projects.extend(answer.projects);
        cursor = answer.next_cursor;
        if cursor.is_empty() || projects.len() >= most {
            let has_more = !cursor.is_empty() || projects.len() > most;
            projects.truncate(most);
            return Ok(Listed { projects, has_more });
        }
    }
}

fn print(project: &Project) -> Result<()> {
    out::line(&format!("{}  {}  {}", project.name, project.id, describe(project.source.as_ref())))
}

fn print_json(project: &Project) -> Result<()> {
    out::line(&to_json(project).to_string())
}

/// The source in words: a URL, the beginning of a bundle's id, or that there is none.
fn describe(source: Option<&Source>) -> String {
    let revision = source.map(|source| source.revision.as_str()).filter(|revision| !revision.is_empty());
    let at = revision.map(|revision| format!(" at {revision}")).unwrap_or_default();
    match source.and_then(|source| source.from.as_ref()) {
        None => "no files".to_owned(),
        Some(From::GitUrl(url)) => format!("{url}{at}"),
        Some(From::BundleId(id)) => {
            format!("uploaded {}{at}", id.chars().take(ID_CHARS).collect::<String>())
        }
    }
}

fn to_json(project: &Project) -> Value {
    let (git_url, bundle_id) = match project.source.as_ref().and_then(|source| source.from.as_ref()) {
        None => (None, None),
        Some(From::GitUrl(url)) => (Some(url), None),
        Some(From::BundleId(id)) => (None, Some(id)),
    };
    let revision = project.source.as_ref().map(|source| &source.revision).filter(|it| !it.is_empty());
    json!({
        "id": project.id, "name": project.name, "git_url": git_url, "bundle_id": bundle_id,
        "revision": revision, "created_at_ms": project.created_at_ms,
    })
}
