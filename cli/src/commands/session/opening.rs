//! The project and the files that a new session opens.

use crate::{
    client::{Client, call},
    commands::project,
    repository::source::{RepositoryArgs, RepositorySource},
    terminal::output::Output,
};
use anyhow::Result;
use domain::{session::repository_name, text};
use rpc::v1::{CreateProjectRequest, CreateProjectResponse, SetProjectSourceRequest, Source, source};
use sha2::{Digest as _, Sha256};

/// Characters that tell projects of the same name apart.
const SUFFIX_CHARS: usize = 6;

/// What a new session opens.
#[derive(Clone)]
pub(crate) struct OpenedProject {
    pub(crate) project_id: String,
    /// None: the source of the project.
    pub(crate) source: Option<Source>,
    /// The repository that an uploaded source was made of; empty: unknown.
    pub(crate) remote: String,
    /// Gives the project these files, because it has others of the same place.
    pub(crate) renewal: Option<SetProjectSourceRequest>,
}

/// Opens a project with its own files, and says how old they are.
pub(crate) async fn open_project(client: &Client, output: &Output, named: &str) -> Result<OpenedProject> {
    let found = project::get(client, named).await?;
    output.note(&format!("{} opens {}", found.project.name, project::describe_with_age(&found)));
    Ok(OpenedProject { project_id: found.project.id, source: None, remote: String::new(), renewal: None })
}

async fn create(client: &Client, request: &CreateProjectRequest) -> Result<CreateProjectResponse> {
    let create = async || client.projects().create_project(request.clone()).await;
    call("create the project", create).await
}

/// A name for a project whose own belongs to another repository: always the same for one repository.
fn distinct_name(request: &CreateProjectRequest) -> String {
    let place = request.place.clone().unwrap_or_default();
    let url = match request.source.as_ref().and_then(|source| source.from.as_ref()) {
        Some(source::From::GitUrl(url)) => url.as_str(),
        Some(source::From::BundleId(_)) | None => place.remote.as_str(),
    };
    let identity =
        repository_name(url).unwrap_or_else(|| format!("{}{}", place.root_commit, place.directory));
    let digest = text::hex(&Sha256::digest(identity));
    format!("{}-{}", request.name, text::head(&digest, SUFFIX_CHARS))
}

/// Sends a repository and finds its project. Sessions that other clients start in this directory then open the same repository.
pub(crate) async fn open_repository(
    client: &Client,
    output: &Output,
    files: &RepositoryArgs,
) -> Result<OpenedProject> {
    let RepositorySource { name, source, place } = files.send(client, output).await?;
    let remote = place.remote.clone();
    let request = CreateProjectRequest {
        name,
        source: Some(source.clone()),
        place: Some(place.clone()),
        or_at_place: true,
    };
    let mut answer = create(client, &request).await?;
    if answer.is_elsewhere {
        let other = request.name.clone();
        let request = CreateProjectRequest { name: distinct_name(&request), ..request };
        answer = create(client, &request).await?;
        if !answer.is_elsewhere {
            let name = &request.name;
            output.note(&format!(
                "the project {other} is another repository, so this one is the project {name}; `--project {other}` starts with the files of the other"
            ));
        }
    }
    let project = answer.project.unwrap_or_default();
    if answer.is_elsewhere {
        let name = &project.name;
        output.note(&format!(
            "the project {name} came from another place than this one; this session has the files of this one, `--project {name}` \
             starts with those of the project"
        ));
    }
    let is_upload = |source: &Source| matches!(source.from, Some(source::From::BundleId(_)));
    let has_others =
        project.source.as_ref().is_some_and(|of_project| is_upload(of_project) && *of_project != source);
    let is_renewal = has_others && is_upload(&source) && files.is_checked_out() && !answer.is_elsewhere;
    let renewal = is_renewal.then(|| SetProjectSourceRequest {
        project_id: project.id.clone(),
        source: Some(source.clone()),
        place: Some(place),
    });
    Ok(OpenedProject { project_id: project.id, source: Some(source), remote, renewal })
}
