//! The worker's sign of life: renewed in Postgres (what counts) and Redis (what is quick) from a thread of its own, so
//! that busy loops do not starve it, and only while the main runtime answers, so that a stuck process does not look alive.

use crate::{
    clock::{self, boot_ms},
    config::Config,
    deps::{Deps, connect},
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

/// What a worker knows of its lease; clones share it.
#[derive(Clone)]
pub(crate) struct Lease {
    /// Whether the lease certainly runs.
    pub(crate) runs: watch::Receiver<bool>,
    /// Renewals in Postgres without a failure between them.
    pub(crate) streak: watch::Receiver<u32>,
    /// Whether an operator asks this worker to hand its sessions over.
    pub(crate) drain_asked: watch::Receiver<bool>,
    draining: watch::Sender<bool>,
    stopping: tokio_util::sync::CancellationToken,
    stopped: tokio_util::sync::CancellationToken,
    found: Arc<tokio::sync::Mutex<mpsc::Receiver<(TenantId, SessionId)>>>,
}

impl Lease {
    /// Waits for a session of this worker whose abort a renewal found. Cancel-safe.
    pub(crate) async fn next_nudge(&self) -> (TenantId, SessionId) {
        match self.found.lock().await.recv().await {
            Some(place) => place,
            None => std::future::pending().await,
        }
    }

    /// Says in the worker's row whether it takes no more sessions.
    pub(crate) fn drain(&self, draining: bool) {
        self.draining.send_replace(draining);
    }

    /// Ends the lease; the worker has no session left.
    pub(crate) async fn stop(&self) {
        self.stopping.cancel();
        let patience = Duration::from_millis(limits::LEASE_STOP_MS);
        if tokio::time::timeout(patience, self.stopped.cancelled()).await.is_err() {
            tracing::warn!("the lease was not given back; it ends by itself in {} ms", limits::LEASE_TTL_MS);
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
    /// What the worker can do, until that was told.
    offer: Option<Arc<Capabilities>>,
    /// When the last successful renewal in Postgres began.
    renewed_ms: u64,
}

/// Starts the thread. It ends with [`Lease::stop`].
///
/// # Errors
/// When the thread or its connections cannot be made.
pub(crate) fn start(config: &Config, deps: &Arc<Deps>, service: chassis::Service) -> anyhow::Result<Lease> {
    let (runs_sender, runs) = watch::channel(false);
    let (streak_sender, streak) = watch::channel(0);
    let (draining, draining_receiver) = watch::channel(false);
    let (drain_asked_sender, drain_asked) = watch::channel(false);
    let (nudges, found) = mpsc::channel(limits::NUDGES_MAX);
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
        found: Arc::new(tokio::sync::Mutex::new(found)),
    };
    let (config, incarnation, name) = (config.clone(), deps.incarnation, deps.name.clone());
    let offer = Capabilities { models: deps.providers.providers.facts(), tools: crate::tools::all() };
    let ticked = Arc::clone(&tick);
    service.tasks.spawn("watchdog", tick_until(ticked, stopping.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the lease's runtime")?;
    let span = tracing::Span::current();
    // However the thread ends, nothing is begun after it.
    let ended = EndsRight(runs_sender.clone());
    let run = move || {
        let (_entered, _ended) = (span.enter(), ended);
        runtime.block_on(async move {
            // A connection that hangs must not be the only one.
            let connected = connect(&config.backends, 3).await;
            let (store, bus) = match connected {
                Ok(both) => both,
                Err(error) => return tracing::error!("the lease's thread has no connections: {error:#}"),
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
                tracing::warn!(error = &error as &dyn std::error::Error, "the lease was not given back");
            }
            stopped.cancel();
        });
    };
    std::thread::Builder::new().name("lease".to_owned()).spawn(run).context("start the lease's thread")?;
    Ok(lease)
}

/// Says that the lease does not run when it is dropped.
struct EndsRight(watch::Sender<bool>);

impl Drop for EndsRight {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

async fn tick_until(tick: Arc<AtomicU64>, stopping: tokio_util::sync::CancellationToken) {
    let mut interval = tokio::time::interval(Duration::from_millis(limits::LEASE_WATCHDOG_MS / 6));
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
        // Looks at the clock more often than it renews: a lease that ran out must be noticed at once.
        let mut look = tokio::time::interval(Duration::from_millis(limits::HEARTBEAT_MS / 8));
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = interval.tick() => {
                    // Bounded: meanwhile nobody looks whether the lease still runs.
                    let patience = Duration::from_millis(limits::LEASE_ANSWER_MS);
                    if tokio::time::timeout(patience, self.renew()).await.is_err() {
                        self.streak.send_replace(0);
                        tracing::warn!("the lease was not renewed in time");
                    }
                }
                _ = look.tick() => {}
            }
            let runs =
                boot_ms().saturating_sub(self.renewed_ms) < limits::LEASE_TTL_MS - limits::LEASE_MARGIN_MS;
            if self.runs.send_if_modified(|known| std::mem::replace(known, runs) != runs) && !runs {
                tracing::warn!("the lease may have ended: nothing new is started until it is renewed");
            }
        }
    }

    async fn renew(&mut self) {
        let begun = boot_ms();
        if begun.saturating_sub(self.tick.load(Ordering::Relaxed)) > limits::LEASE_WATCHDOG_MS {
            tracing::warn!("the worker is too busy to answer itself: its lease is not renewed");
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
                clock::set(renewed.now, begun);
                self.streak.send_modify(|streak| *streak = streak.saturating_add(1));
                self.health.set("postgres", Ok(()));
                self.drain_asked.send_if_modified(|known| {
                    std::mem::replace(known, renewed.drain_asked) != renewed.drain_asked
                });
                for place in renewed.aborts {
                    // A full queue is told again by the next renewal.
                    if self.nudges.try_send((place.tenant, place.session)).is_err() {
                        break;
                    }
                }
            }
            Err(error) => {
                self.streak.send_replace(0);
                self.health.set("postgres", Err(format!("the lease cannot be renewed: {error}")));
                tracing::warn!(error = &error as &dyn std::error::Error, "the lease cannot be renewed");
            }
        }
        // An error of Redis never ends this: Postgres decides who is alive.
        let redis = self.bus.renew(&self.incarnation.to_string()).await;
        if redis.is_err() && domain::mutant::on(domain::mutant::Mutant::HeartbeatDies) {
            std::future::pending::<()>().await;
        }
        metrics::gauge!("flotilla_redis_up").set(if redis.is_ok() { 1.0 } else { 0.0 });
        metrics::gauge!("flotilla_nats_up").set(if self.bus.ping_nats().is_ok() { 1.0 } else { 0.0 });
    }
}
