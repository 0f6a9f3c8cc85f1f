//! Applies a patch from outside. Like a person at a terminal, the caller needs no epoch: the agent sees the changed
//! files.

use super::store::SnapshotStore;
use crate::{
    disk::workspace::Purpose,
    error::Error,
    helper::{Output, Task, refused},
    isolation::launch::{Mount, give_to},
    session::state::Session,
    tree::known::KnownSnapshot,
    workspace::scratch::Scratch,
};
use domain::limits;
use rpc::v1::ErrorCode;
use std::{sync::Arc, time::Duration};

const SCRIPT: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/bound.sh"),
    include_str!("apply.sh")
);
/// A patch takes milliseconds. A patch that is crafted to take minutes must not delay the clones of other sessions.
const LONGEST: Duration = Duration::from_secs(30);

/// Applies a patch to the files. A patch that does not apply as a whole changes nothing. If git cannot write every
/// file, the files that it removed are restored, unless the service stops in that moment.
///
/// # Errors
/// `workspace_missing`; `patch_refused` when the text is not a patch or the patch does not fit the files; `file_not_permitted`, `disk_full`, `limit_disk`;
/// `snapshots_full`; `argument_invalid` when it is too long; `sandbox_unavailable` when it takes too long.
pub async fn run(root: &Arc<Session>, patch: &[u8]) -> Result<(), Error> {
    if patch.len() > limits::DIFF_BYTES_MAX {
        let text = format!("the patch is too large; the limit is {} bytes", limits::DIFF_BYTES_MAX);
        return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
    }
    root.disk.admit(Purpose::Write).await?;
    let mut known = root.snapshots.lock().await;
    let store = SnapshotStore::of(root).await?;
    let before = store.track(&mut known).await?.snapshot;
    known.forget();
    let ended = store.apply(patch).await;
    let error = match ended {
        Ok(Output { code: 0, .. }) => return Ok(()),
        Ok(Output { code: 20, stderr, .. }) => {
            return Err(refused(ErrorCode::PatchRefused, "the patch does not fit the files", &stderr));
        }
        Ok(Output { code: 21, stderr, .. }) => {
            refused(ErrorCode::FileNotPermitted, "not every file of the patch can be written", &stderr)
        }
        Ok(Output { code: 18 | 137, .. }) => {
            Error::refused(ErrorCode::DiskFull, "the patch exceeds the disk or memory limit of a workspace")
        }
        Ok(output) => refused(ErrorCode::Internal, "the patch could not be applied", &output.stderr),
        Err(error) => error,
    };
    // Git removes all files before it writes the first one. The restore cannot write a file that git could not write
    // either.
    if let Err(left) = store.take_back(&mut known, &before).await {
        tracing::debug!(
            error.code = left.code().as_str(),
            "a file could not be restored after a patch: {left}"
        );
    }
    Err(error)
}

impl SnapshotStore<'_> {
    /// Restores the files of a snapshot, and removes those that the snapshot does not contain.
    async fn take_back(&self, known: &mut KnownSnapshot, snapshot: &str) -> Result<(), Error> {
        // Git removes only files that it tracks.
        let current = self.track(known).await?.snapshot;
        self.restore(known, snapshot, &current).await
    }

    async fn apply(&self, patch: &[u8]) -> Result<Output, Error> {
        let shared = &self.root.shared;
        let scratch = Scratch::make(self.root, self.uid())?;
        let file = scratch.path().join("patch");
        let written =
            std::fs::write(&file, patch).and_then(|()| give_to(shared.launcher.facts(), self.uid(), &file));
        let result = match written.map_err(Error::io("write the patch")) {
            Ok(()) => {
                let task = Task {
                    script: SCRIPT,
                    arguments: vec![(shared.config.disk_bytes >> 10).to_string()],
                    mounts: vec![
                        Mount::write(self.tree(), "/workspace"),
                        Mount::read(scratch.path(), "/run/sbx/scratch"),
                    ],
                    ..Task::new(self.root.key.tenant, self.uid(), LONGEST)
                };
                // It prints nothing; the read only bounds the wait.
                shared.helpers.run(task, 1).await
            }
            Err(error) => Err(error),
        };
        scratch.remove().await;
        result
    }
}
