//! A look at the files: a snapshot, and what changed since an earlier one.

use crate::{
    process::{deps::Deps, sandbox::Identity},
    repository::snapshots::{self, FilesState, SnapshotMissing, SnapshotPair},
};
use domain::{
    conversation::{message::FileDiff, part::Patch},
    event::{Event, FileChange, FileEvent},
    session::WORKSPACE,
};
use std::time::Duration;

/// The files at one moment.
pub(in crate::turn) struct FilesLook {
    pub(super) state: FilesState,
    /// What changed since the snapshot before a step, if there is one.
    since: Option<ChangesSince>,
}

/// The changes since a snapshot.
struct ChangesSince {
    from: String,
    diffs: Result<Vec<FileDiff>, SnapshotMissing>,
}

/// The changed files of a step.
#[derive(Default)]
pub(super) struct StepChanges {
    pub(super) patch: Option<Patch>,
    /// For clients that watch the files.
    pub(super) event: Option<Event>,
}

impl FilesLook {
    /// Whether the sandbox did not compare the snapshots.
    pub(super) fn is_diff_missing(&self) -> bool {
        self.since.as_ref().is_some_and(|since| since.diffs.is_err())
    }

    /// What a step stores of the changes.
    pub(super) fn changes(&self) -> StepChanges {
        let Some(ChangesSince { from, diffs: Ok(diffs) }) = &self.since else {
            return StepChanges::default();
        };
        let changed: Vec<FileChange> = diffs.iter().filter_map(file_change).collect();
        if changed.is_empty() {
            return StepChanges::default();
        }
        let files = changed.iter().map(|change| change.file.clone()).collect();
        StepChanges {
            patch: Some(Patch { hash: from.clone(), files }),
            event: Some(Event::FilesChanged(changed)),
        }
    }
}

/// Takes a snapshot, and compares it with the snapshot `from`. `None`: the session has no files yet.
pub(super) async fn look(
    deps: &Deps,
    identity: &Identity,
    from: Option<String>,
    patience: Duration,
) -> Result<Option<FilesLook>, SnapshotMissing> {
    let Some(state) = snapshots::track(deps, identity, patience).await? else { return Ok(None) };
    let since = match from {
        Some(from) if from != state.snapshot => {
            let pair = SnapshotPair { from: &from, to: &state.snapshot };
            // Only the names of the files: their patches follow at the end of the turn.
            let diffs = snapshots::diff(deps, identity, pair, 1).await;
            Some(ChangesSince { from, diffs })
        }
        Some(_) | None => None,
    };
    Ok(Some(FilesLook { state, since }))
}

/// The change of a file, for clients that watch the files.
fn file_change(diff: &FileDiff) -> Option<FileChange> {
    let event = match diff.status.as_deref() {
        Some("added") => FileEvent::Add,
        Some("deleted") => FileEvent::Unlink,
        Some(_) | None => FileEvent::Change,
    };
    let file = diff.file.as_ref()?;
    Some(FileChange { file: format!("{WORKSPACE}/{file}"), event })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn clients_are_told_what_happened_to_a_file() {
        for (status, want) in [
            (Some("added"), FileEvent::Add),
            (Some("deleted"), FileEvent::Unlink),
            (Some("modified"), FileEvent::Change),
            (None, FileEvent::Change),
        ] {
            let diff = FileDiff {
                file: Some("a".to_owned()),
                status: status.map(ToOwned::to_owned),
                ..FileDiff::default()
            };
            let want = FileChange { file: format!("{WORKSPACE}/a"), event: want };
            assert_eq!(file_change(&diff), Some(want), "{status:?}");
        }
    }
}
