//! The states of the files around a step: before its first call that may change them, and after its last one. They are
//! looked at beside the model where that is possible; a call waits for the state before it, and an abort or a drain does not.
// Continues in `snapshots`, which asks the sandbox, and `changes`, which reads what is stored.

use super::Loop;
use crate::{
    changes,
    record::{Stopped, answered},
    snapshots::{self, Look},
    tools,
};
use domain::{
    event::{Event, FileChange, FileEvent},
    limits,
    message::{FileDiff, Message, Summary},
    part::{Body, Part, Patch, Snapshot},
    session::{Changes, WORKSPACE},
    turn::{CallId, Input},
};
use std::{sync::Arc, time::Duration};
use store::log::record::Progress;
use tokio_util::task::AbortOnDropHandle;

const PATIENCE: Duration = Duration::from_millis(limits::SNAPSHOT_WAIT_MS);
/// For a step that is stopped.
pub(super) const HURRY: Duration = Duration::from_millis(limits::SNAPSHOT_STOP_WAIT_MS);

/// What a loop knows of the files.
#[derive(Default)]
pub(super) struct Snapshots {
    /// Their state when this loop looked last.
    known: Option<String>,
    /// The branch that the session is stored with.
    branch: Option<String>,
    /// The look at the beginning of the newest step.
    tracking: Option<AbortOnDropHandle<Option<Look>>>,
    /// Calls that wait for it.
    delayed: Option<Vec<CallId>>,
}

/// What a step did to the files, when it ends.
#[derive(Default)]
pub(super) struct Seen {
    /// The state at its beginning, if only now it is stored.
    pub(super) late: Option<Event>,
    /// The state at its end.
    pub(super) snapshot: Option<String>,
    pub(super) patch: Option<Patch>,
    /// What else whoever watches is told, with the state and the patch.
    pub(super) told: Vec<Event>,
}

impl Snapshots {
    /// What a loop knows that begins: the branch that the session is stored with.
    pub(super) fn of(branch: Option<String>) -> Self {
        Self { branch, ..Self::default() }
    }

    /// Waits until the files were looked at, if they are being looked at. Cancel-safe.
    pub(super) async fn settled(&mut self) -> Option<Look> {
        let Some(handle) = &mut self.tracking else { return std::future::pending().await };
        let tracked = handle.await.ok().flatten();
        self.tracking = None;
        tracked
    }

    /// Forgets what waits: the step is stopped.
    pub(super) fn stop(&mut self) {
        (self.tracking, self.delayed) = (None, None);
    }
}

impl Loop {
    /// The state of the files before a step that begins now, as far as it is known without looking.
    pub(super) fn state_before(&self, left: Option<&[(u64, Part)]>) -> Option<String> {
        let kept = left.and_then(changes::start).map(ToOwned::to_owned);
        let known = || self.snapshots.known.clone();
        kept.or_else(known).or_else(|| self.conversation.state_of_turn().map(ToOwned::to_owned))
    }

    /// Looks at the files beside the model's answer, unless their state is known.
    pub(super) fn look_at_files(&mut self) {
        let is_known =
            self.conversation.last_step().is_some_and(|(_, parts)| changes::start(parts).is_some());
        if is_known || self.snapshots.tracking.is_some() || !self.may_have_files() || !self.keeps_states() {
            return;
        }
        let (deps, identity) = (Arc::clone(&self.deps), self.tools.identity().clone());
        let tracking = async move { snapshots::track(&deps, &identity, PATIENCE).await };
        self.snapshots.tracking = Some(AbortOnDropHandle::new(tokio::spawn(tracking)));
    }

    /// Gives `calls` back if none of the step may change files, or the state before them is stored; keeps them until it is
    /// otherwise. Of calls that another worker may have begun nobody knows that state any more.
    pub(super) fn when_tracked(&mut self, calls: Vec<CallId>) -> Option<Vec<CallId>> {
        let Some((_, parts)) = self.conversation.last_step() else { return Some(calls) };
        if changes::start(parts).is_some() || !changes_files(parts) || !self.keeps_states() {
            return Some(calls);
        }
        if self.snapshots.tracking.is_none() {
            if !calls.iter().all(|call| self.fresh.contains(call)) {
                return Some(calls);
            }
            let (deps, identity) = (Arc::clone(&self.deps), self.tools.identity().clone());
            let workspace = self.workspace.clone();
            let tracking = async move {
                // The files may not be there yet: the calls need them anyway, and say what is wrong with them.
                tokio::time::timeout(PATIENCE, workspace.ready()).await.ok()?.ok()?;
                snapshots::track(&deps, &identity, PATIENCE).await
            };
            self.snapshots.tracking = Some(AbortOnDropHandle::new(tokio::spawn(tracking)));
        }
        self.snapshots.delayed = Some(calls);
        None
    }

    /// Stores the state at the beginning of the newest step, and begins what waited for it.
    pub(super) async fn tracked(&mut self, look: Option<Look>) -> Result<Option<Input>, Stopped> {
        let mut events = vec![];
        if let Some(look) = &look {
            events.extend(self.begins_with(&look.snapshot));
            events.extend(self.moved(look));
        }
        self.snapshots.known = look.map(|look| look.snapshot);
        if !events.is_empty() {
            self.record.write(&mut self.conversation, events, Progress::None).await?;
        }
        match self.snapshots.delayed.take() {
            Some(calls) => {
                // The files may have been long in coming.
                self.lease_runs().await;
                self.begin_all(calls).await.map(|()| None)
            }
            None => Ok(None),
        }
    }

