//! Snapshots of the files around a step: before its first call that may change them, and after its last call. If another step follows, one snapshot
//! serves both: it is taken during the model call of that step, and then ends the earlier step. A tool call waits for it; an abort or a drain does not.
//! A worker that dies before it leaves the earlier step unsettled, and its successor settles it in the same way.
// Continues in `repository::snapshots`, which asks the sandbox, and `conversation::changes`, which reads the stored
// snapshots.

mod look;

use self::look::{EarlierSnapshots, FilesLook, StepChanges, look};
use super::{session::Session, tool_calls::ToolCalls};
use crate::{
    conversation::changes::{self, UnsettledStep},
    process::{control::Leave, store_timeout::with_store_timeout},
    record::{Write, WriteError},
    repository::{
        snapshots::{self, SnapshotMissing, SnapshotPair},
        workspace::{OpenWorkspace, Workspace},
    },
    tools::{registry, tool::Tool},
};
use chassis::tasks;
use domain::{
    conversation::{
        message::{Assistant, Message, Summary},
        part::{Body, Part, Patch, Snapshot},
    },
    event::Event,
    ids::MessageId,
    limits,
    session::Changes,
    turn::{call::CallId, work::Need},
};
use settings::Settings;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use store::log::{change::ChangeBody, record::Progress};
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
    /// The earlier step that it settles.
    settling: Option<MessageId>,
    /// The steps of this loop for which the sandbox did not give a snapshot. The loop does not ask again, and an event tells it once.
    missed: BTreeSet<MessageId>,
}

/// The result of looking at the files; `None`: the session has no files yet.
pub(super) type Tracked = Result<Option<FilesLook>, SnapshotMissing>;

/// The file changes of a step, at its end.
#[derive(Default)]
pub(super) struct StepFiles {
    /// What was found out only now: the snapshot at the step's beginning, and the changes of the step before it.
    pub(super) late: Vec<Event>,
    /// The snapshot at the step's end.
    pub(super) snapshot: Option<String>,
    pub(super) patch: Option<Patch>,
    /// Further events: the changed files, another branch, or that there is no snapshot.
    pub(super) notices: Vec<Event>,
}

/// What calls need before they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeforeCalls {
    /// Nothing: no call may change files, or the snapshot before them is stored or was not given.
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
    /// Whether the sandbox did not give the snapshot to this loop.
    is_missed: bool,
    /// Whether no worker has started any of the calls. Otherwise the state before them is lost.
    are_fresh: bool,
}

impl CallFacts {
    fn decide(self) -> BeforeCalls {
        if self.is_recorded || !self.may_change_files || !self.is_enabled || self.is_missed {
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

    /// Ends the look, because the step is being stopped.
    pub(super) fn stop(&mut self) {
        (self.tracking, self.settling) = (None, None);
    }

    /// The known state of the files before a step that begins now; the sandbox is not asked.
    pub(super) fn known_before_step(&self, session: &Session) -> Option<String> {
        let left = session.open_step().and_then(|(_, parts)| changes::start_snapshot(parts));
        let newest = || session.conversation().newest_snapshot().map(ToOwned::to_owned);
        left.map(ToOwned::to_owned).or_else(|| self.known.clone()).or_else(newest)
    }

    /// Takes a snapshot during the model's answer, unless the state of the files is known.
    pub(super) fn track_during_call(&mut self, session: &Session, settings: &Settings) {
        let step = session.conversation().last_step();
        let is_known = step.is_some_and(|(_, parts)| changes::start_snapshot(parts).is_some());
        if is_known || self.tracking.is_some() || !session.workspace.is_open() || !is_enabled(settings) {
            return;
        }
        self.track(session, None, PATIENCE);
    }

    /// Begins to look at the files, once `opening` is open. The look ends an unsettled step.
    fn track(&mut self, session: &Session, opening: Option<Workspace>, patience: Duration) {
        let (deps, identity) = (Arc::clone(&session.deps), session.identity.clone());
        let unsettled = self.unsettled(session);
        let step = unsettled.and_then(|step| step.from).map(ToOwned::to_owned);
        let earlier = EarlierSnapshots::of(session, step);
        self.settling = unsettled.map(|step| step.id.clone());
        let tracking = async move {
            if let Some(opening) = opening {
                // The calls need the files too, and report why they do not open. This waits without a bound: the sandbox service ends a clone whose
                // caller leaves.
                if opening.ready().await.is_err() {
                    return Ok(None);
                }
            }
            look(&deps, &identity, earlier, patience).await
        };
        self.tracking = Some(tasks::spawn_owned("snapshot", tracking));
    }

    /// The step that a look at the files must end.
    fn unsettled<'a>(&self, session: &'a Session) -> Option<UnsettledStep<'a>> {
        let unsettled = changes::unsettled(session.conversation().entries(), may_change_files);
        unsettled.filter(|step| !self.missed.contains(step.id))
    }

