//! Directories: to a client the place of its files, here the key of a project. It is the name of the project; an unknown one
//! names a new project without a repository.

use super::{caller::Caller, error::Result};
use crate::state::State;
use domain::{ids::ProjectId, limits, session::Source};
use rpc::status::invalid;
use store::tenant::projects::Project;

/// The project of clients that name no directory.
const DEFAULT: &str = "default";

/// The name of the project of a directory.
pub(super) fn project_name(directory: Option<&str>) -> Result<&str> {
    let name = directory.unwrap_or(DEFAULT);
    if name.len() > limits::NAME_BYTES_MAX || name.contains('\0') {
        let message = format!("a directory has at most {} bytes, and no zero bytes", limits::NAME_BYTES_MAX);
        return Err(invalid("directory_invalid", message).into());
    }
    Ok(name)
}

impl Caller {
    pub(super) fn project_name(&self) -> Result<&str> {
        project_name(self.directory.as_deref())
    }

    /// The project of the directory, if there is one.
    pub(super) async fn find_project(&self, state: &State) -> Result<Option<Project>> {
        Ok(state.store.find_project(self.principal.tenant, self.project_name()?).await?)
    }

    /// The project of the directory, made if there is none.
    pub(super) async fn project(&self, state: &State) -> Result<Project> {
        let (tenant, name) = (self.principal.tenant, self.project_name()?);
        if let Some(project) = self.find_project(state).await? {
            return Ok(project);
        }
        let id = state.id(ProjectId::make);
        let project = state.store.create_project(tenant, &id, name, &Source::default()).await?;
        // Another gateway may have been first.
        if project.id == id {
            state.tell_project(tenant, &project);
        }
        Ok(project)
    }
}
