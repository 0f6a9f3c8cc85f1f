//! What a client of a stream sees, and in which form.

use super::{frame::FrameScope, legacy::Shapes};
use crate::{
    app::gateway::Gateway,
    http::{callers::caller::Caller, refusal::Result},
    streams::update::{Directory, Interest},
};
use store::tenant::worktrees::SessionArea;

/// A client's view of the tenant's events.
pub(super) struct View {
    pub(super) interest: Interest,
    /// The directory that the client names; `None`: it names none, or one that has no project yet.
    pub(super) directory: Option<ClientDirectory>,
    pub(super) form: StreamForm,
}

pub(super) struct ClientDirectory {
    /// The directory, under the name that the client uses.
    pub(super) own: Directory,
    pub(super) area: SessionArea,
}

impl View {
    pub(super) async fn of_directory(gateway: &Gateway, caller: &Caller, form: StreamForm) -> Result<Self> {
        let name = caller.directory(gateway).await?.to_owned();
        Ok(match caller.find_directory(gateway).await? {
            Some(found) => {
                let (interest, area) = (found.interest(), found.area());
                let own = Directory { project: area.project.clone(), name };
                Self { interest, directory: Some(ClientDirectory { own, area }), form }
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

    /// The number of the form in which the client gets what has this scope, if other clients get the same bytes.
    pub(super) fn shared_form(&self, scope: FrameScope<'_>) -> Option<usize> {
        let names_directory = self.form.wrapping != Wrapping::Bare;
        let is_renamed = matches!((scope, &self.directory), (FrameScope::Directory(of), Some(client)) if *of != client.own);
        let form = match self.form.wrapping {
            Wrapping::Bare => 0,
            Wrapping::WithDirectory => 1,
            Wrapping::Native => 2,
        };
        (self.form.shapes == Shapes::Current && !(names_directory && is_renamed)).then_some(form)
    }

    /// The scope of a frame, under the name that the client uses. OpenCode's TUI drops frames of any other directory, and the directory of a project
    /// shows the sessions of its worktrees too.
    pub(super) fn scope<'a>(&'a self, scope: FrameScope<'a>) -> FrameScope<'a> {
        match (scope, &self.directory) {
            (FrameScope::Directory(_), Some(client)) => FrameScope::Directory(&client.own),
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
