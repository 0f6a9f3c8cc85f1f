//! What a client of a stream sees, and in which form.

use super::{frame::FrameScope, legacy::Shapes};
use crate::{
    app::ground::gateway::Gateway,
    http::ground::{caller::Caller, refusal::Result},
    streams::update::{Directory, Interest},
};
use store::tenant::projects::Project;

/// A client's view of the tenant's events.
pub(super) struct View {
    pub(super) interest: Interest,
    /// The project that the client is interested in, under the name that the client uses.
    pub(super) directory: Option<Directory>,
    pub(super) form: StreamForm,
}

impl View {
    /// The caller's directory.
    pub(super) async fn of_directory(gateway: &Gateway, caller: &Caller, form: StreamForm) -> Result<Self> {
        let name = caller.project_name()?.to_owned();
        Ok(match caller.find_project(gateway).await? {
            Some(Project { id: project, .. }) => {
                let interest = Interest::Project(project.clone());
                Self { interest, directory: Some(Directory { project, name }), form }
            }
            None => Self { interest: Interest::Directory(name), directory: None, form },
        })
    }

    /// The directory that the caller names, or all directories.
    pub(super) async fn of_caller(gateway: &Gateway, caller: &Caller, form: StreamForm) -> Result<Self> {
        match &caller.directory {
            Some(_) => Self::of_directory(gateway, caller, form).await,
            None => Ok(Self { interest: Interest::All, directory: None, form }),
        }
    }

    /// The scope of a frame, under the name that the client uses.
    pub(super) fn scope<'a>(&'a self, scope: FrameScope<'a>) -> FrameScope<'a> {
        match (scope, &self.directory) {
            (FrameScope::Directory(_), Some(own)) => FrameScope::Directory(own),
            _ => scope,
        }
    }
}

/// The form of the frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamForm {
    pub(super) wrapping: Wrapping,
    pub(super) shapes: Shapes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapping {
    /// Frames are events.
    Bare,
    /// Frames name the directory of their event.
    WithDirectory,
    /// Frames are events of the newer API.
    Native,
}