    /// The state that the newest step began with, as a part of its own: clients show the beginning of a step each time that
    /// they are told of it, and were told of it before the files were looked at.
    fn begins_with(&self, state: &str) -> Option<Event> {
        let (message, _) = self.conversation.last_step().filter(|(it, _)| it.time.completed.is_none())?;
        Some(self.new_part(&message.id, Body::Snapshot(Snapshot { snapshot: state.to_owned() })))
    }

    /// What is to be stored when the files are on another branch than the session.
    fn moved(&mut self, look: &Look) -> Option<Event> {
        if self.snapshots.branch == look.branch {
            return None;
        }
        self.snapshots.branch.clone_from(&look.branch);
        Some(Event::BranchUpdated(look.branch.clone()))
    }

    /// What the newest step did to the files. Where nothing could change them, nobody looks again.
    pub(super) async fn see_files(&mut self, patience: Duration) -> Seen {
        let mut seen = Seen::default();
        if self.snapshots.tracking.is_some() {
            let leave = self.control.leave.now.clone();
            let look = tokio::select! {
                biased;
                () = leave.cancelled() => None,
                look = tokio::time::timeout(patience, self.snapshots.settled()) => look.ok().flatten(),
            };
            self.snapshots.stop();
            if let Some(look) = &look {
                seen.late = self.begins_with(&look.snapshot);
                seen.told.extend(self.moved(look));
            }
            seen.snapshot = look.map(|look| look.snapshot);
            self.snapshots.known.clone_from(&seen.snapshot);
        }
        let Some((_, parts)) = self.conversation.last_step() else { return seen };
        let before = seen.snapshot.take().or_else(|| changes::start(parts).map(ToOwned::to_owned));
        if !changes_files(parts) || !self.keeps_states() {
            // What it began with stays, also when that was known before.
            seen.snapshot.clone_from(&before);
            return seen;
        }
        let look = snapshots::track(&self.deps, self.tools.identity(), patience).await;
        seen.told.extend(look.as_ref().and_then(|look| self.moved(look)));
        seen.snapshot = look.map(|look| look.snapshot);
        self.snapshots.known.clone_from(&seen.snapshot);
        if let (Some(before), Some(after)) = (before, &seen.snapshot)
            && before != *after
        {
            // Only their names: the patches come with the end of the turn.
            let differ = snapshots::diff(&self.deps, self.tools.identity(), (&before, after), 1).await;
            let changed: Vec<FileChange> =
                differ.unwrap_or_default().into_iter().filter_map(change).collect();
            if !changed.is_empty() {
                let files = changed.iter().map(|change| change.file.clone()).collect();
                seen.patch = Some(Patch { hash: before, files });
                seen.told.push(Event::FilesChanged(changed));
            }
        }
        seen
    }

    /// Whether settings want the states of the files to be kept.
    fn keeps_states(&self) -> bool {
        self.settings().snapshot != Some(false)
    }

    /// Says of each prompt what its turn changed, and of the session what all of them did, if there is news.
    pub(super) async fn sum_up_changes(&mut self) -> Result<(), Stopped> {
        let untold = changes::untold(self.conversation.entries());
        if untold.is_empty() {
            return Ok(());
        }
        let first = if self.conversation.is_whole() {
            changes::first(self.conversation.entries()).map(ToOwned::to_owned)
        } else {
            let (tenant, session) = (self.record.tenant(), self.record.session());
            answered(self.deps.store.find_first_state(tenant, session)).await.map_err(Stopped::Store)?
        };
        let last = changes::last(self.conversation.entries());
        let Some(whole) = first.as_deref().zip(last) else { return Ok(()) };
        let diff = async |states: (&str, &str)| {
            let identity = self.tools.identity();
            snapshots::diff(&self.deps, identity, states, limits::SUMMARY_DIFF_BYTES_MAX).await
        };
        let mut updated = vec![];
        let mut all = None;
        for turn in untold {
            let Some(diffs) = diff((turn.from, turn.to)).await else { continue };
            if (turn.from, turn.to) == whole {
                all = Some(diffs.clone());
            }
            let mut user = turn.user.clone();
            user.summary = Some(Summary { diffs });
            updated.push(Event::MessageUpdated(Box::new(Message::User(user))));
        }
        if all.is_none() {
            // The first state may be forgotten by now; the numbers of before stay.
            all = if whole.0 == whole.1 { Some(vec![]) } else { diff(whole).await };
        }
        let Some(all) = all else {
            if updated.is_empty() {
                return Ok(());
            }
            return self.record.write(&mut self.conversation, updated, Progress::None).await;
        };
        let changes = Changes::of(&all);
        updated.insert(0, Event::SessionDiff(all));
        self.record.write_changes(&mut self.conversation, changes, updated).await
    }
}

/// What became of a file that differs, for whoever watches the files.
fn change(differs: FileDiff) -> Option<FileChange> {
    let event = match differs.status.as_deref() {
        Some("added") => FileEvent::Add,
        Some("deleted") => FileEvent::Unlink,
        Some(_) | None => FileEvent::Change,
    };
    Some(FileChange { file: format!("{WORKSPACE}/{}", differs.file?), event })
}

/// Whether a step has a call that may change files.
fn changes_files(parts: &[(u64, Part)]) -> bool {
    let may = |(_, part): &(u64, Part)| match &part.body {
        Body::Tool(tool) => tools::find(&tool.tool).is_ok_and(tools::Tool::changes_files),
        _ => false,
    };
    parts.iter().any(may)
}
