//! Poison sessions: each kills every worker that runs it. A real one would crash its worker through its own work. Here
//! the harness kills the worker as soon as a call of the session is running.

use super::{fault::Target, target_locks::TargetLocks};
use crate::faults::{
    cluster::{Cluster, Service, WORKERS},
    history::{Injection, now_us},
    workload::sessions::Workload,
};
use anyhow::Result;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use testkit::dump::{self, Holder};
use tokio_util::sync::CancellationToken;

pub const POISON: &str = "poison kills its worker";
/// Time between two polls of the holders of poisons.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Limit of workers that one poison kills: far more than the attempts before its quarantine, also if other faults end its
/// commands, which counts as progress.
const KILLS_MAX: usize = 30;
/// The phase of a quarantined session.
const QUARANTINED: i16 = 4;

/// Kills the workers of poisons until `stop`, and then until no poison runs. Returns the injections.
///
/// # Errors
/// If a worker does not restart.
pub async fn kill_workers(
    cluster: Arc<Cluster>,
    workload: Workload,
    locks: TargetLocks,
    stop: CancellationToken,
) -> Result<Vec<Injection>> {
    let (mut killed, mut spared, mut injections) = (BTreeSet::new(), BTreeSet::new(), vec![]);
    loop {
        let poisons = workload.poisons();
        // Postgres may be down at the moment; the next poll asks again.
        let holders = dump::holders(&cluster.postgres_url, &poisons).await;
        let is_known = holders.is_ok();
        let mut all_parked = true;
        for holder in holders.unwrap_or_default() {
            all_parked &= [0, QUARANTINED].contains(&holder.phase);
            let Some(worker) = worker_to_kill(&holder) else { continue };
            let target = Target::Process(Service::Worker(worker));
            let epoch = (holder.session_id.clone(), holder.epoch);
            if spared.contains(&holder.session_id)
                || killed.contains(&epoch)
                || !locks.lock(std::slice::from_ref(&target))
            {
                continue;
            }
            let began_us = now_us();
            cluster.services[&Service::Worker(worker)].lock().await.kill().await;
            cluster.restart(Service::Worker(worker)).await?;
            locks.unlock(std::slice::from_ref(&target));
            killed.insert(epoch);
            let count = workload.record_kill(&holder.session_id, target.to_string());
            if count >= KILLS_MAX {
                spared.insert(holder.session_id.clone());
            }
            let note = format!("{} at epoch {}", holder.session_id, holder.epoch);
            let target = target.to_string();
            injections.push(Injection {
                kind: POISON,
                target,
                began_us,
                ended_us: now_us(),
                exit: None,
                note,
            });
        }
        if stop.is_cancelled() && is_known && all_parked {
            return Ok(injections);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the number of the worker that runs a call of a poison.
fn worker_to_kill(holder: &Holder) -> Option<usize> {
    let name = holder.worker.as_deref().filter(|_| holder.phase == 2 && holder.acts)?;
    (0..WORKERS).find(|number| Service::Worker(*number).name() == name)
}