    /// Begins the snapshot before these calls if they need one. Whether it is being taken.
    pub(super) fn track_before_calls(
        &mut self,
        session: &Session,
        settings: &Settings,
        tool_calls: &ToolCalls,
        calls: &[CallId],
    ) -> bool {
        let Some(facts) = self.call_facts(session, settings) else { return false };
        match (CallFacts { are_fresh: tool_calls.are_fresh(calls), ..facts }).decide() {
            BeforeCalls::Begin => return false,
            BeforeCalls::Wait => {}
            BeforeCalls::Track => self.track(session, Some(session.workspace.clone()), PATIENCE),
        }
        true
    }

    /// Begins the snapshot before a call that the model is still writing and that may change files, unless the state of the files is known.
    pub(super) fn track_before_call(&mut self, session: &Session, settings: &Settings) {
        let Some(facts) = self.call_facts(session, settings) else { return };
        if (CallFacts { may_change_files: true, are_fresh: true, ..facts }).decide() == BeforeCalls::Track {
            self.track(session, Some(session.workspace.clone()), PATIENCE);
        }
    }

    /// Whether a snapshot is being taken.
    pub(super) fn is_tracking(&self) -> bool {
        self.tracking.is_some()
    }

    /// The facts of the newest step's stored calls, as if an earlier worker had started them.
    fn call_facts(&self, session: &Session, settings: &Settings) -> Option<CallFacts> {
        let (step, parts) = session.conversation().last_step()?;
        Some(CallFacts {
            is_recorded: changes::start_snapshot(parts).is_some(),
            may_change_files: may_change_files(parts),
            is_enabled: is_enabled(settings),
            is_tracking: self.tracking.is_some(),
            is_missed: self.missed.contains(&step.id),
            are_fresh: false,
        })
    }

    /// Stores the snapshot at the beginning of the newest step. If it shows no change of the files, and no call waits for it, the next write stores it.
    /// `missing` is what the turn waits for.
    pub(super) async fn store_start(
        &mut self,
        session: &mut Session,
        tracked: Tracked,
        missing: Option<Need>,
    ) -> Result<(), WriteError> {
        // While the model still writes the calls, another look may follow.
        let is_last = missing == Some(Need::Snapshot);
        let events = self.settle(session, tracked, is_last);
        if !is_last && events.iter().all(is_snapshot) {
            session.record.write(Write::of(events).with_next()).await?;
        } else if !events.is_empty() {
            session.write(events, Progress::None).await?;
        }
        Ok(())
    }

