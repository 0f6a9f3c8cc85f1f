//! Creates, reads and changes projects. OpenCode's clients know a project by its name, which to them is a directory.

use super::{
    place::{self, PlaceNames, RepositoryLocation},
    source,
};
use crate::{
    app::{
        admission, checks,
        gateway::Gateway,
        page::{List, PageRequest, is_text},
    },
    auth::principal::Principal,
    config::UnknownDirectories,
    directory_project,
    errors::{error::Error, invalid::Invalid},
    quotas::Growth,
    scope::Scope,
    state::State,
    streams::{
        notices::{
            ClientCommand, DISPOSED, EVERY_READER, notify_all_disposed, notify_clients, notify_directory,
            notify_disposed, notify_project_updated,
        },
        update::{Directory, Interest},
    },
};
use domain::{
    ids::{ProjectId, TenantId},
    limits,
    project::ProjectDisplay,
    session::{Origin, Source},
};
use serde_json::json;
use std::collections::HashMap;
use store::tenant::{
    projects::{Deletable, Project, ProjectCreation, ProjectDeletion, SurroundingProject},
    worktrees::{SessionArea, Worktree},
};

/// Bytes of a project's display settings as JSON: mostly an icon. Each list of projects contains them. HTTP answers 400 to a change that
/// would make them longer.
pub(crate) const DISPLAY_BYTES_MAX: usize = 32 * 1024;

/// The directory of clients that name none, unless exactly one project has files.
const DEFAULT_DIRECTORY: &str = "default";

/// The source of a project's new sessions, and the place that it comes from.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlacedSource {
    pub(crate) source: Source,
    pub(crate) place: RepositoryLocation,
}

/// The project that a client wants if another one has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    Name,
    Place,
}

/// A project that a client wanted.
#[derive(Debug)]
pub(crate) struct CreatedProject {
    pub(crate) project: Project,
    /// It existed before, and neither the place nor the source is known as its own: another repository may have the same name.
    pub(crate) is_elsewhere: bool,
}

/// Creates a project, or returns the existing one with this name. An existing project without files gets the source.
///
/// # Errors
/// `name_empty`, `name_too_long`, `name_invalid`, `directory_invalid`, `projects_too_many`, `store_unavailable`; those of [`source::check`].
pub(crate) async fn create(
    gateway: &Gateway,
    principal: &Principal,
    name: &str,
    PlacedSource { source, place }: &PlacedSource,
    matching: Match,
) -> Result<CreatedProject, Error> {
    let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
    let tenant = account.tenant;
    source::check(state, tenant, source).await?;
    let (places, name) = (place.names(source)?, checks::name(name)?);
    let at_place = match matching {
        Match::Name => None,
        Match::Place => find_at(state, tenant, &places).await?,
    };
    let (id, is_at_place) = (state.id(ProjectId::make), at_place.is_some());
    let name = at_place.map_or(name, |project| project.name);
    // A place of another project may have this name.
    let found = state.store.find_project(tenant, &name).await?;
    let is_known = is_at_place || found.as_ref().is_some_and(|found| found.name == name);
    if !is_known {
        if let Some(other) = found.filter(|found| found.worktrees.contains(&name)) {
            let message = format!(
                "{} is the directory of a worktree of the project {}; choose another name",
                name.escape_debug(),
                other.name
            );
            return Err(Invalid::Name.because(message));
        }
        admission::admit(state, account, &[Growth::PROJECT]).await?;
    }
    let ProjectCreation { project, is_new } =
        principal.acting(&state.store).create_project(tenant, &id, &name, source).await?;
    // An existing project with another source belongs to another repository.
    let is_changed = is_new || (project.source == *source && source.origin != Origin::Empty);
    if is_changed || is_at_place {
        state.store.add_project_places(tenant, &project.id, &places.all()).await?;
    }
    if is_changed {
        notify_project_updated(state, tenant, &project);
    }
    let is_elsewhere = !is_changed && !is_at_place && !places.is_empty();
    Ok(CreatedProject { project, is_elsewhere })
}

