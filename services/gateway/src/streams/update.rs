//! The updates that the feed of a tenant sends to its subscribers.

use super::{cursor::TenantCursor, event::Fragment, notices::EVERY_READER, open_parts::TextChange};
use bus::feed::Notice;
use bytes::Bytes;
use domain::{
    event::{FILES_CHANGED, StoredEvent},
    ids::{ProjectId, SessionId},
};
use std::sync::{Arc, OnceLock};
use store::{log::feed::FeedEntry, rows::session_row::Session, session::deletion::Tombstone};

/// Bytes of the content of an update whose frames its subscribers share. A feed keeps the frames with the update. A larger content is encoded for each
/// subscriber, in the room of its stream.
const SHARED_BYTES_MAX: usize = 4 * 1024;
/// About the bytes that a frame has in addition to the content: the ids and the directory.
const FRAME_BYTES: usize = 256;
/// Bytes of one session in the cursor of a frame.
const POSITION_BYTES: usize = 40;

#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) scope: UpdateScope,
    pub(crate) content: Content,
    /// The cursor for resuming after this update.
    pub(crate) cursor: Arc<TenantCursor>,
    frames: OnceLock<SharedFrames>,
}

/// The frames of an update in the form of the first subscriber that needs them: hundreds of subscribers send the same bytes. Those of another form
/// encode their own.
#[derive(Debug)]
struct SharedFrames {
    form: usize,
    frames: Vec<Bytes>,
}

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
    All,
    Project(ProjectId),
    /// Those of the sessions of a worktree, and those of its project that concern no session.
    Worktree(Directory),
    /// Those of a directory that has no project yet: its project will have this name.
    Directory(String),
}

impl Interest {
    /// All projects, or the given one.
    pub(crate) fn of(project: Option<ProjectId>) -> Self {
        project.map_or(Self::All, Self::Project)
    }

    /// Whether it includes the sessions of a directory.
    pub(crate) fn includes(&self, of: &Directory) -> bool {
        match self {
            Self::All => true,
            Self::Project(project) => of.project == *project,
            Self::Worktree(own) => of == own,
            Self::Directory(name) => of.name == *name,
        }
    }
}

impl Update {
    pub(crate) fn new(scope: UpdateScope, content: Content, cursor: Arc<TenantCursor>) -> Self {
        Self { scope, content, cursor, frames: OnceLock::new() }
    }

    /// The frames of a form, encoded by the first caller; `None`: the caller encodes its own, because the update is too large to be kept twice or has one
    /// frame for each file, or because the first caller has another form.
    pub(crate) fn frames(&self, form: usize, encode: impl FnOnce() -> Vec<Bytes>) -> Option<&[Bytes]> {
        if !self.is_shared() {
            return None;
        }
        let shared = self.frames.get_or_init(|| SharedFrames { form, frames: encode() });
        (shared.form == form).then_some(&shared.frames)
    }

    /// About the memory that the update takes, with the frames that its subscribers may share. Updates share their directories and cursors.
    pub(crate) fn bytes(&self) -> usize {
        let content = self.content_bytes();
        let cursor = self.cursor.sessions.len() * POSITION_BYTES;
        let frames = if self.is_shared() { content + cursor + FRAME_BYTES } else { 0 };
        size_of::<Self>() + content + frames
    }

    fn is_shared(&self) -> bool {
        let is_of_files =
            matches!(&self.content, Content::Event { event, .. } if event.kind == FILES_CHANGED);
        self.content_bytes() <= SHARED_BYTES_MAX && !is_of_files
    }

    fn content_bytes(&self) -> usize {
        match &self.content {
            Content::Event { event, .. } => event.properties.len(),
            Content::Fragment { fragment, .. } => fragment.bytes(),
            Content::Notice(notice) => notice.properties.get().len(),
        }
    }

    /// Whether a subscriber gets the update. `reader` is the name of its key.
    pub(crate) fn concerns(&self, reader: &str, interest: &Interest) -> bool {
        let addressee = match &self.content {
            Content::Notice(notice) => notice.reader.as_str(),
            Content::Event { .. } | Content::Fragment { .. } => EVERY_READER,
        };
        (addressee == EVERY_READER || addressee == reader) && self.scope.concerns(interest)
    }
}

#[derive(Debug)]
pub(crate) enum UpdateScope {
    Session(SessionId, Arc<Directory>),
    /// A project: for all of its clients.
    Project(Arc<Directory>),
    /// One directory of a project: for the clients that name it, and for those of the whole project.
    ProjectDirectory(Arc<Directory>),
    /// A worktree, or a directory without a project: for the clients that name it.
    Directory(Arc<Directory>),
    /// The whole tenant.
    Tenant,
}

