//! Measures the workspaces in which programs run, ends the programs of those that grow beyond their limit, and reports
//! whether the machine has its reserve.

use super::{
    space::Space,
    workspace::{Quota, WALKS_TENANT_MAX, WalkRecord, WorkspaceDisk},
};
use crate::error::blocking_in_loop;
use chassis::{admin::Health, lock, tasks::Tasks};
use domain::ids::TenantId;
use futures::{StreamExt as _, stream::FuturesUnordered};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The pause between two looks at the machine's disk. One costs microseconds.
const TICK: Duration = Duration::from_millis(250);
/// When the machine's disk has lost so much since it last did, every workspace is measured at once; bytes. A program can
/// write as much in some tenths of a second. A quarter of a workspace's limit, if that is less.
const FALL_BYTES: u64 = 64 * 1024 * 1024;
/// The same in inodes.
const FALL_INODES: u64 = 5_000;
/// Longest wait for the walks that run while the machine's disk is nearly full. Then the service ends the programs of the workspace that grew most. The longest
/// walk takes some ten seconds; a tenant that makes its walk slower must not keep the disk full.
const CHOICE_WAIT: Duration = Duration::from_secs(10);
/// The pause between two walks of a workspace while the machine's disk is quiet.
const QUIET_PAUSE: Duration = Duration::from_secs(2);
/// The pause while no program of the workspace runs: only helpers of the service can change files then, and each of these has a bound of its own. A machine has
/// hundreds of idle sandboxes, and on a disk that loses space the service would walk them all four times a second.
const IDLE_PAUSE: Duration = Duration::from_secs(60);
/// The shortest pause between two walks of a workspace.
const PAUSE_MIN: Duration = Duration::from_millis(125);
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
    /// When the machine's disk last lost much.
    fell_at: Mutex<Option<Instant>>,
}

/// The work on one workspace. A slow one delays no other, except those of the same tenant that wait for its permit.
#[derive(Debug)]
struct DiskJob {
    disk: Arc<WorkspaceDisk>,
    began_at: Instant,
}

#[derive(Debug, Clone, Copy)]
enum DiskWork {
    Walk,
    EndPrograms,
}

#[derive(Debug)]
struct DiskJobEnd {
    disk: Arc<WorkspaceDisk>,
    /// By how much the workspace grew.
    growth_bytes: u64,
}

/// The choice of the workspace that grew most, out of those whose walks ran at the same time.
#[derive(Debug, Default)]
struct GrowthChoice {
    largest: Option<DiskJobEnd>,
    /// When the first walk ended.
    begun_at: Option<Instant>,
}

impl DiskWatch {
    pub fn new(quota: Arc<Quota>) -> Self {
        Self { quota, watched: Mutex::default(), fell_at: Mutex::default() }
    }

