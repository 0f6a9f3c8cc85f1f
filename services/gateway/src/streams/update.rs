//! The updates that the feed of a tenant sends to its subscribers.

use super::{cursor::TenantCursor, event::Fragment, open_parts::TextChange};
use bus::feed::Notice;
use domain::{
    event::StoredEvent,
    ids::{ProjectId, SessionId},
};
use std::sync::Arc;
use store::tenant::projects::Project;

/// One update.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) scope: UpdateScope,
    pub(crate) content: Content,
    /// The cursor for resuming after this update.
    pub(crate) cursor: Arc<TenantCursor>,
}

/// The content of the update.
#[derive(Debug)]
pub(crate) enum Content {
    Event {
        event: StoredEvent,
        /// What the event does to streamed text.
        text: Option<TextChange>,
    },
    Fragment {
        fragment: Fragment,
        /// Position of the session's last event before the fragment.
        after: u64,
    },
    /// A live-only item: only clients that are subscribed now receive it.
    Notice(Notice),
}

/// The updates that a subscriber wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Those of all projects.
    All,
    Project(ProjectId),
    /// Those of a directory that has no project yet: its project will have this name.
    Directory(String),
}

impl Interest {
    /// All projects, or the given one.
    pub(crate) fn of(project: Option<ProjectId>) -> Self {
        project.map_or(Self::All, Self::Project)
    }
}

impl Update {
    /// About the memory that the update takes. Updates share their directories and cursors.
    pub(crate) fn bytes(&self) -> usize {
        let content = match &self.content {
            Content::Event { event, .. } => event.properties.len(),
            Content::Fragment { fragment, .. } => fragment.bytes(),
            Content::Notice(notice) => notice.properties.get().len(),
        };
        size_of::<Self>() + content
    }

    /// Whether a subscriber gets the update. `reader` is the name of its key.
    pub(crate) fn concerns(&self, reader: &str, interest: &Interest) -> bool {
        let is_addressed = match &self.content {
            Content::Notice(notice) => notice.reader.is_empty() || notice.reader == reader,
            Content::Event { .. } | Content::Fragment { .. } => true,
        };
        let is_wanted = match (interest, &self.scope) {
            (Interest::All, _) | (_, UpdateScope::Tenant) => true,
            (Interest::Project(project), UpdateScope::Session(_, of) | UpdateScope::Project(of)) => {
                of.project == *project
            }
            (Interest::Directory(name), UpdateScope::Session(_, of) | UpdateScope::Project(of)) => {
                of.name == *name
            }
            (Interest::Directory(name), UpdateScope::Directory(of)) => of.name == *name,
            (Interest::Project(_), UpdateScope::Directory(_)) => false,
        };
        is_addressed && is_wanted
    }
}

/// The scope of an update.
#[derive(Debug)]
pub(crate) enum UpdateScope {
    Session(SessionId, Arc<Directory>),
    Project(Arc<Directory>),
    /// A directory without a project.
    Directory(Arc<Directory>),
    /// The whole tenant.
    Tenant,
}

impl UpdateScope {
    pub(crate) fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session(session, _) => Some(session),
            Self::Project(_) | Self::Directory(_) | Self::Tenant => None,
        }
    }

    pub(crate) fn directory(&self) -> Option<&Directory> {
        match self {
            Self::Session(_, directory) | Self::Project(directory) | Self::Directory(directory) => {
                Some(directory)
            }
            Self::Tenant => None,
        }
    }
}

/// A project, with the name by which OpenCode's clients know it: a directory.
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
