//! The worker's lease: renewed in Postgres, which decides, and in Redis, which is fast. A separate thread renews it, so that busy
//! loops cannot delay it, and only while the main runtime responds, so that a stuck process does not look alive.

use crate::{
    config::Config,
    process::{
        clock::{self, boot_ms},
        deps::{Deps, connect},
    },
};
use anyhow::Context as _;
use domain::{
    ids::{SessionId, TenantId},
    limits,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use store::control::workers::{Capabilities, Heartbeat};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

/// Longest wait of a worker for the renewal of its lease; milliseconds. Together with the pause between two renewals it is
/// below the time for which the worker trusts its lease.
const LEASE_ANSWER_MS: u64 = 2_000;
/// Maximum age of the last heartbeat of a worker's main runtime when the worker renews its lease; milliseconds. A stuck
/// worker must not look alive.
const LEASE_WATCHDOG_MS: u64 = 1_500;

/// The state of a worker's lease; clones share it.
#[derive(Clone)]
pub(crate) struct Lease {
    /// Whether the lease is certainly valid.
    pub(crate) runs: watch::Receiver<bool>,
    /// Consecutive successful renewals in Postgres.
    pub(crate) streak: watch::Receiver<u32>,
    /// Whether an operator has requested a drain of this worker.
    pub(crate) drain_asked: watch::Receiver<bool>,
    draining: watch::Sender<bool>,
    stopping: tokio_util::sync::CancellationToken,
    stopped: tokio_util::sync::CancellationToken,
    aborted: Arc<tokio::sync::Mutex<mpsc::Receiver<(TenantId, SessionId)>>>,
}

impl Lease {
    /// Waits until a renewal finds an aborted session of this worker. Cancel-safe.
    pub(crate) async fn next_nudge(&self) -> (TenantId, SessionId) {
        match self.aborted.lock().await.recv().await {
            Some(session) => session,
            None => std::future::pending().await,
        }
    }

    /// Records in the worker's row whether it takes no more sessions.
    pub(crate) fn drain(&self, draining: bool) {
        self.draining.send_replace(draining);
    }

    /// Ends the lease. The worker must not hold a session any more.
    pub(crate) async fn stop(&self) {
        self.stopping.cancel();
        let patience = Duration::from_millis(limits::LEASE_STOP_MS);
        if tokio::time::timeout(patience, self.stopped.cancelled()).await.is_err() {
            tracing::warn!("cannot end the lease; it expires in {} ms", limits::LEASE_TTL_MS);
        }
    }
}

struct Renewer {
    store: store::Store,
    bus: bus::Bus,
    incarnation: Uuid,
    name: String,
    slots: u32,
    tick: Arc<AtomicU64>,
    runs: watch::Sender<bool>,
    streak: watch::Sender<u32>,
    draining: watch::Receiver<bool>,
    drain_asked: watch::Sender<bool>,
    nudges: mpsc::Sender<(TenantId, SessionId)>,
    health: chassis::admin::Health,
    /// The models and tools that the worker offers, until they are stored.
    offer: Option<Arc<Capabilities>>,
    /// When the last successful renewal in Postgres began.
    renewed_ms: u64,
}

/// Starts the thread, which stores `offer` with its first renewal. It ends with [`Lease::stop`].
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn start(
    config: &Config,
    deps: &Arc<Deps>,
    offer: Capabilities,
    service: chassis::Service,
) -> anyhow::Result<Lease> {
    let (runs_sender, runs) = watch::channel(false);
    let (streak_sender, streak) = watch::channel(0);
    let (draining, draining_receiver) = watch::channel(false);
    let (drain_asked_sender, drain_asked) = watch::channel(false);
    let (nudges, aborted) = mpsc::channel(limits::NUDGES_MAX);
    let tick = Arc::new(AtomicU64::new(boot_ms()));
    let (stopping, stopped) =
        (tokio_util::sync::CancellationToken::new(), tokio_util::sync::CancellationToken::new());
    let lease = Lease {
        runs,
        streak,
        drain_asked,
        draining,
        stopping: stopping.clone(),
        stopped: stopped.clone(),
        aborted: Arc::new(tokio::sync::Mutex::new(aborted)),
    };
    let (config, incarnation, name) = (config.clone(), deps.incarnation, deps.name.clone());
    let (ticked, stop) = (Arc::clone(&tick), stopping.clone());
    service.tasks.spawn_loop("watchdog", move || tick_until(Arc::clone(&ticked), stop.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the lease's runtime")?;
    let span = tracing::Span::current();
    // However the thread ends, loops start nothing new after it.
    let ended = LeaseGuard(runs_sender.clone());
    let run = move || {
        let (_entered, _ended) = (span.enter(), ended);
        runtime.block_on(async move {
            // More than one connection, in case one hangs.
            let connected = connect(&config.backends, 3).await;
            let (store, bus) = match connected {
                Ok(both) => both,
                Err(error) => return tracing::error!("the lease thread cannot connect: {error:#}"),
            };
            let mut renewer = Renewer {
                store,
                bus,
                incarnation,
                name,
                slots: config.slots,
                tick,
                runs: runs_sender,
                streak: streak_sender,
                draining: draining_receiver,
                drain_asked: drain_asked_sender,
                nudges,
                health: service.health,
                offer: Some(Arc::new(offer)),
                renewed_ms: 0,
            };
            renewer.run(&stopping).await;
            if let Err(error) = renewer.store.forget_worker(incarnation).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot end the lease");
            }
            stopped.cancel();
        });
    };
    std::thread::Builder::new().name("lease".to_owned()).spawn(run).context("start the lease's thread")?;
    Ok(lease)
}

/// Reports an invalid lease when it is dropped.
struct LeaseGuard(watch::Sender<bool>);

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

async fn tick_until(tick: Arc<AtomicU64>, stopping: tokio_util::sync::CancellationToken) {
    let mut interval = tokio::time::interval(Duration::from_millis(LEASE_WATCHDOG_MS / 6));
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            _ = interval.tick() => tick.store(boot_ms(), Ordering::Relaxed),
        }
    }
}

