//! Snapshots of the files around a step: before its first call that may change them, and after its last call. If possible, the
//! first snapshot is taken during the model call. A tool call waits for it; an abort or a drain does not.
// Continues in `repository::snapshots`, which asks the sandbox, and `conversation::changes`, which reads the stored
// snapshots.

use super::{session::Session, tool_calls::ToolCalls};
use crate::{
    conversation::changes,
    process::{control::Leave, store_timeout::with_store_timeout},
    record::WriteError,
    repository::{
        snapshots::{self, FilesState, SnapshotMissing, SnapshotPair},
        workspace::OpenWorkspace,
    },
    tools::{registry, tool::Tool},
};
use chassis::tasks;
use domain::{
    conversation::{
        message::{FileDiff, Message, Summary},
        part::{Body, Part, Patch, Snapshot},
    },
    event::{Event, FileChange, FileEvent},
    limits,
    session::{Changes, WORKSPACE},
    turn::call::CallId,
};
use settings::Settings;
use std::{sync::Arc, time::Duration};
use store::log::record::Progress;
use tokio_util::task::AbortOnDropHandle;

/// Longest wait for the snapshot of a turn that is being stopped, because the person who aborted it waits; milliseconds.
const SNAPSHOT_STOP_WAIT_MS: u64 = 1_000;

/// Time for which a step waits for a snapshot.
pub(super) const PATIENCE: Duration = Duration::from_millis(limits::SNAPSHOT_WAIT_MS);
/// The same for a step that is being stopped.
pub(super) const STOP_PATIENCE: Duration = Duration::from_millis(SNAPSHOT_STOP_WAIT_MS);

/// The loop's knowledge of the files.
#[derive(Default)]
pub(super) struct Snapshots {
    /// The newest snapshot that this loop took.
    known: Option<String>,
    /// The stored branch of the session.
    branch: Option<String>,
    /// Whether this loop has read the branch from the files.
    has_read_branch: bool,
    /// The snapshot before the newest step's calls.
    tracking: Option<AbortOnDropHandle<Tracked>>,
    /// Calls that wait for it.
    delayed: Option<Vec<CallId>>,
    /// Whether the sandbox did not give the snapshot before the newest step's calls.
    is_start_missing: bool,
}

/// The result of taking a snapshot; `None`: the session has no files yet.
pub(super) type Tracked = Result<Option<FilesState>, SnapshotMissing>;

/// The file changes of a step, at its end.
#[derive(Default)]
pub(super) struct StepFiles {
    /// The snapshot at the step's beginning, if it was taken only now.
    pub(super) late: Option<Event>,
    /// The snapshot at the step's end.
    pub(super) snapshot: Option<String>,
    pub(super) patch: Option<Patch>,
    /// Further events: the changed files, another branch, or that there is no snapshot.
    pub(super) notices: Vec<Event>,
}

/// What calls need before they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeforeCalls {
    /// Nothing: no call may change files, or the snapshot before them is stored or can no longer be taken.
    Begin,
    /// A snapshot that is being taken.
    Wait,
    /// A snapshot.
    Track,
}

/// The inputs of the decision whether calls need a snapshot.
#[derive(Debug, Clone, Copy)]
struct CallFacts {
    is_recorded: bool,
    may_change_files: bool,
    is_enabled: bool,
    is_tracking: bool,
    /// Whether no worker has started any of the calls. Otherwise the state before them is lost.
    are_fresh: bool,
}

impl CallFacts {
    fn decide(self) -> BeforeCalls {
        if self.is_recorded || !self.may_change_files || !self.is_enabled {
            BeforeCalls::Begin
        } else if self.is_tracking {
            BeforeCalls::Wait
        } else if self.are_fresh {
            BeforeCalls::Track
        } else {
            BeforeCalls::Begin
        }
    }
}

impl Snapshots {
    /// Starts with the stored branch of the session.
    pub(super) fn new(branch: Option<String>) -> Self {
        Self { branch, ..Self::default() }
    }

    /// Waits until the snapshot before the step's calls is taken, if one is being taken. Cancel-safe.
    pub(super) async fn next(&mut self) -> Tracked {
        let Some(handle) = &mut self.tracking else { return std::future::pending().await };
        let tracked = handle.await.unwrap_or(Err(SnapshotMissing));
        self.tracking = None;
        tracked
    }

    /// Drops the waiting calls, because the step is being stopped.
    pub(super) fn stop(&mut self) {
        (self.tracking, self.delayed) = (None, None);
    }

    /// The known state of the files before a step that begins now; the sandbox is not asked.
    pub(super) fn known_before_step(&self, session: &Session) -> Option<String> {
        let left = session.open_step().and_then(|(_, parts)| changes::start_snapshot(parts));
        let newest = || session.conversation().newest_snapshot().map(ToOwned::to_owned);
        left.map(ToOwned::to_owned).or_else(|| self.known.clone()).or_else(newest)
    }