    /// The events that store a look: the end of an unsettled step, and the beginning of the step that is open. The last look before the calls of that step
    /// tells if there is no snapshot before them.
    fn settle(&mut self, session: &Session, tracked: Tracked, is_last: bool) -> Vec<Event> {
        self.known = None;
        let (mut events, settling) = (vec![], self.settling.take());
        match tracked {
            Err(SnapshotMissing) => {
                let opened = open_step(session).filter(|(_, parts)| is_last && may_change_files(parts));
                for step in settling.into_iter().chain(opened.map(|(step, _)| step.id.clone())) {
                    events.extend(self.miss(step));
                }
            }
            Ok(None) => {}
            Ok(Some(look)) => {
                let unsettled = self.unsettled(session).filter(|step| settling.as_ref() == Some(step.id));
                events.extend(unsettled.into_iter().flat_map(|step| end_of(session, step, &look)));
                events.extend(start_part(session, &look.state.snapshot));
                events.extend(self.branch_event(&look.state.branch));
                self.known = Some(look.state.snapshot);
            }
        }
        events
    }

    /// The event that a step has no snapshot, the first time.
    fn miss(&mut self, step: MessageId) -> Option<Event> {
        self.missed.insert(step.clone()).then_some(Event::SnapshotMissed(step))
    }

    /// Waits for the look that is under way. Begins one if a step is unsettled. Returns what to store before the step or the turn ends.
    pub(super) async fn settle_rest(
        &mut self,
        session: &Session,
        settings: &Settings,
        leave: &Leave,
        patience: Duration,
    ) -> Vec<Event> {
        let is_settled = open_step_changes_files(session) || self.unsettled(session).is_none();
        if self.tracking.is_none() && is_enabled(settings) && !is_settled {
            self.track(session, None, patience);
        }
        if self.tracking.is_none() {
            return vec![];
        }
        let tracked = tokio::select! {
            biased;
            () = leave.now.cancelled() => Err(SnapshotMissing),
            tracked = tokio::time::timeout(patience, self.next()) => tracked.unwrap_or(Err(SnapshotMissing)),
        };
        self.tracking = None;
        self.settle(session, tracked, true)
    }

    /// Whether the end of the newest step may have to wait for the sandbox.
    pub(super) fn may_wait(&self, session: &Session) -> bool {
        open_step_changes_files(session) || self.tracking.is_some() || self.unsettled(session).is_some()
    }

    /// What a step stores whose changes the look at the beginning of the next step will find.
    pub(super) fn leave_to_next_step(&mut self, session: &Session) -> StepFiles {
        let parts = session.conversation().last_step().map_or(&[][..], |(_, parts)| parts);
        let snapshot = if may_change_files(parts) {
            self.known = None;
            None
        } else {
            changes::start_snapshot(parts).map(ToOwned::to_owned)
        };
        StepFiles { snapshot, ..StepFiles::default() }
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
        let mut files = StepFiles {
            late: self.settle_rest(session, settings, leave, patience).await,
            ..StepFiles::default()
        };
        let Some((step, parts)) = open_step(session) else { return files };
        let before = changes::start_snapshot(parts).map(ToOwned::to_owned);
        let before = before.or_else(|| self.known.clone().filter(|_| !files.late.is_empty()));
        if !may_change_files(parts) || !is_enabled(settings) {
            // The snapshot at the beginning is still valid at the end.
            files.snapshot = before;
            return files;
        }
        let earlier = EarlierSnapshots::of(session, before);
        let looked = look(&session.deps, &session.identity, earlier, patience).await;
        let mut is_missing = looked.is_err();
        self.known = None;
        if let Ok(Some(look)) = looked {
            files.notices.extend(self.branch_event(&look.state.branch));
            is_missing = look.is_diff_missing();
            let StepChanges { patch, events } = look.changes();
            files.patch = patch;
            files.notices.extend(events);
            self.known = Some(look.state.snapshot.clone());
            files.snapshot = Some(look.state.snapshot);
        }
        if is_missing {
            files.notices.extend(self.miss(step.id.clone()));
        }
        files
    }
}