impl Renewer {
    async fn run(&mut self, stopping: &tokio_util::sync::CancellationToken) {
        let mut interval = tokio::time::interval(Duration::from_millis(limits::HEARTBEAT_MS));
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Checks the clock more often than it renews: an expired lease must be noticed at once.
        let mut check = tokio::time::interval(Duration::from_millis(limits::HEARTBEAT_MS / 8));
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = interval.tick() => {
                    // Bounded, because the lease is not checked meanwhile.
                    let patience = Duration::from_millis(LEASE_ANSWER_MS);
                    if tokio::time::timeout(patience, self.renew()).await.is_err() {
                        self.streak.send_replace(0);
                        tracing::warn!("the lease was not renewed in time");
                    }
                }
                _ = check.tick() => {}
            }
            let runs =
                boot_ms().saturating_sub(self.renewed_ms) < limits::LEASE_TTL_MS - limits::LEASE_MARGIN_MS;
            if self.runs.send_if_modified(|known| std::mem::replace(known, runs) != runs) && !runs {
                tracing::warn!("the lease may have expired; loops start nothing new until it is renewed");
            }
        }
    }

    async fn renew(&mut self) {
        let begun = boot_ms();
        if begun.saturating_sub(self.tick.load(Ordering::Relaxed)) > LEASE_WATCHDOG_MS {
            tracing::warn!("the main runtime does not respond; the lease is not renewed");
            return;
        }
        let beat = Heartbeat {
            incarnation: self.incarnation,
            name: self.name.clone(),
            slots: self.slots,
            draining: *self.draining.borrow(),
            capabilities: self.offer.clone(),
        };
        match self.store.renew_worker(&beat).await {
            Ok(renewed) => {
                self.renewed_ms = begun;
                self.offer = None;
                clock::set(renewed.now, begun..boot_ms());
                self.streak.send_modify(|streak| *streak = streak.saturating_add(1));
                self.health.set("postgres", Ok(()));
                self.drain_asked.send_if_modified(|known| {
                    std::mem::replace(known, renewed.drain_asked) != renewed.drain_asked
                });
                for aborted in renewed.aborts {
                    // If the queue is full, the next renewal finds the abort again.
                    if self.nudges.try_send((aborted.tenant, aborted.session)).is_err() {
                        break;
                    }
                }
            }
            Err(error) => {
                self.streak.send_replace(0);
                self.health.set("postgres", Err(format!("cannot renew the lease: {error}")));
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot renew the lease");
            }
        }
        // An error of Redis never ends the renewals: Postgres decides which workers are alive.
        let redis = self.bus.renew(&self.incarnation.to_string()).await;
        metrics::gauge!("flotilla_redis_up").set(if redis.is_ok() { 1.0 } else { 0.0 });
        metrics::gauge!("flotilla_nats_up").set(if self.bus.ping_nats().is_ok() { 1.0 } else { 0.0 });
    }
}
