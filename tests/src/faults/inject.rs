//! The injector: one fault after the other at random moments, several at a time but never two on the same thing, and
//! each of them mended in the end.

use super::{
    cluster::{Cluster, Server, Service, WORKERS},
    fault::{Fault, Kind, Target},
    history::{Exit, Injection, Surprise, now_us},
    nats, observe,
    workload::Workload,
};
use anyhow::{Context as _, Result};
use bus::queue::{Mode, QueueEntry};
use domain::session::Class;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use testkit::{
    dump,
    proxy::{End, Rules},
};
use tokio::task::JoinSet;

/// Time between two faults; milliseconds. A machine with two cores is busy at this rate, and never quiet.
const EVERY_MS: std::ops::Range<u64> = 500..2_000;
/// Workers that are killed, frozen or drained at the same time at most: somebody must be left to go on.
const WORKERS_DOWN_MAX: usize = 2;
/// After a start of Postgres no worker counts as dead for ten seconds: crashes in a closer row would only wait.
const POSTGRES_EVERY: Duration = Duration::from_secs(25);
/// As long as a trap waits for its moment.
const TRAP: Duration = Duration::from_secs(3);
/// Tries to start a server again: another connection may have taken its port for a moment.
const RESTARTS_MAX: u32 = 20;
/// Pause between two of them.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// After this time.
    pub time: Duration,
    /// After so many faults.
    pub count: usize,
}

/// What was done, and what was seen on the way.
#[derive(Debug, Default)]
pub struct Injected {
    /// The faults.
    pub injections: Vec<Injection>,
    /// Processes that ended by themselves.
    pub surprises: Vec<Surprise>,
}

/// What somebody does harm to just now. Clones share it.
#[derive(Clone, Default)]
pub struct Busy(Arc<Mutex<BTreeSet<Target>>>);

impl Busy {
    /// Takes all of these, or none and gives false when somebody else has one.
    pub fn take(&self, targets: &[Target]) -> bool {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = !targets.iter().any(|target| taken.contains(target));
        if is_free {
            taken.extend(targets.iter().cloned());
        }
        is_free
    }

    /// Lets others have these.
    pub fn give_back(&self, targets: &[Target]) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        targets.iter().for_each(|target| {
            taken.remove(target);
        });
    }

    fn has(&self, target: &Target) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(target)
    }

    fn workers(&self) -> usize {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().filter(|target| is_worker(target)).count()
    }
}

fn is_worker(target: &Target) -> bool {
    matches!(target, Target::Process(Service::Worker(_)))
}

/// The injector of one run.
pub struct Injector {
    cluster: Arc<Cluster>,
    workload: Workload,
    mix: Vec<(Kind, u32)>,
    rng: StdRng,
    busy: Busy,
    running: JoinSet<(Vec<Target>, Injection)>,
    postgres_at: Option<Instant>,
    injected: Injected,
}

impl Injector {
    /// One that chooses from `mix`, and leaves alone what others are busy with.
    pub fn new(
        cluster: Arc<Cluster>,
        workload: Workload,
        mix: &[(Kind, u32)],
        busy: Busy,
        rng: StdRng,
    ) -> Self {
        Self {
            cluster,
            workload,
            mix: mix.to_vec(),
            rng,
            busy,
            running: JoinSet::new(),
            postgres_at: None,
            injected: Injected::default(),
        }
    }

    /// Injects until the limit, waits until everything is mended, and gives what was done.
    ///
    /// # Errors
    /// When something cannot be mended.
    pub async fn run(mut self, limit: Limit) -> Result<Injected> {
        let until = tokio::time::Instant::now() + limit.time;
        let mut started = 0;
        while started < limit.count && tokio::time::Instant::now() < until {
            let pause = Duration::from_millis(self.rng.random_range(EVERY_MS));
            tokio::time::sleep(pause.min(until.saturating_duration_since(tokio::time::Instant::now()))).await;
            while let Some(done) = self.running.try_join_next() {
                self.done(done?);
            }
            self.look_after_processes().await?;
            started += usize::from(self.start());
        }
        while let Some(done) = self.running.join_next().await {
            self.done(done?);
        }
        self.cluster.mend_links();
        self.look_after_processes().await?;
        Ok(self.injected)
    }

    fn done(&mut self, (targets, injection): (Vec<Target>, Injection)) {
        self.busy.give_back(&targets);
        self.injected.injections.push(injection);
    }

