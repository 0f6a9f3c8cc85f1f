//! A look at the files: a snapshot, and what changed since an earlier one.

use crate::{
    conversation::changes,
    process::{deps::Deps, sandbox::Identity, store_timeout::with_store_timeout},
    repository::snapshots::{self, FilesState, SnapshotMissing, SnapshotPair},
    turn::session::Session,
};
use domain::{
    conversation::{message::FileDiff, part::Patch},
    event::{Event, FileChange, FileEvent},
    session::WORKSPACE,
};
use std::time::Duration;

/// Bytes of the patches in the event after a step: every step that changes files stores one. Further files have only their line counts, and the event at
/// the end of the turn has more.
const STEP_DIFF_BYTES_MAX: u32 = 16 * 1024;

/// The files at one moment.
pub(in crate::turn) struct FilesLook {
    pub(super) state: FilesState,
    /// What changed since the snapshot before a step, if there is one.
    since: Option<ChangesSince>,
    /// What the session has changed so far, if the step changed something.
    of_session: Option<Vec<FileDiff>>,
}

/// The snapshots to compare the files with.
#[derive(Debug, Clone)]
pub(super) struct EarlierSnapshots {
    /// The one before the step.
    step: Option<String>,
    /// The first one of the session; `None`: the conversation in memory does not have it.
    session: Option<String>,
}

impl EarlierSnapshots {
    /// The snapshot before a step, and the first one of its session.
    pub(super) fn of(session: &Session, step: Option<String>) -> Self {
        let conversation = session.conversation();
        let first = changes::first_snapshot(conversation.entries()).filter(|_| conversation.is_whole());
        Self { step, session: first.map(ToOwned::to_owned) }
    }
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
    /// For clients that watch the files, or show the changes of the session.
    pub(super) events: Vec<Event>,
}

impl FilesLook {
    /// Whether the sandbox did not compare the snapshots.
    pub(super) fn is_diff_missing(&self) -> bool {
        self.since.as_ref().is_some_and(|since| since.diffs.is_err())
    }

    /// What a step stores of the changes.
    pub(super) fn changes(&self) -> StepChanges {
        let Some(since) = &self.since else { return StepChanges::default() };
        let changed = since.changed_files();
        if changed.is_empty() {
            return StepChanges::default();
        }
        let files = changed.iter().map(|change| change.file.clone()).collect();
        let of_session = self.of_session.clone().map(Event::SessionDiff);
        StepChanges {
            patch: Some(Patch { hash: since.from.clone(), files }),
            events: std::iter::once(Event::FilesChanged(changed)).chain(of_session).collect(),
        }
    }
}

impl ChangesSince {
    fn changed_files(&self) -> Vec<FileChange> {
        self.diffs.iter().flatten().filter_map(file_change).collect()
    }
}

/// Takes a snapshot, and compares it with earlier ones. `None`: the session has no files yet.
pub(super) async fn look(
    deps: &Deps,
    identity: &Identity,
    earlier: EarlierSnapshots,
    patience: Duration,
) -> Result<Option<FilesLook>, SnapshotMissing> {
    let Some(state) = snapshots::track(deps, identity, patience).await? else { return Ok(None) };
    let since = match earlier.step {
        Some(from) if from != state.snapshot => {
            let pair = SnapshotPair { from: &from, to: &state.snapshot };
            // Only the names of the files: their patches follow at the end of the turn.
            let diffs = snapshots::diff(deps, identity, pair, 1).await;
            Some(ChangesSince { from, diffs })
        }
        Some(_) | None => None,
    };
    let has_changes = since.as_ref().is_some_and(|since| !since.changed_files().is_empty());
    let of_session = if has_changes {
        diff_of_session(deps, identity, earlier.session, &state.snapshot).await
    } else {
        None
    };
    Ok(Some(FilesLook { state, since, of_session }))
}

/// What a session has changed until the snapshot `to`. `None`: nothing tells its first snapshot, or the sandbox does not compare them.
async fn diff_of_session(
    deps: &Deps,
    identity: &Identity,
    first: Option<String>,
    to: &str,
) -> Option<Vec<FileDiff>> {
    let first = match first {
        Some(first) => first,
        None => {
            let found = deps.store.find_first_state(identity.tenant, &identity.session);
            with_store_timeout(found).await.ok().flatten()?
        }
    };
    let pair = SnapshotPair { from: &first, to };
    snapshots::diff(deps, identity, pair, STEP_DIFF_BYTES_MAX).await.ok()
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
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
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
