//! The files of a snapshot as a git bundle that stands alone, for another workspace to start from.

use super::store::SnapshotStore;
use crate::{
    error::Error,
    helper::Task,
    isolation::launch::Mount,
    session::state::Session,
    tree::track::{INSIDE, parse},
    workspace::{
        branch,
        changes::{self, Sender},
        scratch::Scratch,
    },
};
use domain::limits;
use std::{sync::Arc, time::Duration};

const SCRIPT: &str = concat!(include_str!("../../helper/git.sh"), include_str!("export.sh"));

/// Streams the files as they were in a snapshot, or as they are now if it is empty, as a commit on top of the base commit,
/// with its whole history, on the branch that is checked out now.
///
/// # Errors
/// `workspace_missing`, `snapshot_unknown`, `base_commit_missing`, `bundle_too_large`, those of
/// [`super::operations::track`]; the caller must discard what was sent before.
pub async fn run(root: &Arc<Session>, snapshot: &str, to: &Sender) -> Result<(), Error> {
    let store = SnapshotStore::of(root).await?;
    let snapshot = if snapshot.is_empty() {
        let mut known = root.snapshots.lock().await;
        store.track(&mut known).await?.snapshot
    } else {
        parse(snapshot)?.to_owned()
    };
    let branch = branch::find(store.tree()).await.unwrap_or_default();
    let scratch = Scratch::make(root, store.uid())?;
    let task = Task {
        script: SCRIPT,
        arguments: vec![store.meta.base_commit.clone(), snapshot, branch],
        mounts: vec![
            Mount::read(store.tree(), "/workspace"),
            Mount::read(store.snapshots(), INSIDE),
            Mount::write(scratch.path(), "/run/sbx/scratch"),
        ],
        ..Task::new(root.key.tenant, store.uid(), Duration::from_millis(limits::WORKSPACE_HELPER_MS))
    };
    let result = changes::stream(root, task, &store.meta, to).await;
    scratch.remove().await;
    result
}
