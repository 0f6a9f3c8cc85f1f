//! The source of a session, as the sandbox opens it.

use crate::v1;
use domain::{
    session::{Origin, Source},
    text::is_sha256,
};

impl From<&Source> for v1::WorkspaceHeader {
    /// Names the source, with the session whose files it is a copy of and what is installed there, and nothing else.
    fn from(source: &Source) -> Self {
        let (git_url, bundle) = match &source.origin {
            Origin::Empty => (String::new(), None),
            Origin::GitUrl(url) => (url.clone(), None),
            Origin::Bundle(id) => (String::new(), Some(id)),
        };
        Self {
            git_url,
            bundle: bundle.is_some(),
            revision: source.revision.clone().unwrap_or_default(),
            branch: source.branch.clone().unwrap_or_default(),
            uncommitted: source.uncommitted,
            // Forks of earlier versions have bundles with other names.
            bundle_sha256: bundle.filter(|id| is_sha256(id)).cloned().unwrap_or_default(),
            lfs_session_id: source.lfs.as_ref().map(|lfs| lfs.workspace.to_string()).unwrap_or_default(),
            install_key: source.install.clone().unwrap_or_default(),
            ..Self::default()
        }
    }
}

impl v1::WorkspaceHeader {
    /// Whether the files are a copy of those of a session, whose agent may have written anything in them.
    pub fn is_copy(&self) -> bool {
        self.uncommitted || !self.lfs_session_id.is_empty()
    }
}
