//! The job of an issue or a pull request: performs what `domain::pull_request::thread` decides, until it rests.

use super::{
    error::{JobError, Refusal},
    forge::Forge,
    publication,
};
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use domain::{
    conversation::part::{Body, Part},
    ids::{SessionId, TenantId},
    money::UsdPicos,
    pull_request::{
        shown::{self, ShownCheck},
        thread::{Action, ActionOutcome, Thread, goes_on},
        view::{ChangedLines, SessionState, SessionView},
    },
    session::{Changes, Phase},
};
use rpc::v1::ErrorCode;
use store::{
    control::jobs::ClaimedJob,
    error::Error as StoreError,
    rows::session_row::Session,
    tenant::{
        forge::ThreadKey,
        jobs::{JobFence, JobRest},
    },
};
use tokio::sync::watch;

/// The kind of these jobs.
pub(super) const KIND: &str = "pull_request";
/// Actions of one round. A job that has more to do goes on with the next round, after others.
const ACTIONS_MAX: u32 = 20;
/// Time after which a job looks again at a session that goes on; milliseconds. Changes of its phase wake the job at once; its cost and its place in the queue do not.
const LOOK_MS: u64 = 60_000;

/// A round of the job.
struct Round<'a> {
    deps: &'a Deps,
    fence: &'a JobFence,
    session: SessionId,
    thread: Thread,
    /// The position up to which the inputs are taken.
    ack: u64,
}

/// Performs a round. `runs`: whether this worker may work.
///
/// # Errors
/// The job goes on later, here or elsewhere.
///
/// Dropped midway: an action was done or not, and is done again.
pub(super) async fn perform(
    deps: &Deps,
    job: &ClaimedJob,
    runs: &watch::Receiver<bool>,
) -> Result<JobRest, JobError> {
    let session = job.fence.id.parse::<SessionId>();
    let session = session.map_err(|error| JobError::Unreadable(serde::de::Error::custom(error)))?;
    let thread: Thread = serde_json::from_str(&job.state).map_err(JobError::Unreadable)?;
    let mut round = Round { deps, fence: &job.fence, session, thread, ack: job.input_ack };
    round.take_inputs().await?;
    for _ in 0..ACTIONS_MAX {
        let view = round.view().await?;
        let action = round.thread.next(&view, round.session.as_str());
        if action == Action::Rest {
            let wake_after_ms = goes_on(&view.state).then_some(LOOK_MS);
            return Ok(JobRest { seen_signals: job.signals, wake_after_ms });
        }
        if !*runs.borrow() {
            return Err(JobError::Fenced);
        }
        let done = round.act(&action).await?;
        tracing::debug!(job.id = job.fence.id, "{action:?}: {done:?}");
        round.thread.apply(&action, done, &view);
        round.save().await?;
    }
    // Others first.
    Ok(JobRest { seen_signals: job.signals, wake_after_ms: Some(0) })
}

