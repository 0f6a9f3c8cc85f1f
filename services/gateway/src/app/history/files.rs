//! The files of a held session, in the sandbox.

use super::point::FilesOfSnapshot;
use crate::backends::files::Files as Sandbox;
use domain::limits;
use rpc::v1;
use store::session::reverts::Hold;
use tonic::Status;

/// The files that a hold covers.
pub(super) struct Files {
    sandbox: Sandbox,
    fence: v1::Fence,
}

/// The difference between two states.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) files: Vec<domain::conversation::message::FileDiff>,
    pub(super) state: String,
}

impl Files {
    pub(super) fn new(sandbox: Sandbox, hold: &Hold) -> Self {
        let fence = v1::Fence {
            tenant_id: hold.tenant.to_string(),
            session_id: hold.session.to_string(),
            epoch: hold.epoch,
            workspace_session_id: hold.workspace.to_string(),
            workspace_opening: Some(hold.workspace_opening),
        };
        Self { sandbox, fence }
    }

    fn fence(&self) -> Option<v1::Fence> {
        Some(self.fence.clone())
    }

    pub(super) async fn track(&self) -> Result<String, Status> {
        let request = v1::TrackSnapshotRequest { fence: self.fence() };
        Ok(self.sandbox.track_snapshot(request).await?.snapshot)
    }

    pub(super) async fn restore(&self, snapshot: &str) -> Result<(), Status> {
        let request = v1::RestoreSnapshotRequest { fence: self.fence(), snapshot: snapshot.to_owned() };
        self.sandbox.restore_snapshot(request).await.map(drop)
    }

    /// Restores single files. If a file is named more than once, the first entry counts.
    pub(super) async fn revert(&self, files: Vec<FilesOfSnapshot>) -> Result<(), Status> {
        for files in batches(files) {
            let files = files.into_iter().map(Into::into).collect();
            let request = v1::RevertFilesRequest { fence: self.fence(), files };
            self.sandbox.revert_files(request).await?;
        }
        Ok(())
    }

    /// Compares two states; an empty name means the current files.
    pub(super) async fn diff(&self, from: &str, to: &str) -> Result<Difference, Status> {
        let request = v1::DiffSnapshotsRequest {
            fence: self.fence(),
            from_snapshot: from.to_owned(),
            to_snapshot: to.to_owned(),
            bytes_max: limits::SUMMARY_DIFF_BYTES_MAX,
        };
        let diff = self.sandbox.diff_snapshots(request).await?;
        Ok(Difference { files: diff.files.into_iter().map(Into::into).collect(), state: diff.to_snapshot })
    }
}

/// The files of each call to the sandbox: every file once, in the state before its oldest change.
fn batches(files: Vec<FilesOfSnapshot>) -> Vec<Vec<FilesOfSnapshot>> {
    let mut seen = std::collections::HashSet::new();
    let (mut calls, mut count) = (vec![vec![]], 0);
    for FilesOfSnapshot { snapshot, paths } in files {
        let paths: Vec<String> = paths.into_iter().filter(|path| seen.insert(path.clone())).collect();
        for paths in paths.chunks(limits::SNAPSHOT_FILES_MAX) {
            if count + paths.len() > limits::SNAPSHOT_FILES_MAX {
                calls.push(vec![]);
                count = 0;
            }
            count += paths.len();
            let files = FilesOfSnapshot { snapshot: snapshot.clone(), paths: paths.to_vec() };
            calls.last_mut().into_iter().for_each(|call| call.push(files.clone()));
        }
    }
    calls.retain(|call| !call.is_empty());
    calls
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn files(snapshot: &str, paths: &[&str]) -> FilesOfSnapshot {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        FilesOfSnapshot { snapshot: snapshot.to_owned(), paths }
    }

    #[test]
    fn a_file_is_restored_from_its_oldest_state() {
        let calls = batches(vec![files("1", &["a", "b"]), files("2", &["b"]), files("3", &["c", "a"])]);
        assert_eq!(calls, [[files("1", &["a", "b"]), files("3", &["c"])]]);
        assert!(batches(vec![]).is_empty());
    }

    #[test]
    fn no_batch_exceeds_the_sandbox_limit() {
        let most = limits::SNAPSHOT_FILES_MAX;
        let many: Vec<String> = (0..2 * most + 1).map(|number| format!("f{number}")).collect();
        let all = FilesOfSnapshot { snapshot: "1".to_owned(), paths: many };
        let calls = batches(vec![files("0", &["first"]), all]);
        let counts: Vec<usize> =
            calls.iter().map(|call| call.iter().map(|files| files.paths.len()).sum()).collect();
        assert_eq!(counts, [1, most, most, 1]);
    }
}
