//! A patch that somebody else made. As a person at a terminal, it needs no right of a loop's: the agent sees what is there.

use super::store::{RESTORE, SnapshotStore};
use crate::{
    code::Code,
    error::Error,
    isolation::launch::{Mount, give_to},
    session::state::Session,
    workspace::{
        helper::{Output, Task, refused},
        scratch::Scratch,
    },
};
use domain::limits;
use std::{sync::Arc, time::Duration};

const SCRIPT: &str =
    concat!(include_str!("../git.sh"), include_str!("../bound.sh"), include_str!("apply.sh"));
/// A patch takes milliseconds; one that is made to take minutes must not hold up the clones of others.
const LONGEST: Duration = Duration::from_secs(30);

/// Applies a patch to the files. What does not fit as a whole changes nothing; where git cannot write every file, those that it
/// took away are brought back, unless the service ends just then.
///
/// # Errors
/// `workspace_missing`; `patch_refused` when it is none or does not fit the files; `file_not_permitted`, `disk_full`;
/// `snapshots_full`; `argument_invalid` when it is too long; `sandbox_unavailable` when it takes too long.
pub async fn run(root: &Arc<Session>, patch: &[u8]) -> Result<(), Error> {
    if patch.len() > limits::DIFF_BYTES_MAX {
        let text = format!("a patch has at most {} bytes", limits::DIFF_BYTES_MAX);
        return Err(Error::refused(Code::ArgumentInvalid, text));
    }
    let _snapshots = root.snapshots.lock().await;
    let store = SnapshotStore::of(root).await?;
    let before = store.track().await?.snapshot;
    let ended = store.apply(patch).await;
    let error = match ended {
        Ok(Output { code: 0, .. }) => return Ok(()),
        Ok(Output { code: 20, stderr, .. }) => {
            return Err(refused(Code::PatchRefused, "the patch does not fit the files", &stderr));
        }
        Ok(Output { code: 21, stderr, .. }) => {
            refused(Code::FileNotPermitted, "not every file of the patch can be written", &stderr)
        }
        Ok(Output { code: 18 | 137, .. }) => {
            Error::refused(Code::DiskFull, "the patch needs more disk or memory than a workspace has")
        }
        Ok(output) => refused(Code::Internal, "the patch could not be applied", &output.stderr),
        Err(error) => error,
    };
    // Git takes all files away before it writes the first. What it could not write it cannot bring back either.
    if let Err(left) = store.back_to(before).await {
        tracing::debug!(error.code = left.code().name(), "a file is not brought back after a patch: {left}");
    }
    Err(error)
}

impl SnapshotStore<'_> {
    /// Makes the files what they were in a snapshot, those that were not there gone.
    async fn back_to(&self, snapshot: String) -> Result<(), Error> {
        // A file is removed only where it is known.
        self.track().await?;
        self.write_files(RESTORE, vec![snapshot], None).await
    }

    async fn apply(&self, patch: &[u8]) -> Result<Output, Error> {
        let shared = &self.root.shared;
        let scratch = Scratch::make(self.root, self.uid())?;
        let file = scratch.path().join("patch");
        let written =
            std::fs::write(&file, patch).and_then(|()| give_to(shared.launcher.facts(), self.uid(), &file));
        let done = match written.map_err(Error::io("write the patch")) {
            Ok(()) => {
                let task = Task {
                    script: SCRIPT,
                    arguments: vec![(shared.config.disk_bytes >> 10).to_string()],
                    mounts: vec![
                        Mount::write(self.tree(), "/workspace"),
                        Mount::read(scratch.path(), "/run/sbx/scratch"),
                    ],
                    ..Task::new(self.uid(), LONGEST)
                };
                // It prints nothing; whoever reads that waits no longer than it may take.
                shared.helpers.run(task, 1).await
            }
            Err(error) => Err(error),
        };
        scratch.remove().await;
        done
    }
}
