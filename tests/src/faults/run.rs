//! One run: starts the system, its clients and its observers, injects faults, and checks the record.

use super::{
    check::{promises, violation::Violation},
    cluster::{Cluster, Setup},
    history::History,
    inject::{
        fault::Kind,
        injector::{InjectionLog, Injector, Limit},
        poison,
        target_locks::TargetLocks,
    },
    observe,
    workload::{
        client::Client,
        people,
        sessions::{Counts, POISON_LIFETIME, Workload},
    },
};
use anyhow::{Context as _, Result};
use rand::{SeedableRng as _, rngs::StdRng};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The concurrent sessions of each tenant; tenant 0 is the heavy one.
const SESSIONS: [usize; 4] = [12, 2, 2, 2];
/// How long the system runs before the first fault.
const WARM_UP: Duration = Duration::from_secs(2);

/// Time limit for clients to see that the system is settled: longer than a subscriber takes to detect a dead stream and to
/// reconnect.
const CLIENTS_END: Duration = Duration::from_secs(40);

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of the prompts, the faults and their order.
    pub seed: u64,
    pub limit: Limit,
    /// The kinds of faults and their weights.
    pub mix: Vec<(Kind, u32)>,
    /// The `flotilla` program.
    pub program: PathBuf,
    /// Number of loops of each worker.
    pub slots: u32,
}

/// The findings of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The record of the observers.
    pub history: History,
    pub violations: Vec<Violation>,
    /// The size of the run.
    pub counts: Counts,
    /// The directory with all logs; kept if a promise was broken.
    pub directory: Option<PathBuf>,
}

/// Performs a run.
///
/// # Errors
/// If the harness itself fails: a program is missing, a server does not start, or an observer fails.
pub async fn run(plan: &Plan) -> Result<Outcome> {
    let directory = directory()?;
    let setup =
        Setup { directory: directory.path().to_owned(), program: plan.program.clone(), slots: plan.slots };
    let (history, counts) = match perform(plan, &setup).await {
        Ok(result) => result,
        Err(error) => {
            return Err(error.context(format!("the logs are kept in {}", directory.keep().display())));
        }
    };
    let violations = promises::all(&history);
    let kept_directory = (!violations.is_empty()).then(|| directory.keep());
    if let Some(kept_directory) = &kept_directory {
        let json = serde_json::to_vec(&history).context("write the history")?;
        std::fs::write(kept_directory.join("history.json"), json).context("write the history")?;
        let json = serde_json::to_vec_pretty(&violations).context("write the violations")?;
        std::fs::write(kept_directory.join("violations.json"), json).context("write the violations")?;
    }
    Ok(Outcome { history, violations, counts, directory: kept_directory })
}

/// Creates the directory of the run. Workspaces belong to other users, who must be able to enter it.
fn directory() -> Result<TempDir> {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let created = tempfile::Builder::new().prefix("flotilla-faults-").permissions(open).tempdir();
    created.context("create a directory")
}

async fn perform(plan: &Plan, setup: &Setup) -> Result<(History, Counts)> {
    let cluster = Arc::new(Cluster::start(setup).await?);
    let surprises = Arc::new(Mutex::new(vec![]));
    let mut clients = vec![];
    for (tenant, sessions) in SESSIONS.iter().enumerate() {
        let api = cluster.tenant(&format!("tenant-{tenant}")).await;
        let client = Client::new(tenant, &api, &cluster.gateway_urls(), Arc::clone(&surprises))?;
        clients.push((client, *sessions));
    }
    let (watcher, answers) = (observe::Watcher::start(cluster.model.journal.clone()), Arc::default());
    let mut people = JoinSet::new();
    for (client, _) in &clients {
        people.spawn(people::answer(client.clone(), plan.seed, Arc::clone(&answers)));
    }
    let workload = Workload::new(plan.seed);
    let poison_until = Instant::now() + plan.limit.time.saturating_sub(POISON_LIFETIME);
    let mut drivers = workload.begin(&clients, poison_until);
    let injected = inject(plan, &cluster, &workload).await?;
    workload.stop();
    let mut final_state = observe::settle(&cluster).await?;
    let clients_end = async {
        while let Some(driver) = drivers.join_next().await {
            driver.context("a client")?;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(CLIENTS_END, clients_end).await {
        Ok(ended) => ended?,
        // The transcripts then lack the events that the clients missed.
        Err(_) => drivers.abort_all(),
    }
    // A session that does not settle keeps its resources. One violation is enough.
    if final_state.unsettled.is_empty() {
        final_state.leftovers = observe::await_release(&cluster).await?;
    }
    let (requests, stalls) = watcher.finish(&cluster.model.journal).await?;
    let mut injections = injected.injections;
    injections.extend(stalls);
    injections.sort_by_key(|injection| injection.began_us);
    let mut surprises = surprises.lock().unwrap_or_else(PoisonError::into_inner).clone();
    surprises.extend(injected.surprises);
    let mut history = History {
        sessions: testkit::dump::sessions(&cluster.postgres_url).await.context("read the sessions")?,
        effects: observe::effects(&cluster.workspaces())?,
        answers: answers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        requests,
        injections,
        surprises,
        final_state,
        ..History::default()
    };
    workload.write_into(&mut history);
    Ok((history, workload.counts()))
}

/// Injects faults until the limit, while poisons kill their workers; waits until every fault is repaired.
async fn inject(plan: &Plan, cluster: &Arc<Cluster>, workload: &Workload) -> Result<InjectionLog> {
    tokio::time::sleep(WARM_UP).await;
    let (locks, stop) = (TargetLocks::default(), CancellationToken::new());
    let poisons = poison::kill_workers(Arc::clone(cluster), workload.clone(), locks.clone(), stop.clone());
    let mut poisons = tokio::spawn(poisons);
    let rng = StdRng::seed_from_u64(plan.seed);
    let injector = Injector::new(Arc::clone(cluster), workload.clone(), &plan.mix, locks, rng);
    let mut injected = injector.run(plan.limit).await.context("inject faults")?;
    stop.cancel();
    // A poison that is not quarantined in this time will never be. The history shows what happened to it.
    match tokio::time::timeout(POISON_LIFETIME, &mut poisons).await {
        Ok(ended) => injected.injections.extend(ended.context("poisons")??),
        Err(_) => poisons.abort(),
    }
    Ok(injected)
}
