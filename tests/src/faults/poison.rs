//! Poison sessions: each kills every worker that runs it. A real one would crash its worker through its own work. Here
//! the harness kills the worker as soon as a call of the session is running.

use super::{
    cluster::{Cluster, Service, WORKERS},
    fault::Target,
    history::{Injection, now_us},
    inject::Busy,
    workload::Workload,
};
use anyhow::Result;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use testkit::dump::{self, Holder};
use tokio_util::sync::CancellationToken;

/// What it is called among the injections.
pub const POISON: &str = "poison ends its worker";
/// Time between two looks at who runs a poison.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Workers that one poison ends at most: far more than it may take to convict it.
const ENDS_MAX: usize = 12;
/// The phase of a session that is out of service.
const QUARANTINED: i16 = 4;

/// Ends the workers of poisons until `enough`, and then until none of them is at work. Gives what was done.
///
/// # Errors
/// When a worker does not come up again.
pub async fn end_workers(
    cluster: Arc<Cluster>,
    workload: Workload,
    busy: Busy,
    enough: CancellationToken,
) -> Result<Vec<Injection>> {
    let (mut ended, mut done) = (BTreeSet::new(), vec![]);
    loop {
        let poisons = workload.poisons();
        // Postgres may be down at the moment; the next poll asks again.
        let holders = dump::holders(&cluster.postgres_url, &poisons).await;
        let is_known = holders.is_ok();
        let mut is_over = true;
        for holder in holders.unwrap_or_default() {
            is_over &= [0, QUARANTINED].contains(&holder.phase);
            let Some(worker) = strikes(&holder) else { continue };
            let target = Target::Process(Service::Worker(worker));
            let epoch = (holder.session_id.clone(), holder.epoch);
            if ended.contains(&epoch) || !busy.take(std::slice::from_ref(&target)) {
                continue;
            }
            let began_us = now_us();
            cluster.services[&Service::Worker(worker)].lock().await.kill().await;
            cluster.restart(Service::Worker(worker)).await?;
            busy.give_back(std::slice::from_ref(&target));
            ended.insert(epoch);
            let count = workload.has_ended(&holder.session_id, target.to_string());
            if count >= ENDS_MAX {
                return Ok(done);
            }
            let note = format!("{} at epoch {}", holder.session_id, holder.epoch);
            let target = target.to_string();
            done.push(Injection { kind: POISON, target, began_us, ended_us: now_us(), exit: None, note });
        }
        if enough.is_cancelled() && is_known && is_over {
            return Ok(done);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The number of the worker that a poison ends now.
fn strikes(holder: &Holder) -> Option<usize> {
    let name = holder.worker.as_deref().filter(|_| holder.phase == 2 && holder.acts)?;
    (0..WORKERS).find(|number| Service::Worker(*number).name() == name)
}
