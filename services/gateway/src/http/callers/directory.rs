//! Directories: to a client the location of its files, here the name of a project.

use super::caller::Caller;
use crate::{
    app::{
        gateway::Gateway,
        projects::manage::{self, OpenedDirectory, ProjectDirectory},
    },
    http::refusal::Result,
};
use axum::{
    http::{HeaderName, HeaderValue},
    response::AppendHeaders,
};
use store::tenant::projects::Project;

/// The header that tells what people should know about the answer.
const NOTE: HeaderName = HeaderName::from_static("x-flotilla-note");

/// The headers with a note.
pub(in crate::http) fn with_note(
    note: Option<&str>,
) -> Option<AppendHeaders<[(HeaderName, HeaderValue); 1]>> {
    let value = note.and_then(|note| HeaderValue::from_str(note).ok())?;
    Some(AppendHeaders([(NOTE, value)]))
}

impl Caller {
    /// The directory that the caller names, else [`manage::default_directory`].
    pub(in crate::http) async fn directory(&self, gateway: &Gateway) -> Result<&str> {
        match &self.directory {
            Some(directory) => {
                manage::check_directory(directory)?;
                Ok(directory)
            }
            None => {
                let find = || manage::default_directory(gateway, &self.principal);
                Ok(self.default_directory.get_or_try_init(find).await?)
            }
        }
    }

    /// The project of the directory, if there is one.
    pub(in crate::http) async fn find_project(&self, gateway: &Gateway) -> Result<Option<Project>> {
        Ok(manage::find_by_directory(gateway, &self.principal, self.directory(gateway).await?).await?)
    }

    /// The directory with its project, if it has one.
    pub(in crate::http) async fn find_directory(
        &self,
        gateway: &Gateway,
    ) -> Result<Option<ProjectDirectory>> {
        Ok(manage::find_directory(gateway, &self.principal, self.directory(gateway).await?).await?)
    }

    /// The project of the directory, for a new session. An unknown directory becomes a new project without a repository.
    pub(in crate::http) async fn open_project(&self, gateway: &Gateway) -> Result<OpenedDirectory> {
        Ok(manage::open_directory(gateway, &self.principal, self.directory(gateway).await?).await?)
    }
}
