//! Performs faults on a cluster, and repairs them.

use super::{fault::Fault, nats};
use crate::faults::{
    cluster::{Cluster, Server, Service},
    history::Exit,
    observe,
};
use anyhow::{Context as _, Result};
use bus::queue::{Mode, QueueEntry};
use domain::session::Class;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use testkit::{
    dump,
    proxy::link::{ConnectionEnd, Rules},
};

/// How long a trap waits for its moment.
const TRAP_TIME: Duration = Duration::from_secs(3);
/// Attempts to restart a server: another connection may briefly use its port.
const RESTARTS_MAX: u32 = 20;
/// Delay of each statement and of each answer before a worker is frozen: most of its transactions are then in their middle.
const STATEMENT_DELAY: Duration = Duration::from_millis(200);
/// Pause between two attempts.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// Performs a fault and repairs it. Returns the exit of a drained process.
///
/// # Errors
/// If a process does not restart, or a server cannot be reached.
pub(super) async fn perform(cluster: &Cluster, fault: Fault, sessions: Vec<String>) -> Result<Option<Exit>> {
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
        Fault::Repeat(for_ms) => repeat_messages(cluster, for_ms).await?,
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
        Fault::FlushRedis => observe::call_redis(cluster, &["FLUSHALL"]).await.map(drop)?,
        Fault::KillRedis(pause_ms) => crash_server(cluster, Server::Redis, Signal::SIGKILL, pause_ms).await?,
        Fault::FreezeRedis(for_ms) => {
            let pid = server_pid(cluster, Server::Redis).await?;
            kill(pid, Signal::SIGSTOP).context("stop Redis")?;
            pause(for_ms).await;
            kill(pid, Signal::SIGCONT).context("continue Redis")?;
        }
        Fault::KillNats(pause_ms) => crash_server(cluster, Server::Nats, Signal::SIGKILL, pause_ms).await?,
        // An "immediate" shutdown: no checkpoint, and recovery at the next start.
        Fault::CrashPostgres(pause_ms) => {
            crash_server(cluster, Server::Postgres, Signal::SIGQUIT, pause_ms).await?;
        }
        Fault::Terminate(positions) => {
            dump::terminate(&cluster.postgres_url, &positions).await.context("terminate connections")?;
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
            let until = Instant::now() + TRAP_TIME;
            while link.counts().sprung == before && Instant::now() < until {
                pause(20).await;
            }
            link.disarm();
        }
        Fault::Late(worker, server, for_ms) => late(cluster, worker, server, for_ms).await,
        Fault::LateWrite(worker, for_ms) => late_write(cluster, worker, for_ms).await,
        Fault::CutFront(gateway) => cluster.fronts[gateway].cut(ConnectionEnd::Reset),
        Fault::SilentFront(gateway, for_ms) => {
            cluster.fronts[gateway].set(Rules::half_open());
            pause(for_ms).await;
            cluster.fronts[gateway].set(Rules::default());
        }
        Fault::WakeStorm(count) => wake_storm(cluster, &sessions, count).await?,
    }
    Ok(None)
}

/// Repeats all NATS messages of a period.
async fn repeat_messages(cluster: &Cluster, for_ms: u64) -> Result<()> {
    let span = Duration::from_millis(for_ms);
    nats::repeat_everything(&cluster.nats_url, &cluster.namespace, span).await.map(drop)
}

/// Kills a worker before it receives the answers of the sandbox.
async fn kill_unheard(cluster: &Cluster, service: Service, late_ms: u64) {
    let link = &cluster.links[&(service, Server::Sandbox)];
    let late = Duration::from_millis(late_ms);
    link.set(Rules { down: Rules::slow(late, late / 4).down, ..Rules::default() });
    // A tool reads the file before it changes it. A change that starts in the middle of this time is made before the kill, and
    // the worker does not learn of it.
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

/// Makes the link silent first, so that messages wait in it. They arrive after a successor has taken over.
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

/// Freezes a worker in the middle of its transactions. They continue after a successor has taken over.
async fn late_write(cluster: &Cluster, worker: usize, for_ms: u64) {
    let link = &cluster.links[&(Service::Worker(worker), Server::Postgres)];
    link.set(Rules::slow(STATEMENT_DELAY, Duration::ZERO));
    pause(1_500).await;
    let process = &cluster.services[&Service::Worker(worker)];
    process.lock().await.signal(Signal::SIGSTOP);
    link.set(Rules::half_open());
    pause(for_ms).await;
    link.set(Rules::default());
    process.lock().await.signal(Signal::SIGCONT);
}

async fn server_pid(cluster: &Cluster, server: Server) -> Result<Pid> {
    let pids = cluster.servers.lock().await.pids();
    let pid = *pids.get(server.as_str()).with_context(|| format!("{} does not run", server.as_str()))?;
    Ok(Pid::from_raw(i32::try_from(pid).context("a process id")?))
}

async fn crash_server(cluster: &Cluster, server: Server, signal: Signal, pause_ms: u64) -> Result<()> {
    let pid = server_pid(cluster, server).await?;
    // The lock is held until the server runs again. Otherwise this task could take the exit of another server for this one.
    let mut servers = cluster.servers.lock().await;
    kill(pid, signal).with_context(|| format!("signal {}", server.as_str()))?;
    servers.next_exit().await;
    pause(pause_ms).await;
    let mut attempts = 0;
    while let Err(error) = servers.restart(server.as_str()).await {
        attempts += 1;
        if attempts == RESTARTS_MAX {
            return Err(error).with_context(|| format!("restart {}", server.as_str()));
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
    Ok(())
}

/// Sends many hints for the same sessions. Superfluous hints must have no effect.
async fn wake_storm(cluster: &Cluster, sessions: &[String], count: usize) -> Result<()> {
    let bus = bus::Bus::connect(&cluster.nats_url, &cluster.redis_url, &cluster.namespace).await?;
    let tenants: BTreeMap<String, String> =
        dump::owners(&cluster.postgres_url).await.unwrap_or_default().into_iter().collect();
    for at in 0..count {
        let Some(session) = sessions.get(at % sessions.len().max(1)) else { break };
        if let (Some(tenant), Ok(id)) = (tenants.get(session), session.parse()) {
            let tenant = tenant.parse().context("a tenant's id")?;
            let entry = QueueEntry { tenant, session: &id, class: Class::default(), share: None };
            // Without Redis there is no storm.
            drop(bus.enqueue(entry, Mode::Normal).await);
        }
        bus.ring();
    }
    Ok(())
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
