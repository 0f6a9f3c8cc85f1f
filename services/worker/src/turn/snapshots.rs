//! The states of the files around a step: before its first call that may change them, and after its last one. They are
//! looked at beside the model where that is possible; a call waits for the state before it, and an abort or a drain does not.
// Continues in `snapshots`, which asks the sandbox, and `changes`, which reads what is stored.

use super::Loop;
use crate::{changes, clock::now, record::Stopped, snapshots, tools};
use domain::{
    event::Event,
    limits,
    message::{Message, Summary},
    part::{Body, Part, Patch, Snapshot, StepStart},
    session::Changes,
    turn::{CallId, Input},
};
use std::{sync::Arc, time::Duration};
use store::record::Progress;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_millis(limits::SNAPSHOT_WAIT_MS);
/// For a step that is stopped.
pub(super) const HURRY: Duration = Duration::from_millis(limits::SNAPSHOT_STOP_WAIT_MS);

/// What a loop knows of the files.
#[derive(Default)]
pub(super) struct Snapshots {
    /// Their state when this loop looked last.
    known: Option<String>,
    /// The look at the beginning of the newest step.
    tracking: Option<Tracking>,
    /// Calls that wait for it.
    delayed: Option<Vec<CallId>>,
}

struct Tracking(JoinHandle<Option<String>>);

impl Drop for Tracking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a step did to the files, when it ends.
#[derive(Default)]
pub(super) struct Seen {
    /// The state at its beginning, if only now it is stored.
    pub(super) late: Option<Event>,
    /// The state at its end.
    pub(super) snapshot: Option<String>,
    pub(super) patch: Option<Patch>,
}

impl Snapshots {
    /// Waits until the files were looked at, if they are being looked at. Cancel-safe.
    pub(super) async fn settled(&mut self) -> Option<String> {
        let Some(Tracking(handle)) = &mut self.tracking else { return std::future::pending().await };
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
        if is_known || self.snapshots.tracking.is_some() || !self.may_have_files() {
            return;
        }
        let (deps, identity) = (Arc::clone(&self.deps), self.tools.identity().clone());
        let tracking = async move { snapshots::track(&deps, &identity, PATIENCE).await };
        self.snapshots.tracking = Some(Tracking(tokio::spawn(tracking)));
    }

    /// Gives `calls` back if none of the step may change files, or the state before them is stored; keeps them until it is
    /// otherwise. Of calls that another worker may have begun nobody knows that state any more.
    pub(super) fn when_tracked(&mut self, calls: Vec<CallId>) -> Option<Vec<CallId>> {
        let Some((_, parts)) = self.conversation.last_step() else { return Some(calls) };
        if changes::start(parts).is_some() || !changes_files(parts) {
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
            self.snapshots.tracking = Some(Tracking(tokio::spawn(tracking)));
        }
        self.snapshots.delayed = Some(calls);
        None
    }

    /// Stores the state at the beginning of the newest step, and begins what waited for it.
    pub(super) async fn tracked(&mut self, state: Option<String>) -> Result<Option<Input>, Stopped> {
        let event = state.as_deref().and_then(|state| self.begins_with(state));
        self.snapshots.known = state;
        if let Some(event) = event {
            self.record.write(&mut self.conversation, vec![event], Progress::None).await?;
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

    /// The newest step with the state that it began with. One without a model call has a part for it.
    fn begins_with(&self, state: &str) -> Option<Event> {
        let (message, parts) = self.conversation.last_step().filter(|(it, _)| it.time.completed.is_none())?;
        let begun = parts.iter().map(|(_, part)| part).find(|part| matches!(part.body, Body::StepStart(_)));
        let Some(begun) = begun else {
            let body = Body::Snapshot(Snapshot { snapshot: state.to_owned() });
            return Some(self.new_part(&message.id, body));
        };
        let body = Body::StepStart(StepStart { snapshot: Some(state.to_owned()) });
        Some(Event::PartUpdated { part: Box::new(Part { body, ..begun.clone() }), at: now() })
    }

    /// What the newest step did to the files. Where nothing could change them, nobody looks again.
    pub(super) async fn see_files(&mut self, patience: Duration) -> Seen {
        let mut seen = Seen::default();
        if self.snapshots.tracking.is_some() {
            let leave = self.control.leave.now.clone();
            let state = tokio::select! {
                biased;
                () = leave.cancelled() => None,
                state = tokio::time::timeout(patience, self.snapshots.settled()) => state.ok().flatten(),
            };
            self.snapshots.stop();
            seen.late = state.as_deref().and_then(|state| self.begins_with(state));
            self.snapshots.known.clone_from(&state);
            seen.snapshot = state;
        }
        let Some((_, parts)) = self.conversation.last_step() else { return seen };
        let before = seen.snapshot.take().or_else(|| changes::start(parts).map(ToOwned::to_owned));
        if !changes_files(parts) {
            // What it began with stays, also when that was known before.
            seen.snapshot.clone_from(&before);
            return seen;
        }
        let identity = self.tools.identity();
        seen.snapshot = snapshots::track(&self.deps, identity, patience).await;
        self.snapshots.known.clone_from(&seen.snapshot);
        if let (Some(before), Some(after)) = (before, &seen.snapshot)
            && before != *after
        {
            // Only their names: the patches come with the end of the turn.
            let files = snapshots::diff(&self.deps, identity, (&before, after), 1).await;
            seen.patch = files.filter(|files| !files.is_empty()).map(|files| {
                let absolute = |path: String| format!("{}/{path}", domain::session::WORKSPACE);
                let files = files.into_iter().filter_map(|file| file.file).map(absolute).collect();
                Patch { hash: before, files }
            });
        }
        seen
    }

    /// Says of each prompt what its turn changed, and of the session what all of them did, if there is news.
    pub(super) async fn sum_up_changes(&mut self) -> Result<(), Stopped> {
        let entries = self.conversation.entries();
        let (untold, Some(whole)) = (changes::untold(entries), changes::whole(entries)) else {
            return Ok(());
        };
        if untold.is_empty() {
            return Ok(());
        }
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

/// Whether a step has a call that may change files.
fn changes_files(parts: &[(u64, Part)]) -> bool {
    let may = |(_, part): &(u64, Part)| match &part.body {
        Body::Tool(tool) => tools::find(&tool.tool).is_ok_and(tools::Tool::changes_files),
        _ => false,
    };
    parts.iter().any(may)
}