    /// What each workspace may take.
    pub fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }

    /// Watches a workspace as long as one of its sandboxes runs.
    pub fn add(&self, disk: &Arc<WorkspaceDisk>) {
        let mut watched = lock(&self.watched);
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
                        *lock(&self.fell_at) = Some(Instant::now());
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

    async fn walk(self: &Arc<Self>, shutdown: &CancellationToken) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut ends, mut jobs) = (FuturesUnordered::new(), Vec::<DiskJob>::new());
        let (mut due, mut choice) = (Vec::new(), GrowthChoice::default());
        loop {
            let now = Instant::now();
            // Nothing new begins, but the reserve still shrinks: a program that runs takes it.
            if let Some(disk) = choice.take(&jobs, now)
                && self.quota.host.free().is_ok_and(|free| self.quota.host.is_critical(free))
            {
                tracing::warn!(
                    "the programs of the workspace that grew most are ended: the machine's disk is nearly full"
                );
                jobs.push(DiskJob { disk: Arc::clone(&disk), began_at: now });
                ends.push(self.work(disk, DiskWork::EndPrograms));
            }
            for disk in next(&mut due, &jobs) {
                jobs.push(DiskJob { disk: Arc::clone(&disk), began_at: now });
                ends.push(self.work(disk, DiskWork::Walk));
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => due = self.find_due().await,
                Some(end) = ends.next() => {
                    note_end(&mut jobs, &end);
                    choice.add(end, Instant::now());
                }
            }
        }
    }

    async fn work(&self, disk: Arc<WorkspaceDisk>, work: DiskWork) -> DiskJobEnd {
        let growth_bytes = match work {
            DiskWork::Walk => self.check(&disk).await.unwrap_or(0),
            DiskWork::EndPrograms => {
                disk.end_programs().await;
                0
            }
        };
        DiskJobEnd { disk, growth_bytes }
    }

    /// The workspaces whose pause is over. No thread of the runtime waits for the counters of the kernel.
    async fn find_due(self: &Arc<Self>) -> Vec<Arc<WorkspaceDisk>> {
        let own = Arc::clone(self);
        blocking_in_loop(move || own.due()).await.unwrap_or_default()
    }

    /// The same. Blocks.
    fn due(&self) -> Vec<Arc<WorkspaceDisk>> {
        let running: Vec<Arc<WorkspaceDisk>> = {
            let mut watched = lock(&self.watched);
            watched.retain(|disk| disk.upgrade().is_some_and(|disk| !disk.sandboxes().is_empty()));
            watched.iter().filter_map(Weak::upgrade).collect()
        };
        let now = Instant::now();
        let fell_at = *lock(&self.fell_at);
        let free = self.quota.host.free().ok();
        let is_critical = free.is_none_or(|free| self.quota.host.is_critical(free));
        // Everything that the machine has lost since the last walk may be in one workspace. What others gave back meanwhile may be there too; the
        // quiet pause bounds for how long.
        let may_be_full = |disk: &WorkspaceDisk, walk: &WalkRecord| {
            (walk.is_quick() && fell_at.is_some_and(|fell_at| walk.began_at() < fell_at))
                || free.is_none_or(|free| disk.is_in_doubt(walk, free))
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
            let is_over = |pause| now >= walk.ended_at + pause;
            is_over(pause.max(PAUSE_MIN)) && (is_over(IDLE_PAUSE) || !disk.is_idle_since(&walk))
        };
        running.into_iter().filter(is_due).collect()
    }

    /// Measures a workspace, and ends its programs if it has outgrown its limit. Returns by how many bytes it grew.
    async fn check(&self, disk: &WorkspaceDisk) -> Option<u64> {
        let (before, now) = match disk.measure().await {
            Ok((before, walk)) => (before, walk.measure),
            Err(error) => {
                tracing::warn!("a workspace cannot be measured: {}", error.chain());
                // It stays due.
                tokio::time::sleep(TICK).await;
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

impl GrowthChoice {
    /// Adds a workspace, unless it has not grown.
    fn add(&mut self, end: DiskJobEnd, now: Instant) {
        let largest = self.largest.as_ref().map_or(0, |largest| largest.growth_bytes);
        if end.growth_bytes > largest {
            self.largest = Some(end);
            self.begun_at = self.begun_at.or(Some(now));
        }
    }

    /// Gives the workspace that grew most, once all walks have ended that ran when the first one ended, or once they take too long.
    fn take(&mut self, jobs: &[DiskJob], now: Instant) -> Option<Arc<WorkspaceDisk>> {
        let begun_at = self.begun_at?;
        let is_complete = jobs.iter().all(|job| job.began_at > begun_at);
        if !is_complete && now < begun_at + CHOICE_WAIT {
            return None;
        }
        self.begun_at = None;
        self.largest.take().map(|largest| largest.disk)
    }
}

/// Removes one job of a workspace: the service may end its programs while it walks through it.
fn note_end(jobs: &mut Vec<DiskJob>, end: &DiskJobEnd) {
    if let Some(place) = jobs.iter().position(|job| Arc::ptr_eq(&job.disk, &end.disk)) {
        jobs.remove(place);
    }
}

/// Takes the workspaces to measure now out of the due ones, those with the oldest walk first. Each tenant gets as many as the service measures for it at once.
/// The others stay due, so no tenant has a long queue.
fn next(due: &mut Vec<Arc<WorkspaceDisk>>, jobs: &[DiskJob]) -> Vec<Arc<WorkspaceDisk>> {
    let mut counts: HashMap<TenantId, usize> = HashMap::new();
    for job in jobs {
        *counts.entry(job.disk.tenant()).or_default() += 1;
    }
    due.retain(|disk| !jobs.iter().any(|job| Arc::ptr_eq(&job.disk, disk)));
    due.sort_by_key(|disk| disk.last_walk().map(|walk| walk.ended_at));
    let is_next = |disk: &mut Arc<WorkspaceDisk>| {
        let count = counts.entry(disk.tenant()).or_default();
        *count += 1;
        *count <= WALKS_TENANT_MAX
    };
    due.extract_if(.., is_next).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::disk::{host::HostDisk, workspace::Uncounted};

    fn quota() -> Arc<Quota> {
        Arc::new(Quota::new(Space::default(), HostDisk::new("/".into(), 0), Uncounted::Counted))
    }

    #[test]
    fn slow_walks_of_one_tenant_do_not_delay_those_of_others() {
        let (quota, start) = (quota(), Instant::now());
        let [greedy, other] = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let disk = |tenant, walk: Option<(u64, u64)>| {
            let disk = WorkspaceDisk::new(tenant, "/nowhere".into(), Arc::clone(&quota));
            if let Some((at, duration_ms)) = walk {
                disk.note_walk(start + Duration::from_secs(at), Duration::from_millis(duration_ms));
            }
            Arc::new(disk)
        };
        let due = [
            disk(greedy, Some((3, 600))),
            disk(greedy, Some((1, 600))),
            disk(greedy, Some((4, 600))),
            disk(other, Some((9, 5))),
            disk(greedy, None),
        ];
        let places = |jobs: &[DiskJob]| -> Vec<usize> {
            let chosen = next(&mut due.to_vec(), jobs);
            let place = |disk| due.iter().position(|other| Arc::ptr_eq(disk, other)).unwrap();
            chosen.iter().map(place).collect()
        };
        let job = |at: usize| DiskJob { disk: Arc::clone(&due[at]), began_at: start };
        assert_eq!(places(&[]), [4, 1, 3]);
        assert_eq!(places(&[job(4), job(1)]), [3], "the greedy tenant has two walks that do not end");
        assert_eq!(places(&[job(1), job(3)]), [4], "no workspace is measured twice at once");
        let mut jobs = vec![job(4), job(4)];
        note_end(&mut jobs, &DiskJobEnd { disk: Arc::clone(&due[4]), growth_bytes: 0 });
        assert_eq!(places(&jobs), [1, 3], "the walk goes on when the end of its programs is over");
    }

    #[test]
    fn the_workspace_that_grew_most_is_chosen_when_the_walks_of_that_time_are_over() {
        let (quota, start) = (quota(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let disk = || {
            let tenant = TenantId(uuid::Uuid::now_v7());
            Arc::new(WorkspaceDisk::new(tenant, "/nowhere".into(), Arc::clone(&quota)))
        };
        let (first, second) = (disk(), disk());
        let end =
            |disk: &Arc<WorkspaceDisk>, growth_bytes| DiskJobEnd { disk: Arc::clone(disk), growth_bytes };
        let job = |began_at| DiskJob { disk: Arc::clone(&second), began_at };
        let mut choice = GrowthChoice::default();
        choice.add(end(&first, 0), at(1));
        assert!(choice.take(&[], at(1)).is_none(), "it has not grown");
        choice.add(end(&first, 5), at(1));
        assert!(choice.take(&[job(at(0))], at(2)).is_none(), "a walk still runs");
        choice.add(end(&second, 9), at(3));
        assert!(Arc::ptr_eq(&choice.take(&[job(at(3))], at(3)).unwrap(), &second));
        assert!(choice.take(&[], at(3)).is_none());
        choice.add(end(&first, 5), at(4));
        assert!(choice.take(&[job(at(0))], at(13)).is_none());
        assert!(Arc::ptr_eq(&choice.take(&[job(at(0))], at(14)).unwrap(), &first), "a walk takes too long");
    }
}
