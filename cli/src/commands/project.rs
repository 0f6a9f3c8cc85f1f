//! `flotilla project`: the repositories of a tenant. A new session of a project opens the project's source, whichever client starts it.

use crate::{
    client::{Client, Listed, Paged, all_pages, call, first_pages},
    exit::{Exit, coded},
    repository::source::{RepositoryArgs, RepositorySource},
    terminal::{
        output::{ListText, Output},
        paint::Paint,
        show,
        table::{Side, Table},
    },
};
use anyhow::{Result, bail};
use rpc::v1::{
    CreateProjectRequest, DeleteProjectRequest, DeleteSessionRequest, ErrorCode, GetProjectRequest,
    ListProjectsRequest, ListSessionsRequest, Project, SetProjectSourceRequest, Source, UploadedSource,
    source::From,
};
use serde_json::{Value, json};

/// Projects of a list without `--all`. The list says that there are more.
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
    },
    /// Show one project, and how old its uploaded files are.
    Show {
        /// The project's name or id.
        project: String,
    },
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: ProjectArgs) -> Result<Exit> {
    match arguments.command {
        ProjectCommand::Create { name, files } => {
            let project = create(client, output, Creation { name, files: &files }).await?;
            print(output, &project)?;
        }
        ProjectCommand::Update { project, files } => {
            if !files.is_named() {
                bail!("name the new repository with --repo PATH or --repo URL");
            }
            let project = find(client, &project).await?;
            print(output, &set_source(client, output, &project.id, &files).await?)?;
        }
        ProjectCommand::Delete { project, sessions } => {
            let project = find(client, &project).await?;
            if sessions {
                delete_sessions(client, &project.id).await?;
            }
            delete(client, output, &project).await?;
        }
        ProjectCommand::Ls { all } => list(client, output, if all { usize::MAX } else { LIST_MAX }).await?,
        ProjectCommand::Show { project } => {
            let found = get(client, &project).await?;
            let Project { name, id, .. } = &found.project;
            output.result(&format!("{name}  {id}  {}", describe_with_age(&found)), &found.to_json())?;
        }
    }
    Ok(Exit::Done)
}

struct Creation<'a> {
    name: Option<String>,
    files: &'a RepositoryArgs,
}

/// Creates a project. One that exists without files, because `flotilla run` or a client named it, gets its repository now.
async fn create(client: &Client, output: &Output, Creation { name, files }: Creation<'_>) -> Result<Project> {
    let name = name.map_or_else(|| files.name(), Ok)?;
    let existing = list_all(client).await?.into_iter().find(|project| project.name == name);
    match existing {
        Some(project) if has_files(&project) => {
            let found = with_age(client, project).await?;
            bail!(
                "the project {name} exists and opens {}; `flotilla project update {name} --repo …` replaces its repository",
                describe_with_age(&found)
            )
        }
        Some(project) => set_source(client, output, &project.id, files).await,
        None => {
            let RepositorySource { source, place, .. } = files.send(client, output).await?;
            let request =
                CreateProjectRequest { name, source: Some(source), place: Some(place), or_at_place: false };
            let create = async || client.projects().create_project(request.clone()).await;
            Ok(call("create the project", create).await?.project.unwrap_or_default())
        }
    }
}

