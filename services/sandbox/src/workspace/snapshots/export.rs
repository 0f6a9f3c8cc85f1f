//! The files of a snapshot as a git bundle that stands alone, for another workspace to start from.

use super::{INSIDE, Place, parse};
use crate::{
    error::Error,
    isolation::launch::Mount,
    session::Session,
    workspace::{
        changes::{self, Sender},
        helper::Task,
        scratch::Scratch,
    },
};
use domain::limits;
use std::{sync::Arc, time::Duration};

const SCRIPT: &str = concat!(include_str!("../git.sh"), include_str!("export.sh"));

/// Streams the files as they were in a snapshot, or as they are now if it is empty, as a commit on top of the base commit,
/// with its whole history.
///
/// # Errors
/// `workspace_missing`, `snapshot_unknown`, `base_commit_missing`, `bundle_too_large`, those of [`super::track`]; what was sent
/// before is to be thrown away.
pub async fn run(root: &Arc<Session>, snapshot: &str, to: &Sender) -> Result<(), Error> {
    let place = Place::of(root).await?;
    let snapshot = if snapshot.is_empty() {
        let _snapshots = root.snapshots.lock().await;
        place.track().await?.snapshot
    } else {
        parse(snapshot)?.to_owned()
    };
    let scratch = Scratch::make(root, place.uid())?;
    let task = Task {
        script: SCRIPT,
        arguments: vec![place.meta.base_commit.clone(), snapshot],
        mounts: vec![
            Mount::read(place.tree(), "/workspace"),
            Mount::read(place.snapshots(), INSIDE),
            Mount::write(scratch.path(), "/run/sbx/scratch"),
        ],
        ..Task::new(place.uid(), Duration::from_millis(limits::WORKSPACE_HELPER_MS))
    };
    let done = changes::stream(root, task, &place.meta, to).await;
    scratch.remove().await;
    done
}
