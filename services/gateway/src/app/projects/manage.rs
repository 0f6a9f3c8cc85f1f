//! Creates, reads and changes projects. OpenCode's clients know a project by its name, which to them is a directory.

use super::source;
use crate::{
    app::ground::{
        checks,
        gateway::Gateway,
        page::{List, PageRequest, is_text},
    },
    auth::principal::Principal,
    ground::{error::Error, invalid::Invalid, scope::Scope},
    streams::notices::{
        ClientCommand, notify_all_disposed, notify_clients, notify_disposed, notify_project_updated,
    },
};
use domain::{ids::ProjectId, limits, project::ProjectDisplay, session::Source};
use serde_json::json;
use store::tenant::projects::Project;

/// Bytes of a project's display settings as JSON: mostly an icon. Each list of projects contains them.
pub(crate) const DISPLAY_BYTES_MAX: usize = 32 * 1024;

/// Creates a project, or returns the existing one with this name.
///
/// # Errors
/// `name_empty`, `name_too_long`, `store_unavailable`; those of [`source::check`].
pub(crate) async fn create(
    gateway: &Gateway,
    principal: &Principal,
    name: &str,
    source: &Source,
) -> Result<Project, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    source::check(state, tenant, source).await?;
    let (id, name) = (state.id(ProjectId::make), checks::name(name)?);
    let project = state.store.create_project(tenant, &id, &name, source).await?;
    // If the id differs, the project existed before.
    if project.id == id {
        notify_project_updated(state, tenant, &project);
    }
    Ok(project)
}

/// Replaces the source of a project's new sessions.
///
/// # Errors
/// `project_not_found`, `store_unavailable`; those of [`source::check`].
pub(crate) async fn set_source(
    gateway: &Gateway,
    principal: &Principal,
    id: &ProjectId,
    source: &Source,
) -> Result<Project, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    source::check(state, tenant, source).await?;
    let project = state.store.set_project_source(tenant, id, source).await?;
    notify_project_updated(state, tenant, &project);
    Ok(project)
}

/// Returns a project.
///
/// # Errors
/// `project_not_found`, `store_unavailable`.
pub(crate) async fn get(gateway: &Gateway, principal: &Principal, id: &ProjectId) -> Result<Project, Error> {
    Ok(gateway.state.store.get_project(principal.tenant(Scope::Read)?, id).await?)
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

/// Finds the project of a directory.
///
/// # Errors
/// `directory_invalid`, `store_unavailable`.
pub(crate) async fn find_by_directory(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
) -> Result<Option<Project>, Error> {
    check_directory(directory)?;
    Ok(gateway.state.store.find_project(principal.tenant(Scope::Read)?, directory).await?)
}

/// Returns the project of a directory, and creates it without a repository if it does not exist.
///
/// # Errors
/// `directory_invalid`, `store_unavailable`.
pub(crate) async fn ensure_directory(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
) -> Result<Project, Error> {
    if let Some(project) = find_by_directory(gateway, principal, directory).await? {
        return Ok(project);
    }
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    let id = state.id(ProjectId::make);
    let project = state.store.create_project(tenant, &id, directory, &Source::default()).await?;
    // Another gateway may have created it first.
    if project.id == id {
        notify_project_updated(state, tenant, &project);
    }
    Ok(project)
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
    let project = state.store.update_project(tenant, id, apply).await?;
    if let Some(project) = &project {
        notify_project_updated(state, tenant, project);
    }
    Ok(project)
}

/// Tells the clients of a project to read everything again.
///
/// # Errors
/// `scope_missing`.
pub(crate) fn refresh_clients(
    gateway: &Gateway,
    principal: &Principal,
    project: &Project,
) -> Result<(), Error> {
    notify_disposed(&gateway.state, principal.tenant(Scope::Write)?, project);
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

/// Sends a command to the terminal clients of a project that use the caller's key.
///
/// # Errors
/// `scope_missing`.
pub(crate) fn command_clients(
    gateway: &Gateway,
    principal: &Principal,
    project: &Project,
    command: &ClientCommand,
) -> Result<(), Error> {
    let tenant = principal.tenant(Scope::Write)?;
    notify_clients(&gateway.state, tenant, project, principal.name(), command);
    Ok(())
}