/// The events that end an unsettled step with what a look found. Its `step-finish` stays as it is, because clients print it whenever it is updated.
fn end_of(session: &Session, unsettled: UnsettledStep<'_>, look: &FilesLook) -> Vec<Event> {
    let id = unsettled.id;
    let StepChanges { patch, events: notices } = look.changes();
    let mut events = vec![];
    if open_step(session).is_none() {
        // No later step tells the state of the files.
        let snapshot = Snapshot { snapshot: look.state.snapshot.clone() };
        events.push(session.new_part(id, Body::Snapshot(snapshot)));
    }
    events.extend(patch.map(|patch| session.new_part(id, Body::Patch(patch))));
    events.extend(notices);
    events.extend(look.is_diff_missing().then(|| Event::SnapshotMissed(id.clone())));
    events
}

/// Stores for each prompt the file changes of its turn, and for the session those of all turns, if they are new.
pub(super) async fn summarize_changes(session: &mut Session) -> Result<(), WriteError> {
    if changes::unsummarized(session.conversation().entries()).is_empty() {
        return Ok(());
    }
    // The sandbox may take its time.
    session.record.flush().await?;
    let conversation = session.record.conversation();
    let turns = changes::unsummarized(conversation.entries());
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
    let summary = Write::change(ChangeBody::FileSummary(changes));
    session.record.write(updated.into_iter().map(ChangeBody::Event).fold(summary, Write::and)).await
}

/// The snapshot at the beginning of the newest step, as a separate part. Clients show the beginning of a step whenever it is
/// updated, and they already saw it before the snapshot was taken.
fn start_part(session: &Session, snapshot: &str) -> Option<Event> {
    let (message, _) = open_step(session)?;
    Some(session.new_part(&message.id, Body::Snapshot(Snapshot { snapshot: snapshot.to_owned() })))
}

/// Whether an event is only the state of the files, which clients do not show. A worker that dies before it is stored leaves the earlier step unsettled.
fn is_snapshot(event: &Event) -> bool {
    matches!(event, Event::PartUpdated { part, .. } if matches!(part.body, Body::Snapshot(_)))
}

/// The newest step with its parts, if it is not over.
fn open_step(session: &Session) -> Option<(&Assistant, &[(u64, Part)])> {
    session.conversation().last_step().filter(|(step, _)| step.time.completed.is_none())
}

/// Whether the step that is not over has a call that may change files.
fn open_step_changes_files(session: &Session) -> bool {
    open_step(session).is_some_and(|(_, parts)| may_change_files(parts))
}

/// Whether settings enable snapshots.
fn is_enabled(settings: &Settings) -> bool {
    settings.snapshot != Some(false)
}

/// Whether a step has a call that may change files.
fn may_change_files(parts: &[(u64, Part)]) -> bool {
    let mut tools = parts.iter().filter_map(|(_, part)| part.body.as_tool());
    tools.any(|tool| registry::find(&tool.tool).is_ok_and(Tool::changes_files))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn calls_that_may_change_files_wait_for_the_snapshot_before_them() {
        let facts = CallFacts {
            is_recorded: false,
            may_change_files: true,
            is_enabled: true,
            is_tracking: false,
            is_missed: false,
            are_fresh: true,
        };
        for (what, facts, want) in [
            ("a fresh call", facts, BeforeCalls::Track),
            ("while it is taken", CallFacts { is_tracking: true, ..facts }, BeforeCalls::Wait),
            ("after it is stored", CallFacts { is_recorded: true, ..facts }, BeforeCalls::Begin),
            ("a call that only reads", CallFacts { may_change_files: false, ..facts }, BeforeCalls::Begin),
            ("switched off", CallFacts { is_enabled: false, ..facts }, BeforeCalls::Begin),
            ("after the sandbox did not give it", CallFacts { is_missed: true, ..facts }, BeforeCalls::Begin),
            ("a call of a dead worker", CallFacts { are_fresh: false, ..facts }, BeforeCalls::Begin),
        ] {
            assert_eq!(facts.decide(), want, "{what}");
        }
    }
}
