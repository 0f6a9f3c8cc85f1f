//! Finds the jobs that are due, and performs them, until the process must stop.

use super::{error::JobError, pull_request};
use crate::{
    claim::lease::Lease,
    process::{deps::Deps, store_timeout::with_store_timeout},
};
use chassis::{lock, tasks};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use store::{
    control::jobs::ClaimedJob,
    tenant::jobs::{JobFence, JobRest},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// Jobs that one worker performs at the same time: each mostly waits for a forge.
const JOBS_MAX: usize = 32;
/// Time between two looks for jobs that are due. A person waits for the answer to a comment.
const LOOK: Duration = Duration::from_millis(300);
/// Looks between two looks for jobs that this worker has and does not perform: an answer of Postgres was lost.
const LOOKS_PER_RELEASE: u32 = 20;
/// Longest time for one round of a job: that of its longest action, a push.
const ROUND_MAX: Duration = Duration::from_secs(900);
/// Pauses after a failure, by the number of those before; milliseconds. The last one counts for all further.
const PAUSES_MS: [u64; 6] = [1_000, 5_000, 20_000, 60_000, 180_000, 600_000];
/// Pause of a job that this version cannot read: another one may; milliseconds.
const UNREADABLE_PAUSE_MS: u64 = 60_000;

/// The jobs that this worker performs.
type Performed = Arc<Mutex<HashMap<(uuid::Uuid, String), JobFence>>>;

/// Performs jobs while the lease of this worker runs, until the process must stop.
pub(crate) async fn until(deps: Arc<Deps>, lease: Lease, shutdown: CancellationToken) {
    let (slots, performed) = (Arc::new(Semaphore::new(JOBS_MAX)), Performed::default());
    let mut looks = 0;
    while !shutdown.is_cancelled() {
        let is_full = if *lease.runs.borrow() {
            looks += 1;
            if looks % LOOKS_PER_RELEASE == 0 {
                release(&deps, &performed).await;
            }
            claim(&deps, &slots, &performed, &lease.runs).await
        } else {
            false
        };
        // A full list says that there may be more.
        if !is_full {
            shutdown.run_until_cancelled(tokio::time::sleep(LOOK)).await;
        }
    }
}

/// Claims as many jobs as there are free slots, and begins them. Returns whether it got all that it wanted.
async fn claim(
    deps: &Arc<Deps>,
    slots: &Arc<Semaphore>,
    performed: &Performed,
    runs: &watch::Receiver<bool>,
) -> bool {
    let wanted = slots.available_permits();
    if wanted == 0 {
        return false;
    }
    let limit = u32::try_from(wanted).unwrap_or(u32::MAX);
    let claimed = match with_store_timeout(deps.store.claim_jobs(deps.incarnation, limit)).await {
        Ok(claimed) => claimed,
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot claim jobs");
            return false;
        }
    };
    let is_full = claimed.len() == wanted;
    for job in claimed {
        let Ok(slot) = Arc::clone(slots).try_acquire_owned() else { break };
        let key = (job.fence.tenant.0, job.fence.id.clone());
        lock(performed).insert(key.clone(), job.fence.clone());
        let (deps, performed, runs) = (Arc::clone(deps), Arc::clone(performed), runs.clone());
        deps.tasks.clone().spawn("job", async move {
            Box::pin(perform(&deps, &job, &runs, slot)).await;
            lock(&performed).remove(&key);
        });
    }
    is_full
}

/// Performs a round of a job, and gives it back.
async fn perform(deps: &Deps, job: &ClaimedJob, runs: &watch::Receiver<bool>, _slot: OwnedSemaphorePermit) {
    let round = async {
        match job.kind.as_str() {
            pull_request::KIND => pull_request::perform(deps, job, runs).await,
            kind => {
                let reason = format!("this version knows no jobs of the kind {kind}");
                Err(JobError::Unreadable(serde::de::Error::custom(reason)))
            }
        }
    };
    let late = |_| JobError::Away { reason: "it takes too long".to_owned(), retry_after: None };
    let round = tokio::time::timeout(ROUND_MAX, tasks::catch_panic("job", Box::pin(round))).await;
    let result = match round.map_err(late) {
        Ok(Some(result)) => result,
        Ok(None) => Err(JobError::Away { reason: "it panicked".to_owned(), retry_after: None }),
        Err(error) => Err(error),
    };
    let given_back = match result {
        Ok(rest) => rest_job(deps, &job.fence, rest).await,
        Err(JobError::Fenced) => return,
        Err(error) => {
            let pause_ms = pause_ms(job.attempts, &error);
            tracing::info!(job.id = job.fence.id, tenant.id = %job.fence.tenant, pause_ms, "a job goes on later: {error}");
            metrics::counter!("flotilla_job_failures_total", "kind" => job.kind.clone()).increment(1);
            with_store_timeout(deps.store.fail_job(&job.fence, &error.to_string(), pause_ms)).await
        }
    };
    if let Err(error) = given_back {
        // The next look for such jobs gives it back.
        tracing::debug!(error = &error as &dyn std::error::Error, "a job is not given back");
    }
}

async fn rest_job(deps: &Deps, fence: &JobFence, rest: JobRest) -> Result<(), store::error::Error> {
    with_store_timeout(deps.store.rest_job(fence, rest)).await
}

fn pause_ms(attempts: i16, error: &JobError) -> u64 {
    let usual = PAUSES_MS[usize::try_from(attempts).unwrap_or(0).min(PAUSES_MS.len() - 1)];
    match error {
        JobError::Away { retry_after: Some(wanted), .. } => {
            // Forges say exactly when, so that no more time is lost.
            u64::try_from(wanted.as_millis()).unwrap_or(u64::MAX).max(PAUSES_MS[0])
        }
        JobError::Unreadable(_) => UNREADABLE_PAUSE_MS,
        JobError::Away { .. } | JobError::Fenced | JobError::Store(_) => usual,
    }
}

/// Gives back the jobs that this worker has and does not perform.
async fn release(deps: &Deps, performed: &Performed) {
    let performed: Vec<JobFence> = lock(performed).values().cloned().collect();
    match with_store_timeout(deps.store.release_jobs(deps.incarnation, &performed)).await {
        Ok(0) => {}
        Ok(count) => tracing::warn!("this worker had {count} jobs that it did not perform; giving them back"),
        Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "cannot give jobs back"),
    }
}