/// The project of a repository, else the one that is known in its directory, unless it is that of another repository.
async fn find_at(state: &State, tenant: TenantId, places: &PlaceNames) -> Result<Option<Project>, Error> {
    for identity in &places.identities {
        if let Some(project) = state.store.find_project(tenant, identity).await? {
            return Ok(Some(project));
        }
    }
    let Some(directory) = &places.directory else { return Ok(None) };
    let Some(project) = state.store.find_project(tenant, directory).await? else { return Ok(None) };
    let known = state.store.list_project_identities(tenant, &project.id).await?;
    Ok(Some(project).filter(|_| !places.contradict(&known)))
}

/// Replaces the source of a project's new sessions.
///
/// # Errors
/// `project_not_found`, `directory_invalid`, `store_unavailable`; those of [`source::check`].
pub(crate) async fn set_source(
    gateway: &Gateway,
    principal: &Principal,
    id: &ProjectId,
    PlacedSource { source, place }: &PlacedSource,
) -> Result<Project, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Manage)?);
    source::check(state, tenant, source).await?;
    let places = place.names(source)?;
    let project = principal.acting(&state.store).set_project_source(tenant, id, source).await?;
    state.store.remove_project_places(tenant, id).await?;
    state.store.add_project_places(tenant, id, &places.all()).await?;
    notify_project_updated(state, tenant, &project);
    Ok(project)
}

/// Deletes a project without sessions. One with secrets or settings of its own is an admin's to delete, because they go with it.
///
/// # Errors
/// `scope_missing`, `project_not_found`, `project_not_empty`, `store_unavailable`.
pub(crate) async fn delete(gateway: &Gateway, principal: &Principal, id: &ProjectId) -> Result<(), Error> {
    let tenant = principal.tenant(Scope::Write)?;
    let deletable = if principal.has(Scope::Manage) { Deletable::All } else { Deletable::Unconfigured };
    match principal.acting(&gateway.state.store).delete_project(tenant, id, deletable).await? {
        ProjectDeletion::Deleted => Ok(()),
        ProjectDeletion::HasSessions => Err(Error::ProjectNotEmpty),
        ProjectDeletion::IsConfigured => Err(Error::ScopeMissing(Scope::Manage)),
    }
}

/// Returns a project.
///
/// # Errors
/// `project_not_found`, `store_unavailable`.
pub(crate) async fn get(gateway: &Gateway, principal: &Principal, id: &ProjectId) -> Result<Project, Error> {
    Ok(gateway.state.store.get_project(principal.tenant(Scope::Read)?, id).await?)
}

/// Returns those of these projects that exist, by id.
///
/// # Errors
/// `scope_missing`, `store_unavailable`.
pub(crate) async fn find(
    gateway: &Gateway,
    principal: &Principal,
    ids: &[&ProjectId],
) -> Result<HashMap<ProjectId, Project>, Error> {
    let projects = gateway.state.store.find_projects(principal.tenant(Scope::Read)?, ids).await?;
    Ok(projects.into_iter().map(|project| (project.id.clone(), project)).collect())
}

/// Lists projects by name.
///
/// # Errors
/// `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    page: PageRequest,
) -> Result<List<Project>, Error> {
    let (tenant, page) = (principal.tenant(Scope::Read)?, page.check(is_text)?);
    let projects = gateway.state.store.list_projects(tenant, &page).await?;
    Ok(List::of(&page, projects, |project| project.name.clone()))
}

/// Returns the directory of clients that name none: the only project with files, if there is exactly one, else [`DEFAULT_DIRECTORY`].
///
/// # Errors
/// `scope_missing`, `store_unavailable`.
pub(crate) async fn default_directory(gateway: &Gateway, principal: &Principal) -> Result<String, Error> {
    let only = gateway.state.store.find_only_project_with_files(principal.tenant(Scope::Read)?).await?;
    Ok(only.unwrap_or_else(|| DEFAULT_DIRECTORY.to_owned()))
}

