//! What a caller asks to open.

use super::clone::GitClone;
use crate::{
    error::Error,
    image::manifest::Manifest,
    session::{draft::DraftKey, state::Session},
    tree::source::{self, LfsOrigins, Source},
    workspace::install::key::Install,
};
use domain::{ids::ProjectId, session::environment::SandboxOptions};
use rpc::v1::ErrorCode;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// The workspace that a caller asks for.
#[derive(Debug)]
pub struct OpenSpec {
    /// What the workspace starts from; `None`: no files.
    pub source: Option<Source>,
    /// Where the objects of Git LFS come from.
    pub lfs: LfsOrigins,
    /// Names the source, its revision and the opening.
    pub key: DraftKey,
    /// What its sandboxes see at `/`.
    pub image: Manifest,
    /// The variables of the image.
    pub env: Vec<String>,
    /// What it gets in addition to the files of its source.
    pub install: Option<Install>,
    /// The script that runs at each start of a sandbox; empty: none.
    pub start: String,
    /// What the programs of its sandboxes may also do.
    pub options: SandboxOptions,
    /// The project whose mirror of the repository it may use; `None`: no mirror.
    pub project: Option<ProjectId>,
    /// The commit that the caller saw; empty: it saw none.
    pub base_commit: String,
}

impl OpenSpec {
    /// The clone of its source into a directory of a user.
    pub(super) fn clone_of<'a>(
        &'a self,
        source: &'a Source,
        session: &'a Session,
        build: &'a Path,
        uid: u32,
    ) -> GitClone<'a> {
        let Self { key: DraftKey { revision, branch, uncommitted, has_door, .. }, lfs, project, .. } = self;
        let (uncommitted, has_door, project) = (*uncommitted, *has_door, project.as_ref());
        GitClone { session, source, lfs, revision, branch, uncommitted, has_door, project, build, uid }
    }

    /// Checks the names of its revision and its branch.
    ///
    /// # Errors
    /// `revision_not_found`: no such name can exist.
    pub(super) fn check_names(&self) -> Result<(), Error> {
        source::check_revision(&self.key.revision)?;
        source::check_revision(&self.key.branch)
    }

    /// Clones its source into a directory of the user `uid`, for an install.
    ///
    /// # Errors
    /// Those of a clone; `argument_invalid` without a source.
    ///
    /// It ends early when the caller has `left`.
    pub(in crate::workspace) async fn clone_into(
        &self,
        session: &Session,
        build: &Path,
        uid: u32,
        left: &CancellationToken,
    ) -> Result<(), Error> {
        self.check_names()?;
        let missing =
            || Error::refused(ErrorCode::ArgumentInvalid, "an install needs the files of a repository");
        let source = self.source.as_ref().ok_or_else(missing)?;
        self.clone_of(source, session, build, uid).run(left).await.map(drop)
    }
}
