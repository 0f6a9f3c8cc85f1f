//! A directory for one helper, outside the tree.

use crate::{error::Error, isolation::launch::give_to, layout, session::state::Session};
use std::path::{Path, PathBuf};

/// Removed by [`Scratch::remove`]; after a crash, the next start of the service removes it.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one that belongs to the user `uid`.
    pub(super) fn make(session: &Session, uid: u32) -> Result<Self, Error> {
        let parent = session.shared.layout.root().join("scratch");
        let path = parent.join(uuid::Uuid::now_v7().simple().to_string());
        layout::make_passage(&parent)
            .and_then(|()| std::fs::create_dir(&path))
            .and_then(|()| give_to(session.shared.launcher.facts(), uid, &path))
            .map_err(Error::io("make a scratch directory"))?;
        Ok(Self(path))
    }

    /// Where it is on this machine.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it with its content.
    pub(super) async fn remove(self) {
        if let Err(error) = tokio::fs::remove_dir_all(&self.0).await {
            tracing::warn!("a scratch directory stays: {error}");
        }
    }
}