    /// Takes a snapshot during the model's answer, unless the state of the files is known.
    pub(super) fn track_beside_call(&mut self, session: &Session, settings: &Settings) {
        let step = session.conversation().last_step();
        let is_known = step.is_some_and(|(_, parts)| changes::start_snapshot(parts).is_some());
        if is_known || self.tracking.is_some() || !session.may_have_files() || !is_enabled(settings) {
            return;
        }
        let (deps, identity) = (Arc::clone(&session.deps), session.identity.clone());
        let tracking = async move { snapshots::track(&deps, &identity, PATIENCE).await };
        self.tracking = Some(tasks::spawn_owned("snapshot", tracking));
    }

    /// Returns `calls` if they need no snapshot. Otherwise keeps them until it is taken.
    pub(super) fn when_tracked(
        &mut self,
        session: &Session,
        settings: &Settings,
        tool_calls: &ToolCalls,
        calls: Vec<CallId>,
    ) -> Option<Vec<CallId>> {
        let Some((_, parts)) = session.conversation().last_step() else { return Some(calls) };
        let facts = CallFacts {
            is_recorded: changes::start_snapshot(parts).is_some(),
            may_change_files: may_change_files(parts),
            is_enabled: is_enabled(settings),
            is_tracking: self.tracking.is_some(),
            are_fresh: tool_calls.are_fresh(&calls),
        };
        match facts.decide() {
            BeforeCalls::Begin => return Some(calls),
            BeforeCalls::Wait => {}
            BeforeCalls::Track => {
                let (deps, identity) = (Arc::clone(&session.deps), session.identity.clone());
                let workspace = session.workspace.clone();
                let tracking = async move {
                    // The workspace may still be opening. The calls need it too, and report its problems.
                    match tokio::time::timeout(PATIENCE, workspace.ready()).await {
                        Ok(Ok(())) => snapshots::track(&deps, &identity, PATIENCE).await,
                        Ok(Err(_)) => Ok(None),
                        Err(_) => Err(SnapshotMissing),
                    }
                };
                self.tracking = Some(tasks::spawn_owned("snapshot", tracking));
            }
        }
        self.delayed = Some(calls);
        None
    }

    /// Stores the snapshot at the beginning of the newest step, and returns the calls that waited for it.
    pub(super) async fn store_start(
        &mut self,
        session: &mut Session,
        tracked: Tracked,
    ) -> Result<Option<Vec<CallId>>, WriteError> {
        self.is_start_missing = tracked.is_err();
        let state = tracked.ok().flatten();
        let mut events = vec![];
        if let Some(state) = &state {
            events.extend(start_part(session, &state.snapshot));
            events.extend(self.branch_event(&state.branch));
        }
        self.known = state.map(|state| state.snapshot);
        if !events.is_empty() {
            session.write(events, Progress::None).await?;
        }
        Ok(self.delayed.take())
    }

    /// The event that stores the branch of files that were just opened. Later the snapshots read the branch.
    pub(super) fn opened(&mut self, workspace: &OpenWorkspace) -> Option<Event> {
        if self.has_read_branch || workspace.branch.is_none() {
            None
        } else {
            self.branch_event(&workspace.branch)
        }
    }

    /// The event that stores another branch, if the files are on one.
    fn branch_event(&mut self, branch: &Option<String>) -> Option<Event> {
        self.has_read_branch = true;
        if self.branch == *branch {
            return None;
        }
        self.branch.clone_from(branch);
        Some(Event::BranchUpdated(branch.clone()))
    }

    /// Determines the file changes of the newest step. Takes no snapshot if no call may have changed a file.
    pub(super) async fn end_of_step(
        &mut self,
        session: &Session,
        settings: &Settings,
        leave: &Leave,
        patience: Duration,
    ) -> StepFiles {
        let mut files = StepFiles::default();
        let mut is_missing = std::mem::take(&mut self.is_start_missing);
        if self.tracking.is_some() {
            let tracked = tokio::select! {
                biased;
                () = leave.now.cancelled() => Err(SnapshotMissing),
                tracked = tokio::time::timeout(patience, self.next()) => tracked.unwrap_or(Err(SnapshotMissing)),
            };
            self.stop();
            is_missing |= tracked.is_err();
            let state = tracked.ok().flatten();
            if let Some(state) = &state {
                files.late = start_part(session, &state.snapshot);
                files.notices.extend(self.branch_event(&state.branch));
            }
            files.snapshot = state.map(|state| state.snapshot);
            self.known.clone_from(&files.snapshot);
        }
        let Some((step, parts)) = session.conversation().last_step() else { return files };
        let before = files.snapshot.take().or_else(|| changes::start_snapshot(parts).map(ToOwned::to_owned));
        if !may_change_files(parts) || !is_enabled(settings) {
            // The snapshot at the beginning is still valid at the end.
            files.snapshot.clone_from(&before);
            return files;
        }
        let tracked = snapshots::track(&session.deps, &session.identity, patience).await;
        is_missing |= tracked.is_err();
        let state = tracked.ok().flatten();
        files.notices.extend(state.as_ref().and_then(|state| self.branch_event(&state.branch)));
        files.snapshot = state.map(|state| state.snapshot);
        self.known.clone_from(&files.snapshot);
        if let (Some(from), Some(to)) = (before, &files.snapshot)
            && from != *to
        {
            // Only the names of the files: their patches follow at the end of the turn.
            let pair = SnapshotPair { from: &from, to };
            let diffs = snapshots::diff(&session.deps, &session.identity, pair, 1).await;
            is_missing |= diffs.is_err();
            let changed: Vec<FileChange> =
                diffs.unwrap_or_default().into_iter().filter_map(file_change).collect();
            if !changed.is_empty() {
                let names = changed.iter().map(|change| change.file.clone()).collect();
                files.patch = Some(Patch { hash: from, files: names });
                files.notices.push(Event::FilesChanged(changed));
            }
        }
        if is_missing {
            files.notices.push(Event::SnapshotMissed(step.id.clone()));
        }
        files
    }
}

