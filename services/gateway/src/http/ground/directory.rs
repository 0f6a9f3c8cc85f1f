//! Directories: to a client the location of its files, here the name of a project.

use super::{caller::Caller, refusal::Result};
use crate::app::{
    ground::gateway::Gateway,
    projects::manage::{self, OpenedDirectory, ProjectDirectory},
};
use axum::{
    http::{HeaderName, HeaderValue},
    response::AppendHeaders,
};
use store::tenant::projects::Project;

/// The project of clients that name no directory.
const DEFAULT: &str = "default";

/// The header that tells what people should know about the answer.
const NOTE: HeaderName = HeaderName::from_static("x-flotilla-note");

/// The headers with a note.
pub(in crate::http) fn with_note(
    note: Option<&str>,
) -> Option<AppendHeaders<[(HeaderName, HeaderValue); 1]>> {
    let value = note.and_then(|note| HeaderValue::from_str(note).ok())?;
    Some(AppendHeaders([(NOTE, value)]))
}

/// The name of the project of a directory.
///
/// # Errors
/// `directory_invalid`.
pub(in crate::http) fn project_name(directory: Option<&str>) -> Result<&str> {
    let name = directory.unwrap_or(DEFAULT);
    manage::check_directory(name)?;
    Ok(name)
}

impl Caller {
    /// The name of the caller's project.
    pub(in crate::http) fn project_name(&self) -> Result<&str> {
        project_name(self.directory.as_deref())
    }

    /// The project of the directory, if there is one.
    pub(in crate::http) async fn find_project(&self, gateway: &Gateway) -> Result<Option<Project>> {
        Ok(manage::find_by_directory(gateway, &self.principal, self.project_name()?).await?)
    }

    /// The directory with its project, if it has one.
    pub(in crate::http) async fn find_directory(
        &self,
        gateway: &Gateway,
    ) -> Result<Option<ProjectDirectory>> {
        Ok(manage::find_directory(gateway, &self.principal, self.project_name()?).await?)
    }

    /// The project of the directory, for a new session. An unknown directory becomes a new project without a repository.
    pub(in crate::http) async fn open_project(&self, gateway: &Gateway) -> Result<OpenedDirectory> {
        Ok(manage::open_directory(gateway, &self.principal, self.project_name()?).await?)
    }
}