/// Finds the project of a directory: the one of exactly this name, else the one that has it as a worktree, else the one whose source came from it,
/// else the one that is listed as it in the home directory, else the nearest one that has a directory above it.
///
/// # Errors
/// `directory_invalid`, `store_unavailable`.
pub(crate) async fn find_by_directory(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
) -> Result<Option<Project>, Error> {
    Ok(find_known(gateway, principal, directory).await?.map(|known| known.project))
}

async fn find_known(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
) -> Result<Option<SurroundingProject>, Error> {
    check_directory(directory)?;
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    if let Some(project) = store.find_project(tenant, directory).await? {
        return Ok(Some(SurroundingProject { project, directory: directory.to_owned() }));
    }
    match place::surroundings(directory) {
        Some(surroundings) => Ok(store.find_project_around(tenant, &surroundings).await?),
        None => Ok(None),
    }
}

#[derive(Debug)]
pub(crate) struct ProjectDirectory {
    pub(crate) project: Project,
    /// The worktree that the directory is, if it is one.
    pub(crate) worktree: Option<Worktree>,
}

impl ProjectDirectory {
    pub(crate) fn area(&self) -> SessionArea {
        let worktree = self.worktree.as_ref().map(|worktree| worktree.id.clone());
        SessionArea { project: self.project.id.clone(), worktree }
    }

    /// The updates that its clients want.
    pub(crate) fn interest(&self) -> Interest {
        let project = self.project.id.clone();
        match &self.worktree {
            Some(worktree) => Interest::Worktree(Directory { project, name: worktree.directory.clone() }),
            None => Interest::Project(project),
        }
    }
}

/// Finds the project of a directory as [`find_by_directory`], and the worktree.
///
/// # Errors
/// `directory_invalid`, `store_unavailable`.
pub(crate) async fn find_directory(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
) -> Result<Option<ProjectDirectory>, Error> {
    let Some(known) = find_known(gateway, principal, directory).await? else { return Ok(None) };
    let SurroundingProject { project, directory } = known;
    let is_worktree = project.name != directory && project.worktrees.contains(&directory);
    let worktree = if is_worktree {
        gateway.state.store.find_worktree(principal.tenant(Scope::Read)?, &directory).await?
    } else {
        None
    };
    Ok(Some(ProjectDirectory { project, worktree }))
}

/// The project of a directory, for a new session.
#[derive(Debug)]
pub(crate) struct OpenedDirectory {
    pub(crate) project: Project,
    /// The worktree in which the session begins.
    pub(crate) worktree: Option<Worktree>,
    /// What people should know: the sessions of the project begin without files.
    pub(crate) note: Option<String>,
}

/// Returns the project of a directory for a new session. An unknown directory becomes a project without a repository, unless the operator
/// refuses unknown directories. The clients of a project without a repository are told so at each session.
///
/// # Errors
/// `directory_invalid`, `directory_unknown`, `projects_too_many`, `store_unavailable`.
pub(crate) async fn open_directory(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
) -> Result<OpenedDirectory, Error> {
    let found = find_directory(gateway, principal, directory).await?;
    let ProjectDirectory { project, worktree } = match found {
        Some(found) => found,
        None => {
            ProjectDirectory { project: add_directory(gateway, principal, directory).await?, worktree: None }
        }
    };
    let note = files_note(&project.name, &project.source);
    Ok(OpenedDirectory { project, worktree, note })
}