async fn set_source(
    client: &Client,
    output: &Output,
    project_id: &str,
    files: &RepositoryArgs,
) -> Result<Project> {
    let RepositorySource { source, place, .. } = files.send(client, output).await?;
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

async fn delete(client: &Client, output: &Output, project: &Project) -> Result<()> {
    let request = DeleteProjectRequest { project_id: project.id.clone() };
    call("delete the project", || async { client.projects().delete_project(request.clone()).await }).await?;
    let object = json!({"type": "deletion", "id": project.id, "is_deleted": true});
    output.result(&format!("{} is deleted", project.name), &object)
}

/// Deletes the sessions of a project. Subtasks are deleted with their parents.
async fn delete_sessions(client: &Client, project_id: &str) -> Result<()> {
    let sessions = all_pages(async |page| {
        let request = ListSessionsRequest {
            project_id: project_id.to_owned(),
            include_archived: true,
            page: Some(page),
            ..ListSessionsRequest::default()
        };
        let list = async || client.sessions().list_sessions(request.clone()).await;
        let answer = call("list sessions", list).await?;
        Ok(Paged { entries: answer.sessions, next_cursor: answer.next_cursor })
    });
    let sessions = sessions.await?;
    for session in sessions.into_iter().filter(|session| session.parent_id.is_empty()) {
        let request = DeleteSessionRequest { session_id: session.id };
        let delete = async || client.sessions().delete_session(request.clone()).await;
        call("delete a session", delete).await?;
    }
    Ok(())
}

async fn list(client: &Client, output: &Output, most: usize) -> Result<()> {
    let Listed { entries, has_more } = first(client, most).await?;
    if has_more {
        output.note("… there are more; --all shows them");
    }
    let none = "no projects yet; `flotilla project create` makes one";
    output.list(&entries, &ListText { to_json, table: &table, none })
}

fn table(projects: &[Project], paint: Paint) -> String {
    let mut table = Table::new([("NAME", Side::Left), ("ID", Side::Left), ("SOURCE", Side::Left)]);
    for project in projects {
        table.push([project.name.clone(), project.id.clone(), describe(project.source.as_ref())]);
    }
    table.text(paint)
}

/// A project, and what is known of its uploaded files.
pub(crate) struct ProjectWithAge {
    pub(crate) project: Project,
    uploaded: Option<UploadedSource>,
}

impl ProjectWithAge {
    fn to_json(&self) -> Value {
        let mut object = to_json(&self.project);
        let uploaded = self.uploaded.as_ref();
        object["commit"] = uploaded.map(|it| it.commit.as_str()).filter(|commit| !commit.is_empty()).into();
        object["uploaded_at_ms"] = uploaded.map(|it| it.uploaded_at_ms).into();
        object
    }
}

/// Finds a project by its name or id, with the age of its files.
pub(crate) async fn get(client: &Client, named: &str) -> Result<ProjectWithAge> {
    with_age(client, find(client, named).await?).await
}

async fn with_age(client: &Client, project: Project) -> Result<ProjectWithAge> {
    let request = GetProjectRequest { project_id: project.id.clone() };
    let get = async || client.projects().get_project(request.clone()).await;
    let answer = call("load the project", get).await?;
    Ok(ProjectWithAge { project: answer.project.unwrap_or(project), uploaded: answer.uploaded })
}

/// Finds a project by its name or id.
pub(crate) async fn find(client: &Client, named: &str) -> Result<Project> {
    let projects = list_all(client).await?;
    let by_id = projects.iter().find(|it| it.id == named);
    let found = by_id.or_else(|| projects.iter().find(|it| it.name == named));
    let Some(found) = found else {
        let message = format!("there is no project {named}; `flotilla project ls` lists them");
        return Err(coded(ErrorCode::ProjectNotFound, message));
    };
    Ok(found.clone())
}

/// All projects by name.
pub(crate) async fn list_all(client: &Client) -> Result<Vec<Project>> {
    Ok(first(client, usize::MAX).await?.entries)
}

/// The first projects by name, at most `most`.
async fn first(client: &Client, most: usize) -> Result<Listed<Project>> {
    first_pages(most, async |page| {
        let request = ListProjectsRequest { page: Some(page) };
        let list = async || client.projects().list_projects(request.clone()).await;
        let answer = call("list the projects", list).await?;
        Ok(Paged { entries: answer.projects, next_cursor: answer.next_cursor })
    })
    .await
}

fn print(output: &Output, project: &Project) -> Result<()> {
    let text = format!("{}  {}  {}", project.name, project.id, describe(project.source.as_ref()));
    output.result(&text, &to_json(project))
}

/// The source in words, with the commit and the age of uploaded files.
pub(crate) fn describe_with_age(ProjectWithAge { project, uploaded }: &ProjectWithAge) -> String {
    let Some(UploadedSource { commit, uploaded_at_ms }) = uploaded else {
        return describe(project.source.as_ref());
    };
    let commit: String = commit.chars().take(ID_CHARS).collect();
    let at = if commit.is_empty() { String::new() } else { format!(" of commit {commit}") };
    format!("files{at}, uploaded {}", show::age(show::now_ms().saturating_sub(*uploaded_at_ms)))
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
        "type": "project", "id": project.id, "name": project.name, "git_url": git_url, "bundle_id": bundle_id,
        "revision": revision, "created_at_ms": project.created_at_ms,
    })
}
