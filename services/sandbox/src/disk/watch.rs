//! Measures the workspaces in which programs run, ends the programs of those that grow beyond their limit, and reports
//! whether the machine has its reserve.

use super::{
    space::Space,
    workspace::{Quota, WalkRecord, WorkspaceDisk},
};
use chassis::{admin::Health, tasks::Tasks};
use domain::ids::TenantId;
use futures::future::join_all;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// The pause between two looks at the machine's disk. One costs microseconds.
const TICK: Duration = Duration::from_millis(250);
/// When the machine's disk has lost so much since it last did, every workspace is measured at once; bytes. A program can
/// write as much in some tenths of a second. A quarter of a workspace's limit, if that is less.
const FALL_BYTES: u64 = 64 * 1024 * 1024;
/// The same in inodes.
const FALL_INODES: u64 = 5_000;
/// Time that the walks of one tenant may take in one round, by how long the last ones took. The others are due in the next round: the small
/// workspaces of other tenants must not wait for all large ones of one.
const ROUND_TENANT_MAX: Duration = Duration::from_secs(1);
/// The pause between two walks of a workspace while the machine's disk is quiet.
const QUIET_PAUSE: Duration = Duration::from_secs(2);
/// A slow walk makes its pause longer, so that it takes a twentieth of the time while its workspace cannot be full,
const QUIET_FACTOR: u32 = 20;
/// a third while it can,
const DOUBT_FACTOR: u32 = 2;
/// and half while it is.
const FULL_FACTOR: u32 = 1;

/// The workspaces in which programs run.
#[derive(Debug)]
pub struct DiskWatch {
    quota: Arc<Quota>,
    watched: Mutex<Vec<Weak<WorkspaceDisk>>>,
    /// Whether the machine's disk has lost much since the last round of walks.
    is_falling: AtomicBool,
}

impl DiskWatch {
    /// Watches nothing yet.
    pub fn new(quota: Arc<Quota>) -> Self {
        Self { quota, watched: Mutex::default(), is_falling: AtomicBool::new(false) }
    }

    /// What each workspace may take.
    pub fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }

    /// Watches a workspace as long as one of its sandboxes runs.
    pub fn add(&self, disk: &Arc<WorkspaceDisk>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if !watched.iter().any(|other| other.as_ptr() == Arc::as_ptr(disk)) {
            watched.push(Arc::downgrade(disk));
        }
    }

    /// Starts the two tasks, which end with `shutdown`.
    pub fn start(self: &Arc<Self>, tasks: &Tasks, health: Health, shutdown: &CancellationToken) {
        let own = (Arc::clone(self), health, shutdown.clone());
        tasks.spawn_loop("disk space", move || {
            let (watch, health, stop) = own.clone();
            async move { watch.watch_host(&health, &stop).await }
        });
        let own = (Arc::clone(self), shutdown.clone());
        tasks.spawn_loop("disk walks", move || {
            let (watch, stop) = own.clone();
            async move { watch.walk(&stop).await }
        });
    }

    async fn watch_host(&self, health: &Health, shutdown: &CancellationToken) {
        let host = &self.quota.host;
        let limit = self.quota.limit;
        let fall =
            Space { bytes: FALL_BYTES.min(limit.bytes / 4), inodes: FALL_INODES.min(limit.inodes / 4) };
        let mut highest: Option<Space> = None;
        let mut had_reserve = true;
        loop {
            match host.free() {
                Ok(free) => {
                    let before = highest.unwrap_or(free);
                    let fell = before.saturating_sub(free).exceeds(fall);
                    if fell || host.is_critical(free) {
                        self.is_falling.store(true, Ordering::Relaxed);
                    }
                    // A slow fall counts as well: it is measured from the last walk, or from the highest point since.
                    let is_higher = free.bytes > before.bytes && free.inodes >= before.inodes;
                    if fell || is_higher || highest.is_none() {
                        highest = Some(free);
                    }
                    let has_reserve = host.has_reserve(free);
                    if had_reserve != has_reserve {
                        tracing::warn!(has_reserve, "the free space of the disk passed the reserve: {free}");
                        had_reserve = has_reserve;
                    }
                    metrics::gauge!("flotilla_sandbox_disk_free_bytes").set(free.bytes as f64);
                    metrics::gauge!("flotilla_sandbox_disk_low").set(f64::from(u8::from(!has_reserve)));
                    health.set("disk", if has_reserve { Ok(()) } else { Err(host.text(free)) });
                }
                Err(error) => health.set("disk", Err(error.to_string())),
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    async fn walk(&self, shutdown: &CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
            let is_falling = self.is_falling.swap(false, Ordering::Relaxed);
            let (due, is_complete) = round(self.due(is_falling));
            if is_falling && !is_complete {
                self.is_falling.store(true, Ordering::Relaxed);
            }
            // Tenants share the walks, so each waits for few of the others.
            let walks =
                due.into_iter().map(|disk| async move { (self.check(&disk).await.unwrap_or(0), disk) });
            let growths: Vec<(u64, Arc<WorkspaceDisk>)> = join_all(walks).await;
            let largest = growths.into_iter().max_by_key(|(growth, _)| *growth);
            // Nothing new begins, but the reserve still shrinks: a program that runs takes it.
            if let Some((growth, disk)) = largest
                && growth > 0
                && self.quota.host.free().is_ok_and(|free| self.quota.host.is_critical(free))
            {
                tracing::warn!(
                    "the programs of the workspace that grew most are ended: the machine's disk is nearly full"
                );
                disk.end_programs().await;
            }
        }
    }

    /// The workspaces whose pause is over.
    fn due(&self, is_falling: bool) -> Vec<Arc<WorkspaceDisk>> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|disk| disk.upgrade().is_some_and(|disk| !disk.sandboxes().is_empty()));
        let now = Instant::now();
        let free = self.quota.host.free().ok();
        let is_critical = free.is_none_or(|free| self.quota.host.is_critical(free));
        // Everything that the machine has lost since the last walk may be in one workspace. What others gave back meanwhile may be there too; the
        // quiet pause bounds for how long.
        let may_be_full = |disk: &WorkspaceDisk, walk: &WalkRecord| {
            (is_falling && walk.is_quick()) || free.is_none_or(|free| disk.is_in_doubt(walk, free))
        };
        let is_due = |disk: &Arc<WorkspaceDisk>| {
            let Some(walk) = disk.last_walk() else { return true };
            let pause = if self.quota.is_full(walk.measure) {
                walk.duration * FULL_FACTOR
            } else if is_critical || may_be_full(disk, &walk) {
                walk.duration * DOUBT_FACTOR
            } else {
                QUIET_PAUSE.max(walk.duration * QUIET_FACTOR)
            };
            now >= walk.ended_at + pause
        };
        watched.iter().filter_map(Weak::upgrade).filter(is_due).collect()
    }

    /// Measures a workspace, and ends its programs if it has outgrown its limit. Returns by how many bytes it grew.
    async fn check(&self, disk: &WorkspaceDisk) -> Option<u64> {
        let (before, now) = match disk.measure().await {
            Ok((before, walk)) => (before, walk.measure),
            Err(error) => {
                tracing::warn!("a workspace cannot be measured: {}", error.chain());
                return None;
            }
        };
        let before = before?.measure;
        let limit = self.quota.limit;
        if self.quota.is_hidden(now) || now.space.outgrows(before.space, limit) {
            metrics::counter!("flotilla_workspaces_full_total").increment(1);
            tracing::info!("a workspace that takes {} is full; its programs are ended", now.space);
            disk.end_programs().await;
        } else {
            disk.leave_programs();
        }
        Some(now.space.bytes.saturating_sub(before.space.bytes))
    }
}