/// Makes an unknown directory a project without a repository, and tells its clients.
async fn add_directory(gateway: &Gateway, principal: &Principal, directory: &str) -> Result<Project, Error> {
    let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
    let tenant = account.tenant;
    if state.unknown_directories == UnknownDirectories::Refuse {
        let message = format!(
            "there is no project for the directory {directory}; create one with `flotilla project create --repo PATH`, or name \
             one that `flotilla project ls` lists"
        );
        return Err(Invalid::DirectoryUnknown.because(message));
    }
    admission::admit(state, account, &[Growth::PROJECT]).await?;
    let id = directory_project::id_of(tenant, directory);
    let creation =
        principal.acting(&state.store).create_project(tenant, &id, directory, &Source::default()).await?;
    let ProjectCreation { project, is_new } = creation;
    // Another request may have created it first.
    if is_new {
        notify_project_updated(state, tenant, &project);
        if let Some(note) = files_note(&project.name, &project.source) {
            let command = ClientCommand::warning("New project", &note);
            notify_clients(state, tenant, &project, principal.reader(), &command);
        }
    }
    Ok(project)
}

/// What people should know about a session of a project that begins with this source: it has no files. `None`: it has some.
pub(crate) fn files_note(project: &str, source: &Source) -> Option<String> {
    (source.origin == Origin::Empty).then(|| {
        format!(
            "this session has no files, because the project {project} has no repository; `--dir PROJECT` chooses one that has \
             (`flotilla project ls` lists them), and `flotilla project update {project} --repo PATH` gives this one a repository for its next \
             sessions"
        )
    })
}

/// Checks the name of a directory.
///
/// # Errors
/// `directory_invalid`.
pub(crate) fn check_directory(directory: &str) -> Result<(), Error> {
    if directory.len() > limits::NAME_BYTES_MAX || !is_text(directory) {
        let message =
            format!("a directory must have at most {} bytes and no zero bytes", limits::NAME_BYTES_MAX);
        return Err(Invalid::Directory.because(message));
    }
    Ok(())
}

/// Updates the display settings of a project. Omitted fields are unchanged. Returns `None` if they would exceed
/// [`DISPLAY_BYTES_MAX`].
///
/// # Errors
/// `project_not_found`, `store_unavailable`.
pub(crate) async fn update_display(
    gateway: &Gateway,
    principal: &Principal,
    id: &ProjectId,
    change: &ProjectDisplay,
) -> Result<Option<Project>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    let apply = |before: &ProjectDisplay| {
        Some(before.changed(change)).filter(|after| json!(after).to_string().len() <= DISPLAY_BYTES_MAX)
    };
    let project = principal.acting(&state.store).update_project(tenant, id, apply).await?;
    if let Some(project) = &project {
        notify_project_updated(state, tenant, project);
    }
    Ok(project)
}

/// Tells the clients in a directory to read everything again.
///
/// # Errors
/// `directory_invalid`, `scope_missing`, `store_unavailable`.
pub(crate) async fn refresh_clients(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
) -> Result<(), Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    match find_by_directory(gateway, principal, directory).await? {
        Some(project) => notify_disposed(state, tenant, &project),
        None => {
            let properties = json!({"directory": directory});
            notify_directory(
                state,
                tenant,
                directory,
                EVERY_READER,
                &ClientCommand { kind: DISPOSED, properties },
            );
        }
    }
    Ok(())
}

/// Tells all clients of the tenant to read everything again.
///
/// # Errors
/// `scope_missing`.
pub(crate) fn refresh_all_clients(gateway: &Gateway, principal: &Principal) -> Result<(), Error> {
    notify_all_disposed(&gateway.state, principal.tenant(Scope::Write)?);
    Ok(())
}

/// Sends a command to the terminal clients in a directory that use the caller's key.
///
/// # Errors
/// `directory_invalid`, `scope_missing`, `store_unavailable`.
pub(crate) async fn command_clients(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
    command: &ClientCommand,
) -> Result<(), Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    match find_directory(gateway, principal, directory).await? {
        Some(ProjectDirectory { project, worktree: None }) => {
            notify_clients(state, tenant, &project, principal.reader(), command);
        }
        Some(ProjectDirectory { worktree: Some(_), .. }) | None => {
            notify_directory(state, tenant, directory, principal.reader(), command);
        }
    }
    Ok(())
}
