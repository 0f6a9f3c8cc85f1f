//! The injector: starts one fault after the other at random moments. Several faults run at the same time, but never two on
//! the same target, and each is repaired in the end.
// Continues in `actions::perform`, which performs one fault.

use super::{
    actions,
    fault::{Fault, Kind, Target},
    target_locks::{TargetLocks, is_worker},
};
use crate::faults::{
    cluster::{Cluster, WORKERS},
    history::{Injection, Surprise, now_us},
    workload::sessions::Workload,
};
use anyhow::Result;
use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Time between two faults; milliseconds. At this rate a machine with two cores is always busy.
const INTERVAL_MS: std::ops::Range<u64> = 500..2_000;
/// Limit of workers that are killed, frozen or drained at the same time: the other workers must continue.
const WORKERS_DOWN_MAX: usize = 2;
/// Shortest time between two crashes of Postgres. After a start of Postgres no worker counts as dead for ten seconds.
const POSTGRES_INTERVAL: Duration = Duration::from_secs(25);

/// The limit of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The longest time.
    pub time: Duration,
    /// The largest number of faults.
    pub count: usize,
}

/// The record of the injector.
#[derive(Debug, Default)]
pub struct InjectionLog {
    /// The faults that were injected.
    pub injections: Vec<Injection>,
    /// Processes that exited by themselves.
    pub surprises: Vec<Surprise>,
}

/// The injector of one run.
pub struct Injector {
    cluster: Arc<Cluster>,
    workload: Workload,
    mix: Vec<(Kind, u32)>,
    rng: StdRng,
    locks: TargetLocks,
    running: JoinSet<(Vec<Target>, Injection)>,
    postgres_crashed_at: Option<Instant>,
    log: InjectionLog,
}

impl Injector {
    /// Creates an injector that chooses from `mix`. It uses no target that another task has locked.
    pub fn new(
        cluster: Arc<Cluster>,
        workload: Workload,
        mix: &[(Kind, u32)],
        locks: TargetLocks,
        rng: StdRng,
    ) -> Self {
        Self {
            cluster,
            workload,
            mix: mix.to_vec(),
            rng,
            locks,
            running: JoinSet::new(),
            postgres_crashed_at: None,
            log: InjectionLog::default(),
        }
    }

    /// Injects until the limit, waits until every fault is repaired, and returns the record.
    ///
    /// # Errors
    /// If a fault cannot be repaired.
    pub async fn run(mut self, limit: Limit) -> Result<InjectionLog> {
        let until = tokio::time::Instant::now() + limit.time;
        let mut started = 0;
        while started < limit.count && tokio::time::Instant::now() < until {
            let pause = Duration::from_millis(self.rng.random_range(INTERVAL_MS));
            tokio::time::sleep(pause.min(until.saturating_duration_since(tokio::time::Instant::now()))).await;
            while let Some(finished) = self.running.try_join_next() {
                let (targets, injection) = finished?;
                self.finish(&targets, injection);
            }
            self.restart_exited_processes().await?;
            started += usize::from(self.start());
        }
        while let Some(finished) = self.running.join_next().await {
            let (targets, injection) = finished?;
            self.finish(&targets, injection);
        }
        self.cluster.repair_links();
        self.restart_exited_processes().await?;
        Ok(self.log)
    }

    fn finish(&mut self, targets: &[Target], injection: Injection) {
        self.locks.unlock(targets);
        self.log.injections.push(injection);
    }

    /// Starts a fault. Returns false if the chosen target is not available.
    fn start(&mut self) -> bool {
        let Ok((kind, _)) = self.mix.choose_weighted(&mut self.rng, |(_, weight)| *weight) else {
            return false;
        };
        let kind = *kind;
        let fault = kind.choose(&mut self.rng);
        let targets = fault.targets();
        let more = targets.iter().filter(|target| is_worker(target)).count();
        if more > 0 && self.locks.workers() + more > WORKERS_DOWN_MAX.min(WORKERS - 1) {
            return false;
        }
        let is_too_soon = self.postgres_crashed_at.is_some_and(|at| at.elapsed() < POSTGRES_INTERVAL);
        if is_too_soon && matches!(fault, Fault::CrashPostgres(_)) {
            return false;
        }
        if !self.locks.lock(&targets) {
            return false;
        }
        if matches!(fault, Fault::CrashPostgres(_)) {
            self.postgres_crashed_at = Some(Instant::now());
        }
        let sessions = (0..8).filter_map(|_| self.workload.choose_session(&mut self.rng)).collect();
        let (cluster, began_us) = (Arc::clone(&self.cluster), now_us());
        self.running.spawn(async move {
            let note = format!("{fault:?}");
            let target = targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let (exit, note) = match actions::perform(&cluster, fault, sessions).await {
                Ok(exit) => (exit, note),
                Err(error) => (None, format!("{note}: failed: {error:#}")),
            };
            let injection =
                Injection { kind: kind.as_str(), target, began_us, ended_us: now_us(), exit, note };
            (targets, injection)
        });
        true
    }

    /// Records processes that exited by themselves, and restarts them.
    async fn restart_exited_processes(&mut self) -> Result<()> {
        let cluster = Arc::clone(&self.cluster);
        for (service, process) in &cluster.services {
            if self.locks.holds(&Target::Process(*service)) {
                continue;
            }
            // A fault that locks the process from now on waits for this lock, and then restarts the process itself.
            let status = process.lock().await.exit_status();
            if let Some(status) = status {
                self.record_exit(service.name(), &status);
                cluster.restart(*service).await?;
            }
        }
        if !self.locks.holds(&Target::Sandbox) {
            let status = cluster.sandbox.lock().await.exit_status();
            if let Some(status) = status {
                self.record_exit("sandbox".to_owned(), &status);
                cluster.restart_sandbox().await?;
            }
        }
        Ok(())
    }

    fn record_exit(&mut self, subject: String, status: &str) {
        let description = format!("the process exited by itself: {status}");
        self.log.surprises.push(Surprise { at_us: now_us(), subject, description });
    }
}

/// Counts the injections of each kind.
pub fn count(injections: &[Injection]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for injection in injections {
        *counts.entry(injection.kind).or_default() += 1;
    }
    counts
}
