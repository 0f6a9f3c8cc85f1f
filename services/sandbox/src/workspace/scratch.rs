//! A directory for one helper, outside the tree.

use crate::{error::Error, isolation::launch::give_to, layout, session::state::Session};
use chassis::tasks::Tasks;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Attempts to remove the directory of a helper that is being killed and may still write.
const REMOVE_TRIES: u32 = 100;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// Removed by [`Scratch::remove`], and by a task when it is dropped; after a crash, the next start of the service removes it.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    /// `None` once it is removed.
    tasks: Option<Tasks>,
}

impl Scratch {
    /// Makes one that belongs to the user `uid`.
    pub(super) fn make(session: &Session, uid: u32) -> Result<Self, Error> {
        let parent = session.shared.layout.root().join("scratch");
        let path = parent.join(uuid::Uuid::now_v7().simple().to_string());
        let scratch = Self { path, tasks: Some(session.shared.tasks.clone()) };
        layout::make_passage(&parent)
            .and_then(|()| std::fs::create_dir(&scratch.path))
            .and_then(|()| give_to(session.shared.launcher.facts(), uid, &scratch.path))
            .map_err(Error::io("make a scratch directory"))?;
        Ok(scratch)
    }

    /// Where it is on this machine.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves it to a place where it stays.
    pub(super) fn move_to(mut self, place: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, place)?;
        self.tasks = None;
        Ok(())
    }

    /// Removes it with its content.
    pub(super) async fn remove(mut self) {
        remove(&self.path).await;
        self.tasks = None;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(tasks) = self.tasks.take() {
            let path = std::mem::take(&mut self.path);
            tasks.spawn("scratch", async move { remove(&path).await });
        }
    }
}

async fn remove(path: &Path) {
    for _ in 0..REMOVE_TRIES {
        match tokio::fs::remove_dir_all(path).await {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => tokio::time::sleep(REMOVE_PAUSE).await,
        }
    }
    tracing::warn!("a scratch directory stays until the next start: {}", path.display());
}