    /// Starts a fault; gives false when what was chosen is not to be had just now.
    fn start(&mut self) -> bool {
        let Ok((kind, _)) = self.mix.choose_weighted(&mut self.rng, |(_, weight)| *weight) else {
            return false;
        };
        let kind = *kind;
        let fault = kind.choose(&mut self.rng);
        let targets = fault.targets();
        let more = targets.iter().filter(|target| is_worker(target)).count();
        if more > 0 && self.busy.workers() + more > WORKERS_DOWN_MAX.min(WORKERS - 1) {
            return false;
        }
        let is_too_soon = self.postgres_at.is_some_and(|at| at.elapsed() < POSTGRES_EVERY);
        if is_too_soon && matches!(fault, Fault::CrashPostgres(_)) {
            return false;
        }
        if !self.busy.take(&targets) {
            return false;
        }
        if matches!(fault, Fault::CrashPostgres(_)) {
            self.postgres_at = Some(Instant::now());
        }
        let sessions = (0..8).filter_map(|_| self.workload.live_session(&mut self.rng)).collect();
        let (cluster, began_us) = (Arc::clone(&self.cluster), now_us());
        self.running.spawn(async move {
            let note = format!("{fault:?}");
            let target = targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let (exit, note) = match perform(&cluster, fault, sessions).await {
                Ok(exit) => (exit, note),
                Err(error) => (None, format!("{note}: failed: {error:#}")),
            };
            let injection =
                Injection { kind: kind.as_str(), target, began_us, ended_us: now_us(), exit, note };
            (targets, injection)
        });
        true
    }

    /// Notes processes that ended without having been asked to, and starts them again.
    async fn look_after_processes(&mut self) -> Result<()> {
        let cluster = Arc::clone(&self.cluster);
        for (service, process) in &cluster.services {
            if self.busy.has(&Target::Process(*service)) {
                continue;
            }
            // Whoever takes it now restarts it under this lock, or has ended it himself.
            let ended = process.lock().await.ended();
            if let Some(how) = ended {
                self.surprised(service.name(), how);
                cluster.restart(*service).await?;
            }
        }
        if !self.busy.has(&Target::Sandbox) {
            let ended = cluster.sandbox.lock().await.ended();
            if let Some(how) = ended {
                self.surprised("sandbox".to_owned(), how);
                cluster.restart_sandbox().await?;
            }
        }
        Ok(())
    }

    fn surprised(&mut self, whose: String, how: String) {
        let what = format!("the process ended by itself: {how}");
        self.injected.surprises.push(Surprise { at_us: now_us(), whose, what });
    }
}

/// How often each kind was injected, the names in order.
pub fn count(injections: &[Injection]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for injection in injections {
        *counts.entry(injection.kind).or_default() += 1;
    }
    counts
}

async fn perform(cluster: &Cluster, fault: Fault, sessions: Vec<(usize, String)>) -> Result<Option<Exit>> {
    match fault {
        Fault::Kill(service, pause_ms) => {
            cluster.services[&service].lock().await.kill().await;
            pause(pause_ms).await;
            cluster.restart(service).await?;
        }
        Fault::KillUnheard(worker, late_ms, pause_ms) => {
            kill_unheard(cluster, Service::Worker(worker), late_ms).await;
            pause(pause_ms).await;
            cluster.restart(Service::Worker(worker)).await?;
        }
        Fault::Repeat(for_ms) => repeat(cluster, for_ms).await?,
        Fault::Freeze(worker, for_ms) => freeze(cluster, worker, for_ms).await,
        Fault::Drain(worker, pause_ms) => {
            let service = Service::Worker(worker);
            let exit = cluster.services[&service].lock().await.drain().await;
            pause(pause_ms).await;
            cluster.restart(service).await?;
            return Ok(Some(exit));
        }
        Fault::KillSandbox(pause_ms) => {
            cluster.sandbox.lock().await.kill().await;
            pause(pause_ms).await;
            cluster.restart_sandbox().await?;
        }
        Fault::FlushRedis => observe::redis(cluster, &["FLUSHALL"]).await.map(drop)?,
        Fault::KillRedis(pause_ms) => crash_server(cluster, Server::Redis, Signal::SIGKILL, pause_ms).await?,
        Fault::FreezeRedis(for_ms) => {
            let pid = server_pid(cluster, Server::Redis).await?;
            kill(pid, Signal::SIGSTOP).context("stop Redis")?;
            pause(for_ms).await;
            kill(pid, Signal::SIGCONT).context("continue Redis")?;
        }
        Fault::KillNats(pause_ms) => crash_server(cluster, Server::Nats, Signal::SIGKILL, pause_ms).await?,
        // What the manual calls "immediate": no checkpoint, recovery at the next start.
        Fault::CrashPostgres(pause_ms) => {
            crash_server(cluster, Server::Postgres, Signal::SIGQUIT, pause_ms).await?;
        }
        Fault::Terminate(places) => {
            dump::terminate(&cluster.postgres_url, &places).await.context("end connections")?;
        }
        Fault::Cut(service, server, end) => cluster.links[&(service, server)].cut(end),
        Fault::Link(service, server, rules, for_ms) => {
            let link = &cluster.links[&(service, server)];
            link.set(rules);
            pause(for_ms).await;
            link.set(Rules::default());
        }
        Fault::Trap(service, trap) => {
            let link = &cluster.links[&(service, Server::Postgres)];
            let before = link.counts().sprung;
            link.trap(trap);
            let until = Instant::now() + TRAP;
            while link.counts().sprung == before && Instant::now() < until {
                pause(20).await;
            }
            link.disarm();
        }
        Fault::Late(worker, server, for_ms) => late(cluster, worker, server, for_ms).await,
        Fault::CutFront(gateway) => cluster.fronts[gateway].cut(End::Reset),
        Fault::SilentFront(gateway, for_ms) => {
            cluster.fronts[gateway].set(Rules::half_open());
            pause(for_ms).await;
            cluster.fronts[gateway].set(Rules::default());
        }
        Fault::WakeStorm(count) => wake_storm(cluster, &sessions, count).await?,
    }
    Ok(None)
}