impl UpdateScope {
    /// Whether a subscriber with this interest gets what has this scope.
    fn concerns(&self, interest: &Interest) -> bool {
        match (interest, self) {
            (Interest::All, _) | (_, Self::Tenant) => true,
            (Interest::Worktree(own), Self::Project(of)) => of.project == own.project,
            (Interest::Worktree(own), Self::ProjectDirectory(of) | Self::Directory(of)) => {
                of.name == own.name
            }
            (Interest::Project(_), Self::Directory(_)) => false,
            (
                Interest::Project(_) | Interest::Worktree(_) | Interest::Directory(_),
                Self::Session(_, of) | Self::Project(of) | Self::ProjectDirectory(of) | Self::Directory(of),
            ) => interest.includes(of),
        }
    }

    pub(crate) fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session(session, _) => Some(session),
            Self::Project(_) | Self::ProjectDirectory(_) | Self::Directory(_) | Self::Tenant => None,
        }
    }

    pub(crate) fn directory(&self) -> Option<&Directory> {
        match self {
            Self::Session(_, directory)
            | Self::Project(directory)
            | Self::ProjectDirectory(directory)
            | Self::Directory(directory) => Some(directory),
            Self::Tenant => None,
        }
    }
}

/// A directory of a project, with the name by which OpenCode's clients know it: that of the project, or of one of its worktrees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) project: ProjectId,
    pub(crate) name: String,
}

impl From<&Session> for Directory {
    fn from(session: &Session) -> Self {
        Self { project: session.info.project_id.clone(), name: session.directory.clone() }
    }
}

impl From<&FeedEntry> for Directory {
    fn from(entry: &FeedEntry) -> Self {
        Self { project: entry.project.clone(), name: entry.directory.clone() }
    }
}

impl From<&Tombstone> for Directory {
    fn from(tombstone: &Tombstone) -> Self {
        Self { project: tombstone.project.clone(), name: tombstone.directory.clone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::value::RawValue;

    fn notice(bytes: usize) -> Update {
        let properties = RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap();
        let (kind, reader) = ("tui.toast.show".to_owned(), EVERY_READER.to_owned());
        let notice = Notice { id: "evt_1".to_owned(), kind, properties, directory: String::new(), reader };
        Update::new(UpdateScope::Tenant, Content::Notice(notice), Arc::default())
    }

    #[test]
    fn frames_are_encoded_once_for_each_form_and_not_kept_for_large_updates() {
        let update = notice(10);
        let first = update.frames(0, || vec![Bytes::from_static(b"a")]).unwrap().to_vec();
        let again = update.frames(0, || panic!("it is encoded twice")).unwrap();
        assert_eq!(first, again);
        assert_eq!(update.frames(1, || panic!("another form is kept")), None);
        assert!(update.bytes() > FRAME_BYTES, "the feed counts what its subscribers may share");
        let large = notice(SHARED_BYTES_MAX);
        assert_eq!(large.frames(0, || panic!("it is encoded")), None);
        assert!(large.bytes() < SHARED_BYTES_MAX + FRAME_BYTES);
    }

    #[test]
    fn clients_in_a_worktree_get_what_concerns_it_and_nothing_of_its_siblings() {
        let project: ProjectId = format!("prj_{}", "1".repeat(26)).parse().unwrap();
        let of = |name: &str| Directory { project: project.clone(), name: name.to_owned() };
        let [all, app, fix] =
            [Interest::All, Interest::Project(project.clone()), Interest::Worktree(of("app.worktrees/fix"))];
        let session: SessionId = "ses_1".parse().unwrap();
        for (scope, name, want) in [
            ("session", "app", [true, true, false]),
            ("session", "app.worktrees/fix", [true, true, true]),
            ("session", "app.worktrees/other", [true, true, false]),
            ("project", "app", [true, true, true]),
            ("project directory", "app", [true, true, false]),
            ("project directory", "app.worktrees/fix", [true, true, true]),
            ("project directory", "app.worktrees/other", [true, true, false]),
            ("directory", "app.worktrees/fix", [true, false, true]),
        ] {
            let directory = Arc::new(of(name));
            let update = match scope {
                "session" => UpdateScope::Session(session.clone(), directory),
                "project" => UpdateScope::Project(directory),
                "project directory" => UpdateScope::ProjectDirectory(directory),
                _ => UpdateScope::Directory(directory),
            };
            assert_eq!([&all, &app, &fix].map(|it| update.concerns(it)), want, "{scope} {name}");
        }
    }
}
