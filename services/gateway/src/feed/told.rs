//! What the subscribers of a tenant are told.

use bus::feed::Notice;
use domain::{
    event::StoredEvent,
    ids::{ProjectId, SessionId},
};
use rpc::v1;
use std::sync::Arc;
use store::{log::feed::Horizon, tenant::projects::Project};

/// What happened.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) place: Place,
    pub(crate) what: What,
    /// Where to resume after this.
    pub(crate) horizon: Horizon,
}

impl Told {
    /// Whether somebody is told of it who follows a project, or all of them, with a key of this name.
    pub(crate) fn is_for(&self, reader: &str, project: Option<&ProjectId>) -> bool {
        let is_meant = match &self.what {
            What::Notice(notice) => notice.reader.is_empty() || notice.reader == reader,
            What::Event(_) | What::Delta(_) => true,
        };
        let followed = project.zip(self.place.directory());
        is_meant && followed.is_none_or(|(project, directory)| &directory.project == project)
    }
}

/// Where something happened.
#[derive(Debug)]
pub(crate) enum Place {
    Session(SessionId, Arc<Directory>),
    Project(Arc<Directory>),
    /// Everywhere in the tenant.
    Tenant,
}

impl Place {
    pub(crate) fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session(session, _) => Some(session),
            Self::Project(_) | Self::Tenant => None,
        }
    }

    pub(crate) fn directory(&self) -> Option<&Directory> {
        match self {
            Self::Session(_, directory) | Self::Project(directory) => Some(directory),
            Self::Tenant => None,
        }
    }
}

/// Where a session is, as clients of OpenCode see it: its project, which they know by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) project: ProjectId,
    pub(crate) name: String,
}

impl From<Project> for Directory {
    fn from(project: Project) -> Self {
        Self { project: project.id, name: project.name }
    }
}

/// An event, a fragment, or neither.
#[derive(Debug)]
pub(crate) enum What {
    Event(StoredEvent),
    Delta(v1::Delta),
    /// Something that stands in no log.
    Notice(Notice),
}