/// Says everything again that NATS hears for a while.
async fn repeat(cluster: &Cluster, for_ms: u64) -> Result<()> {
    let span = Duration::from_millis(for_ms);
    nats::repeat_everything(&cluster.nats_url, &cluster.namespace, span).await.map(drop)
}

/// Kills a worker that does not hear what the sandbox answers.
async fn kill_unheard(cluster: &Cluster, service: Service, late_ms: u64) {
    let link = &cluster.links[&(service, Server::Sandbox)];
    let late = Duration::from_millis(late_ms);
    link.set(Rules { down: Rules::slow(late, late / 4).down, ..Rules::default() });
    // A change begins with a look. What begins in the middle of this time is made by its end, and nobody knows.
    pause(3 * late_ms).await;
    cluster.services[&service].lock().await.kill().await;
    link.set(Rules::default());
}

async fn freeze(cluster: &Cluster, worker: usize, for_ms: u64) {
    let process = &cluster.services[&Service::Worker(worker)];
    process.lock().await.signal(Signal::SIGSTOP);
    pause(for_ms).await;
    process.lock().await.signal(Signal::SIGCONT);
}

/// The link is silent first, so that what is said piles up in it; it arrives when a successor has taken over.
async fn late(cluster: &Cluster, worker: usize, server: Server, for_ms: u64) {
    let link = &cluster.links[&(Service::Worker(worker), server)];
    link.set(Rules::half_open());
    pause(700).await;
    let process = &cluster.services[&Service::Worker(worker)];
    process.lock().await.signal(Signal::SIGSTOP);
    pause(for_ms).await;
    link.set(Rules::default());
    pause(300).await;
    process.lock().await.signal(Signal::SIGCONT);
}

async fn server_pid(cluster: &Cluster, server: Server) -> Result<Pid> {
    let pids = cluster.servers.lock().await.pids();
    let pid = *pids.get(server.as_str()).with_context(|| format!("{} does not run", server.as_str()))?;
    Ok(Pid::from_raw(i32::try_from(pid).context("a process id")?))
}

async fn crash_server(cluster: &Cluster, server: Server, signal: Signal, pause_ms: u64) -> Result<()> {
    let pid = server_pid(cluster, server).await?;
    // Held until it runs again: waiting for its end must not take that of another server.
    let mut servers = cluster.servers.lock().await;
    kill(pid, signal).with_context(|| format!("signal {}", server.as_str()))?;
    servers.next_exit().await;
    pause(pause_ms).await;
    let mut tries = 0;
    while let Err(error) = servers.restart(server.as_str()).await {
        tries += 1;
        if tries == RESTARTS_MAX {
            return Err(error).with_context(|| format!("start {} again", server.as_str()));
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
    Ok(())
}

/// Hints may come at any time and any number of times: they must not mean anything.
async fn wake_storm(cluster: &Cluster, sessions: &[(usize, String)], count: usize) -> Result<()> {
    let bus = bus::Bus::connect(&cluster.nats_url, &cluster.redis_url, &cluster.namespace).await?;
    let tenants: BTreeMap<String, String> =
        dump::owners(&cluster.postgres_url).await.unwrap_or_default().into_iter().collect();
    for at in 0..count {
        let Some((_, session)) = sessions.get(at % sessions.len().max(1)) else { break };
        if let (Some(tenant), Ok(id)) = (tenants.get(session), session.parse()) {
            let tenant = tenant.parse().context("a tenant's id")?;
            let entry = QueueEntry { tenant, session: &id, class: Class::default(), share: None };
            // Redis may be away: then there is no storm.
            drop(bus.enqueue(entry, Mode::Normal).await);
        }
        bus.ring();
    }
    Ok(())
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