impl Round<'_> {
    async fn take_inputs(&mut self) -> Result<(), JobError> {
        let inputs = with_store_timeout(self.deps.store.list_job_inputs(self.fence, self.ack)).await?;
        let Some(last) = inputs.last() else { return Ok(()) };
        self.ack = last.seq;
        for input in &inputs {
            self.thread.take(serde_json::from_str(&input.body).map_err(JobError::Unreadable)?);
        }
        self.save().await
    }

    async fn save(&self) -> Result<(), JobError> {
        let state = serde_json::to_string(&self.thread).map_err(JobError::Unreadable)?;
        Ok(with_store_timeout(self.deps.store.save_job(self.fence, &state, self.ack)).await?)
    }

    async fn view(&self) -> Result<SessionView, JobError> {
        let (store, tenant) = (&self.deps.store, self.fence.tenant);
        let read = async {
            match store.get_session(tenant, &self.session).await {
                Ok(session) => Ok(Some((session, store.find_newest_answer(tenant, &self.session).await?))),
                Err(StoreError::NotFound(_)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let Some((session, answer)) = with_store_timeout(read).await? else {
            let (answer_id, answer) = (String::new(), String::new());
            return Ok(SessionView {
                state: SessionState::Deleted,
                answer_id,
                answer,
                cost: UsdPicos(0),
                changes: None,
            });
        };
        let (answer_id, answer) = answer
            .map(|answer| (answer.message.id().to_string(), text_of(&answer.parts)))
            .unwrap_or_default();
        let changed = |changes: Changes| ChangedLines {
            files: changes.files,
            additions: changes.additions,
            deletions: changes.deletions,
        };
        let (cost, changes) = (session.info.cost, session.info.summary.map(changed));
        Ok(SessionView { state: state(session), answer_id, answer, cost, changes })
    }

    async fn act(&self, action: &Action) -> Result<ActionOutcome, JobError> {
        let Self { deps, fence, session, thread, .. } = self;
        let forge = Forge { deps, tenant: fence.tenant, subject: &thread.subject, session: session.as_str() };
        let done = match action {
            Action::Acknowledge(comment) => {
                forge.acknowledge(*comment).await.map(|()| ActionOutcome::Acknowledged)
            }
            Action::ShowState { comment, text } => {
                let shown = forge.show_state(*comment, &shown::mark(session.as_str()), text).await;
                shown.map(|comment| ActionOutcome::StateShown { comment, text: text.clone() })
            }
            Action::OpenPullRequest { head, base, title, body } => {
                let opened = forge.open_pull_request(head, base, title, body).await;
                if let Ok(number) = opened {
                    self.note_thread(fence.tenant, number).await?;
                }
                opened.map(|number| ActionOutcome::Opened { number })
            }
            Action::ShowCheck(check) => {
                let shown = forge.show_check(check).await;
                shown.map(|id| ActionOutcome::CheckShown(ShownCheck { id: Some(id), ..check.clone() }))
            }
            Action::Publish { branch, message } => {
                let published =
                    Box::pin(publication::publish(deps, fence.tenant, session, branch, message)).await;
                return match published {
                    Ok(commit) => Ok(ActionOutcome::Published(commit)),
                    Err(refusal) => refused(action, refusal),
                };
            }
            Action::Rest => return Ok(ActionOutcome::Acknowledged),
        };
        done.or_else(|status| refused(action, status.into()))
    }

    /// Comments on the pull request belong to the same session.
    async fn note_thread(&self, tenant: TenantId, number: u64) -> Result<(), JobError> {
        let key = ThreadKey { repository: self.thread.subject.repository_id, number };
        Ok(with_store_timeout(self.deps.store.put_thread(tenant, key, &self.session)).await?)
    }
}

/// The text of an answer, for people.
fn text_of(parts: &[(u64, Part)]) -> String {
    let texts = parts.iter().filter_map(|(_, part)| match &part.body {
        Body::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

/// What a refusal of an action means.
fn refused(action: &Action, refusal: Refusal) -> Result<ActionOutcome, JobError> {
    match refusal {
        Refusal::Later(error) => Err(error),
        Refusal::Final(Some(ErrorCode::ForgeNotFound), _)
            if matches!(action, Action::ShowState { comment: Some(_), .. }) =>
        {
            Ok(ActionOutcome::CommentGone)
        }
        Refusal::Final(_, text) => {
            tracing::info!("an action of a job is refused: {text}");
            Ok(ActionOutcome::Refused(text))
        }
    }
}

/// What a session does, for people.
fn state(session: Session) -> SessionState {
    match session.phase {
        Phase::Runnable => SessionState::Queued { position: session.queue_position },
        Phase::Running => SessionState::Working,
        Phase::Waiting => SessionState::Waiting {
            reason: session.waiting_reason.unwrap_or_default(),
            sentence: session.waiting_detail.unwrap_or_default(),
        },
        Phase::Quarantined => SessionState::Quarantined,
        Phase::Idle => match session.last_outcome {
            Some(outcome) => SessionState::Ended { outcome, error: session.last_error.unwrap_or_default() },
            // Its first prompt is about to come.
            None => SessionState::Queued { position: 0 },
        },
    }
}
