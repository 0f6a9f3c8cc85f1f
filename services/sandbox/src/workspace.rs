//! The workspace of a session: a git checkout that belongs to the session's user. All git runs in one-shot helper
//! sandboxes, because the files, and the configuration git finds among them, are the tenant's.

mod branch;
pub mod changes;
pub mod configuration;
pub mod helper;
pub mod open;
mod scratch;
pub mod snapshots;
pub mod source;

use crate::{code::Code, error::Error, layout, session::Session};
use serde::{Deserialize, Serialize};
use std::{io, path::Path, time::Duration};

/// The directory that becomes /workspace.
pub const TREE: &str = "tree";
/// What every caller is told about where the workspace is.
pub const DIRECTORY: &str = "/workspace";
const META: &str = "meta.json";
const REMOVE_SCRIPT: &str = "cd /workspace && chmod -R u+rwX . 2>/dev/null; find . -mindepth 1 -delete";

/// `meta.json`: what a workspace started from.
/// `{"base_commit":"9d3f…","origin":"https://example.com/r.git","base_is_ours":false,"slot":0}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// What changes are counted from.
    pub base_commit: String,
    /// The URL, or "bundle", or nothing.
    pub origin: String,
    /// Whether the base commit is the empty one that we made: nobody else has it.
    pub base_is_ours: bool,
    /// Which user id of the pool owns the files.
    pub slot: u32,
}

impl Meta {
    /// Reads it; `None` if there is no workspace. Blocks.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        match std::fs::read(directory.join(META)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads it; `None` if there is no workspace.
    ///
    /// # Errors
    /// Those of the file system.
    pub async fn find(directory: &Path) -> Result<Option<Self>, Error> {
        let directory = directory.to_owned();
        let read = tokio::task::spawn_blocking(move || Self::read(&directory)).await;
        read.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(Error::io("read the workspace's record"))
    }

    fn write(&self, directory: &Path) -> Result<(), Error> {
        let written = serde_json::to_vec(self).map_err(io::Error::other);
        let written = written.and_then(|bytes| layout::replace(&directory.join(META), &bytes));
        written.map_err(Error::io("write the workspace's record"))
    }
}

/// Ends every process of a session and deletes its own workspace and the output of its execs. Every sandbox that sees the
/// workspace ends with it, whichever session's it is. Deleting nothing is fine. The fence stays: it keeps a late worker
/// of the session out of a workspace that it shared.
///
/// # Errors
/// Those of the file system; what is left is deleted by the next call.
///
/// Dropped midway: partly deleted, and no longer a workspace; the next call goes on.
pub async fn close(session: &Session) -> Result<(), Error> {
    let shared = &session.shared;
    let directory = shared.layout.workspace(&session.key);
    let mut place = session.place.lock().await;
    Session::end_sandbox(&mut place).await;
    // Held to the end, so that nobody enters or makes it meanwhile.
    let mut files = session.files.lock().await;
    files.end_all().await;
    let _snapshots = session.snapshots.lock().await;
    let meta = session.find_workspace().await?;
    let tree = directory.join(TREE);
    if let Some(meta) = &meta
        && tree.is_dir()
    {
        // As the session's user: directories may be closed to us, or nested deeper than we could follow.
        let task = helper::Task {
            script: REMOVE_SCRIPT,
            mounts: vec![crate::isolation::launch::Mount::write(&tree, "/workspace")],
            ..helper::Task::new(
                shared.uid(meta.slot),
                Duration::from_millis(domain::limits::WORKSPACE_HELPER_MS),
            )
        };
        let output = shared.helpers.run(task, 0).await?;
        if output.code != 0 {
            tracing::warn!("a workspace was not emptied from inside: {}", output.stderr);
        }
    }
    remove(&directory).await?;
    remove(&shared.layout.execs(&session.key)).await?;
    if let Some(meta) = meta {
        shared.free(meta.slot);
    }
    drop((files, place));
    session.terminals.clear().await;
    Ok(())
}

async fn remove(directory: &Path) -> Result<(), Error> {
    match tokio::fs::remove_dir_all(directory).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io { doing: "remove the workspace", source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The last line of what git said, for a person; paths and URLs in it are the caller's own.
fn said(stderr: &str) -> String {
    let line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("git said nothing");
    line.chars().take(300).collect()
}

/// The error of a helper that ended with a code of its own.
fn refused(code: Code, text: &str, stderr: &str) -> Error {
    Error::refused(code, format!("{text}: {}", said(stderr)))
}
