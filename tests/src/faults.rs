//! The proof by faults. Real processes do real work while every part is broken in turn. Independent observers record
//! what happens, and a checker compares the record with the promises.
//!
//! One run: [`cluster`] starts the processes, [`workload`] gives them work, [`inject`] injects faults, [`observe`]
//! watches, [`check`] judges, [`report`] reports. The seed decides the actions and their order, but the machine decides
//! their exact timing. A replay therefore probably finds the same violation, but not certainly.

pub mod canary;
pub mod check;
pub mod client;
pub mod cluster;
pub mod fault;
pub mod history;
pub mod inject;
pub mod mutants;
pub mod nats;
pub mod observe;
pub mod people;
pub mod poison;
pub mod process;
pub mod recovery;
pub mod report;
pub mod script;
pub mod subscriber;
pub mod workload;

use anyhow::{Context as _, Result};
use check::Violation;
use client::Client;
use cluster::{Cluster, Setup};
use fault::Kind;
use history::History;
use inject::{Busy, Injected, Injector, Limit};
use rand::{SeedableRng as _, rngs::StdRng};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use workload::Workload;

/// Tenants and the sessions that each has at a time; the first one is the heavy one.
const LANES: [usize; 4] = [12, 2, 2, 2];
/// How long the system works undisturbed at first.
const WARM_UP: Duration = Duration::from_secs(2);

/// How long clients may take to see that the system is settled: longer than a subscriber takes to detect a dead stream
/// and to reconnect.
const CLIENTS_END: Duration = Duration::from_secs(40);

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides the prompts, the faults and their order.
    pub seed: u64,
    /// When to stop.
    pub limit: Limit,
    /// Which faults, and how often each.
    pub mix: Vec<(Kind, u32)>,
    /// The `flotilla` program.
    pub program: PathBuf,
    /// Loops of one worker.
    pub slots: u32,
}

/// The findings of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The record of the observers.
    pub history: History,
    /// The violations.
    pub violations: Vec<Violation>,
    /// Sessions begun and turns ended.
    pub counts: (usize, usize),
    /// Logs and all; kept when something was violated.
    pub directory: Option<PathBuf>,
}

/// Performs a run.
///
/// # Errors
/// If the harness itself fails: a program is missing, a server does not start, an observer cannot observe.
pub async fn run(plan: &Plan) -> Result<Outcome> {
    let directory = directory()?;
    let setup =
        Setup { directory: directory.path().to_owned(), program: plan.program.clone(), slots: plan.slots };
    let ran = observed(plan, &setup).await;
    let (history, counts) = match ran {
        Ok(ran) => ran,
        Err(error) => {
            return Err(error.context(format!("the logs are kept in {}", directory.keep().display())));
        }
    };
    let violations = check::all(&history);
    let kept = (!violations.is_empty()).then(|| directory.keep());
    if let Some(kept) = &kept {
        let json = serde_json::to_vec(&history).context("write the history")?;
        std::fs::write(kept.join("history.json"), json).context("write the history")?;
        let json = serde_json::to_vec_pretty(&violations).context("write the violations")?;
        std::fs::write(kept.join("violations.json"), json).context("write the violations")?;
    }
    Ok(Outcome { history, violations, counts, directory: kept })
}

/// Workspaces belong to other users: the way to them must be open.
fn directory() -> Result<TempDir> {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let made = tempfile::Builder::new().prefix("flotilla-faults-").permissions(open).tempdir();
    made.context("make a directory")
}

async fn observed(plan: &Plan, setup: &Setup) -> Result<(History, (usize, usize))> {
    let cluster = Arc::new(Cluster::start(setup).await?);
    let surprises = Arc::new(Mutex::new(vec![]));
    let mut clients = vec![];
    for (tenant, lanes) in LANES.iter().enumerate() {
        let api = cluster.tenant(&format!("tenant-{tenant}")).await;
        let client = Client::new(tenant, &api, &cluster.gateway_urls(), Arc::clone(&surprises))?;
        clients.push((client, *lanes));
    }
    let (watcher, answers) = (observe::Watcher::start(cluster.model.journal.clone()), Arc::default());
    let mut people = JoinSet::new();
    for (client, _) in &clients {
        people.spawn(people::answer(client.clone(), plan.seed, Arc::clone(&answers)));
    }
    let workload = Workload::new(plan.seed);
    let poison_until = Instant::now() + plan.limit.time.saturating_sub(workload::POISON_LIVES);
    let mut drivers = workload.begin(&clients, poison_until);
    let injected = harm(plan, &cluster, &workload).await?;
    workload.enough();
    let mut end = observe::settle(&cluster).await?;
    let clients_end = async {
        while let Some(driver) = drivers.join_next().await {
            driver.context("a client")?;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(CLIENTS_END, clients_end).await {
        Ok(ended) => ended?,
        // Events that they missed are absent from their transcripts.
        Err(_) => drivers.abort_all(),
    }
    // If a session does not settle, it keeps its resources. One violation is enough.
    if end.unsettled.is_empty() {
        end.leftovers = observe::tidy(&cluster).await?;
    }
    let (requests, stalls) = watcher.finish(&cluster.model.journal).await?;
    let mut injections = injected.injections;
    injections.extend(stalls);
    injections.sort_by_key(|injection| injection.began_us);
    let mut surprises = surprises.lock().unwrap_or_else(PoisonError::into_inner).clone();
    surprises.extend(injected.surprises);
    let mut history = History {
        sessions: testkit::dump::sessions(&cluster.postgres_url).await.context("read what is stored")?,
        effects: observe::effects(&cluster.workspaces())?,
        answers: answers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        requests,
        injections,
        surprises,
        end,
        ..History::default()
    };
    workload.tell(&mut history);
    Ok((history, workload.counts()))
}

/// Injects faults until the limit, while poisons end their workers; waits until everything is mended.
async fn harm(plan: &Plan, cluster: &Arc<Cluster>, workload: &Workload) -> Result<Injected> {
    tokio::time::sleep(WARM_UP).await;
    let (busy, enough) = (Busy::default(), CancellationToken::new());
    let poisons = poison::end_workers(Arc::clone(cluster), workload.clone(), busy.clone(), enough.clone());
    let mut poisons = tokio::spawn(poisons);
    let rng = StdRng::seed_from_u64(plan.seed);
    let injector = Injector::new(Arc::clone(cluster), workload.clone(), &plan.mix, busy, rng);
    let mut injected = injector.run(plan.limit).await.context("inject faults")?;
    enough.cancel();
    // A poison that is not quarantined by now never will be. The history shows what happened to it.
    match tokio::time::timeout(workload::POISON_LIVES, &mut poisons).await {
        Ok(ended) => injected.injections.extend(ended.context("poisons")??),
        Err(_) => poisons.abort(),
    }
    Ok(injected)
}