/// Chooses those of the due workspaces that are measured in this round, longest not measured first, and whether these are all.
fn round(mut due: Vec<Arc<WorkspaceDisk>>) -> (Vec<Arc<WorkspaceDisk>>, bool) {
    due.sort_by_key(|disk| disk.last_walk().map(|walk| walk.ended_at));
    let count = due.len();
    let mut spent: HashMap<TenantId, Duration> = HashMap::new();
    due.retain(|disk| {
        let spent = spent.entry(disk.tenant()).or_default();
        let fits = *spent < ROUND_TENANT_MAX;
        if fits {
            *spent += disk.last_walk().map_or(Duration::ZERO, |walk| walk.duration);
        }
        fits
    });
    let is_complete = due.len() == count;
    (due, is_complete)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::disk::{host::HostDisk, workspace::Uncounted};

    #[test]
    fn large_workspaces_of_one_tenant_do_not_delay_those_of_others() {
        let quota = Quota::new(Space::default(), HostDisk::new("/".into(), 0), Uncounted::Counted);
        let (quota, start) = (Arc::new(quota), Instant::now());
        let disk = |tenant, walk: Option<(u64, u64)>| {
            let disk = WorkspaceDisk::new(tenant, "/nowhere".into(), Arc::clone(&quota));
            if let Some((at, duration_ms)) = walk {
                disk.note_walk(start + Duration::from_secs(at), Duration::from_millis(duration_ms));
            }
            Arc::new(disk)
        };
        let (greedy, other) = (TenantId(uuid::Uuid::now_v7()), TenantId(uuid::Uuid::now_v7()));
        let due = [
            disk(greedy, Some((3, 600))),
            disk(greedy, Some((1, 600))),
            disk(greedy, Some((4, 600))),
            disk(other, Some((9, 5))),
            disk(greedy, None),
        ];
        let (chosen, is_complete) = round(due.to_vec());
        let places: Vec<_> = chosen
            .iter()
            .map(|disk| due.iter().position(|other| Arc::ptr_eq(disk, other)).unwrap())
            .collect();
        assert_eq!((places, is_complete), (vec![4, 1, 0, 3], false));
        assert!(round(due[3..].to_vec()).1);
    }
}