/// Stores for each prompt the file changes of its turn, and for the session those of all turns, if they are new.
pub(super) async fn summarize_changes(session: &mut Session) -> Result<(), WriteError> {
    let conversation = session.record.conversation();
    let turns = changes::unsummarized(conversation.entries());
    if turns.is_empty() {
        return Ok(());
    }
    let first = if conversation.is_whole() {
        changes::first_snapshot(conversation.entries()).map(ToOwned::to_owned)
    } else {
        let found = session.deps.store.find_first_state(session.record.tenant(), session.record.session());
        with_store_timeout(found).await.map_err(WriteError::Store)?
    };
    let last = changes::last_snapshot(conversation.entries());
    let Some((from, to)) = first.as_deref().zip(last) else { return Ok(()) };
    let whole = SnapshotPair { from, to };
    let diff = async |pair: SnapshotPair<'_>| {
        snapshots::diff(&session.deps, &session.identity, pair, limits::SUMMARY_DIFF_BYTES_MAX).await
    };
    let mut updated = vec![];
    let mut all = None;
    for turn in turns {
        let pair = SnapshotPair { from: turn.from, to: turn.to };
        let Ok(diffs) = diff(pair).await else { continue };
        if pair == whole {
            all = Some(diffs.clone());
        }
        let mut user = turn.user.clone();
        user.summary = Some(Summary { diffs });
        updated.push(Event::MessageUpdated(Box::new(Message::User(user))));
    }
    if all.is_none() {
        // The sandbox may have deleted the first snapshot. The session then keeps its earlier numbers.
        all = if whole.from == whole.to { Some(vec![]) } else { diff(whole).await.ok() };
    }
    let Some(all) = all else {
        if updated.is_empty() {
            return Ok(());
        }
        return session.write(updated, Progress::None).await;
    };
    let changes = Changes::of(&all);
    updated.insert(0, Event::SessionDiff(all));
    session.record.write_changes(changes, updated).await
}

/// The snapshot at the beginning of the newest step, as a separate part. Clients show the beginning of a step whenever it is
/// updated, and they already saw it before the snapshot was taken.
fn start_part(session: &Session, snapshot: &str) -> Option<Event> {
    let (message, _) =
        session.conversation().last_step().filter(|(step, _)| step.time.completed.is_none())?;
    Some(session.new_part(&message.id, Body::Snapshot(Snapshot { snapshot: snapshot.to_owned() })))
}

/// Whether settings enable snapshots.
fn is_enabled(settings: &Settings) -> bool {
    settings.snapshot != Some(false)
}

/// The change of a file, for clients that watch the files.
fn file_change(diff: FileDiff) -> Option<FileChange> {
    let event = match diff.status.as_deref() {
        Some("added") => FileEvent::Add,
        Some("deleted") => FileEvent::Unlink,
        Some(_) | None => FileEvent::Change,
    };
    Some(FileChange { file: format!("{WORKSPACE}/{}", diff.file?), event })
}

/// Whether a step has a call that may change files.
fn may_change_files(parts: &[(u64, Part)]) -> bool {
    let mut tools = parts.iter().filter_map(|(_, part)| part.body.as_tool());
    tools.any(|tool| registry::find(&tool.tool).is_ok_and(Tool::changes_files))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn calls_that_may_change_files_wait_for_the_snapshot_before_them() {
        let facts = CallFacts {
            is_recorded: false,
            may_change_files: true,
            is_enabled: true,
            is_tracking: false,
            are_fresh: true,
        };
        for (what, facts, want) in [
            ("a fresh call", facts, BeforeCalls::Track),
            ("while it is taken", CallFacts { is_tracking: true, ..facts }, BeforeCalls::Wait),
            ("after it is stored", CallFacts { is_recorded: true, ..facts }, BeforeCalls::Begin),
            ("a call that only reads", CallFacts { may_change_files: false, ..facts }, BeforeCalls::Begin),
            ("switched off", CallFacts { is_enabled: false, ..facts }, BeforeCalls::Begin),
            ("a call of a dead worker", CallFacts { are_fresh: false, ..facts }, BeforeCalls::Begin),
        ] {
            assert_eq!(facts.decide(), want, "{what}");
        }
    }

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
            assert_eq!(file_change(diff), Some(want), "{status:?}");
        }
    }
}
