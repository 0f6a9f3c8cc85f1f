//! The disk space of one workspace: what it takes, as of the last walk, and what may still begin in it.

use super::{count::Measure, host::HostDisk, mapped::MappedFiles, space::Space, survey};
use crate::{error::Error, isolation::priority, sandbox::Sandbox};
use domain::ids::TenantId;
use rpc::v1::{ErrorCode, ExecEnd};
use shares::Shares;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{self, OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

/// Programs that make a full workspace smaller, or a directory open to those that do. A command that begins with one of them may run in it.
const CLEANERS: [&str; 8] = ["chmod", "du", "find", "ls", "rm", "rmdir", "truncate", "unlink"];
/// Walks at once in one service: a walk of a large tree takes seconds, so a few tenants must not have all. Each keeps as many directories open as the tree is
/// deep. A call that needs one waits up to 30 seconds for another call on its workspace, and again as long for its turn. Beyond it: `sandbox_busy`.
const WALKS_MAX: u32 = 8;
/// Those of one tenant. Beyond it: `sandbox_busy`.
pub(super) const WALKS_TENANT_MAX: usize = 2;
/// Longest wait for a walk. The longest walk takes some ten seconds.
const WALK_WAIT: Duration = Duration::from_secs(30);

/// A walk that the next command may wait for. A longer one is left to the watch, which begins it soon.
const QUICK_WALK: Duration = Duration::from_millis(50);
/// Attempts to end all programs of a sandbox before the sandbox itself is ended.
const ENDINGS_MAX: u32 = 3;
/// Longest wait until the init takes the order to end all programs. Beyond it the sandbox itself is ended.
const ENDING_WAIT: Duration = Duration::from_secs(5);

/// What a caller wants to begin.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    Command(&'a str),
    /// To write files, or to start a program that may write any.
    Write,
}

/// The disk of all workspaces and what each of them may take.
#[derive(Debug)]
pub struct Quota {
    pub limit: Space,
    pub host: HostDisk,
    /// What a workspace is that could not be counted completely.
    pub uncounted: Uncounted,
    walks: Shares<TenantId>,
}

/// What a workspace is that could not be counted completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncounted {
    /// Full: the service sees everything here, so somebody hides something.
    Full,
    /// As large as what was counted: the operator accepts that the service does not see everything.
    Counted,
}

/// The disk space of one workspace.
#[derive(Debug)]
pub struct WorkspaceDisk {
    tenant: TenantId,
    tree: PathBuf,
    quota: Arc<Quota>,
    state: Mutex<State>,
    mapped: Arc<MappedFiles>,
    /// Held by the one caller that walks. Others wait, and take what that walk finds.
    walking: sync::Mutex<()>,
    /// Held by the one command that makes a full workspace smaller.
    cleaning: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    /// The last walk; `None` before the first one.
    walk: Option<WalkRecord>,
    /// Commands that have ended so far.
    ends: u64,
    programs: Programs,
    /// Walks in a row after which the programs were ended.
    endings: u32,
}

#[derive(Debug, Clone, Default)]
struct Programs {
    sandboxes: Vec<Arc<Sandbox>>,
    /// Sandboxes that were started so far.
    starts: u64,
}

/// A walk that is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkRecord {
    pub(super) measure: Measure,
    pub(super) ended_at: Instant,
    pub(super) duration: Duration,
    /// What the machine had left when it began.
    free: Space,
    /// Commands that had ended when it began.
    ends: u64,
    /// How long programs had run when it began. `None`: the kernel does not count that.
    run_time: Option<RunTime>,
}

/// How long the programs of a workspace have run. While it stays the same, none of them has written anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RunTime {
    starts: u64,
    /// The processor time of those that still run; µs.
    processor_us: u64,
}

impl Programs {
    /// Reads how long they have run. `None`: the kernel does not count that. Blocks.
    fn run_time(&self) -> Option<RunTime> {
        let times = self.sandboxes.iter().map(|sandbox| sandbox.processor_time_us());
        Some(RunTime { starts: self.starts, processor_us: times.sum::<Option<u64>>()? })
    }
}

impl WalkRecord {
    pub(super) fn began_at(&self) -> Instant {
        self.ended_at - self.duration
    }

    /// Whether another walk costs next to nothing.
    pub(super) fn is_quick(&self) -> bool {
        self.duration <= QUICK_WALK
    }
}

impl Quota {
    /// Every workspace on `host` may take `limit`.
    pub fn new(limit: Space, host: HostDisk, uncounted: Uncounted) -> Self {
        Self { limit, host, uncounted, walks: Shares::new(WALKS_MAX, WALKS_TENANT_MAX) }
    }

    /// Whether a workspace like this may not grow any more.
    pub(super) fn is_full(&self, measure: Measure) -> bool {
        self.is_hidden(measure) || measure.space.exceeds(self.limit)
    }

    /// Whether nobody knows how large a workspace is.
    pub(super) fn is_hidden(&self, measure: Measure) -> bool {
        measure.is_partial && self.uncounted == Uncounted::Full
    }
}

impl WorkspaceDisk {
    /// The disk of the tenant's workspace in `tree`, which need not exist yet.
    pub fn new(tenant: TenantId, tree: PathBuf, quota: Arc<Quota>) -> Self {
        Self {
            tenant,
            tree,
            quota,
            state: Mutex::default(),
            mapped: Arc::default(),
            walking: sync::Mutex::default(),
            cleaning: Arc::new(Semaphore::new(1)),
        }
    }

    /// Lets the caller begin, if the machine and the workspace have space. In a full workspace only a command that makes it
    /// smaller may run, and only one at a time: it holds the permit.
    ///
    /// # Errors
    /// `disk_full` if the machine has no space, `limit_disk` if the workspace is full.
    pub async fn admit(&self, purpose: Purpose<'_>) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let measure = self.refresh().await?;
        if !self.quota.is_full(measure) {
            return Ok(None);
        }
        let permit = match purpose {
            Purpose::Command(command) if is_cleaning(command) => {
                Arc::clone(&self.cleaning).try_acquire_owned().ok()
            }
            Purpose::Command(_) | Purpose::Write => None,
        };
        let refused = || {
            Error::refused(ErrorCode::LimitDisk, format!("the workspace is full: {}", self.advice(measure)))
        };
        permit.map(Some).ok_or_else(refused)
    }

    /// Returns what the workspace takes. It takes the result of the last walk, or walks again if that result is in doubt. The service also calls this
    /// when a command has ended, so that the next command need not wait for a walk.
    ///
    /// # Errors
    /// `disk_full` if the machine has no space, `sandbox_busy` when other walks took all the time; those of the file system.
    ///
    /// Cancel-safe.
    pub async fn refresh(&self) -> Result<Measure, Error> {
        let free = self.quota.host.check()?;
        let known = || self.last_walk().filter(|walk| !self.is_in_doubt(walk, free));
        if let Some(walk) = known() {
            return Ok(walk.measure);
        }
        let _alone = timeout(WALK_WAIT, self.walking.lock()).await.map_err(|_| busy())?;
        match known() {
            Some(walk) => Ok(walk.measure),
            None => Ok(self.measure().await?.1.measure),
        }
    }

    /// Refuses when the machine has no space.
    ///
    /// # Errors
    /// `disk_full`.
    pub fn check_host(&self) -> Result<(), Error> {
        self.quota.host.check().map(drop)
    }

    /// Refuses when the machine would have no space after so many bytes more.
    ///
    /// # Errors
    /// `disk_full`.
    pub fn check_room(&self, bytes: u64) -> Result<(), Error> {
        let (host, free) = (&self.quota.host, self.quota.host.check()?);
        let left = Space { bytes: free.bytes.saturating_sub(bytes), ..free };
        if host.has_reserve(left) {
            Ok(())
        } else {
            Err(Error::refused(ErrorCode::DiskFull, host.text(left)))
        }
    }

    /// Why a limit of the disk ended a command, for a person or a model.
    pub fn explain_end(&self) -> String {
        if let Some(walk) = self.last_walk()
            && self.quota.is_full(walk.measure)
        {
            return format!("killed: the workspace is full: {}", self.advice(walk.measure));
        }
        match self.quota.host.free() {
            Ok(free) if !self.quota.host.has_reserve(free) => {
                format!("killed: {}", self.quota.host.text(free))
            }
            Ok(_) | Err(_) => {
                format!(
                    "killed: one file, or the whole workspace, grew beyond {} MiB; remove files that are not needed",
                    self.quota.limit.bytes >> 20
                )
            }
        }
    }

    /// Notes what a new workspace takes, before any program runs in it.
    pub fn note_new(&self, measure: Measure) -> Result<(), Error> {
        let free = self.quota.host.free()?;
        let mut state = self.lock();
        let (ended_at, duration, ends) = (Instant::now(), Duration::ZERO, state.ends);
        state.walk = Some(WalkRecord { measure, ended_at, duration, free, ends, run_time: None });
        Ok(())
    }

    /// Forgets what an earlier workspace of the session took.
    pub fn forget(&self) {
        self.lock().walk = None;
    }

    /// Counts the files without a name that the processes of `sandbox` hold, and ends these processes if the workspace grows too
    /// large.
    pub fn add(&self, sandbox: Arc<Sandbox>) {
        let mut state = self.lock();
        state.programs.starts += 1;
        state.programs.sandboxes.push(sandbox);
    }

    pub(super) fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(super) fn last_walk(&self) -> Option<WalkRecord> {
        self.lock().walk
    }

    /// The sandboxes that still run.
    pub(super) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.programs().sandboxes
    }

    fn programs(&self) -> Programs {
        let mut state = self.lock();
        state.programs.sandboxes.retain(|sandbox| !sandbox.is_gone());
        state.programs.clone()
    }

    /// Ends all programs. Whatever survives several attempts ends with its sandbox.
    pub(super) async fn end_programs(&self) {
        let endings = {
            let mut state = self.lock();
            state.endings += 1;
            state.endings
        };
        for sandbox in self.sandboxes() {
            let order = sandbox.end_all(ExecEnd::DiskLimit);
            if endings > ENDINGS_MAX || timeout(ENDING_WAIT, order).await.is_err() {
                sandbox.stop().await;
            }
        }
    }

    /// Notes that the programs need not be ended.
    pub(super) fn leave_programs(&self) {
        self.lock().endings = 0;
    }

    /// Notes that a command has ended: it may have written until then.
    pub fn note_end(&self) {
        self.lock().ends += 1;
    }

    /// Walks through the workspace. Returns the walk before, and this one. Dropped midway: the walk goes on, and nobody learns what
    /// it found.
    ///
    /// # Errors
    /// `sandbox_busy` when other walks took all the time; those of the file system.
    pub(super) async fn measure(&self) -> Result<(Option<WalkRecord>, WalkRecord), Error> {
        let permit = self.quota.walks.acquire(self.tenant, WALK_WAIT).await.map_err(|_| busy())?;
        // Before the walk: what a command writes until its end from now on may be missing in the measure.
        let ends = self.lock().ends;
        let (programs, mapped) = (self.programs(), Arc::clone(&self.mapped));
        let (tree, inodes_max, free) = (self.tree.clone(), self.quota.limit.inodes, self.quota.host.free()?);
        let (sender, walk) = oneshot::channel();
        // A thread of its own, because no thread may take back that it yields. It yields so that the large workspaces of a tenant, which keep a
        // processor busy, delay no start of a sandbox.
        let thread = std::thread::Builder::new().name("walk".to_owned());
        let started = thread.spawn(move || {
            // If the caller leaves, the walk goes on, and still counts as one of its tenant.
            let _permit = permit;
            priority::lower().ok();
            let started = Instant::now();
            // Before the walk: what programs write from now on may be missing in the measure.
            let run_time = programs.run_time();
            let pids: Vec<i32> = programs.sandboxes.iter().flat_map(|sandbox| sandbox.processes()).collect();
            let measured = measure(&tree, &pids, inodes_max, &mapped);
            let ended_at = Instant::now();
            let record = |measure| WalkRecord {
                measure,
                ended_at,
                duration: ended_at - started,
                free,
                ends,
                run_time,
            };
            drop(sender.send(measured.map(record)));
        });
        started.map_err(Error::io("start a walk"))?;
        let walk = walk.await.unwrap_or_else(|_| Err(io::Error::other("the walk panicked")));
        let walk = walk.map_err(Error::io("measure a workspace"))?;
        metrics::histogram!("flotilla_disk_walk_duration_ms").record(walk.duration.as_secs_f64() * 1_000.0);
        Ok((self.lock().walk.replace(walk), walk))
    }

    /// Notes a walk that found nothing.
    #[cfg(test)]
    pub(super) fn note_walk(&self, ended_at: Instant, duration: Duration) {
        let run_time = self.programs().run_time();
        let (measure, free) = (Measure::default(), Space::default());
        let mut state = self.lock();
        let ends = state.ends;
        state.walk = Some(WalkRecord { measure, ended_at, duration, free, ends, run_time });
    }

    /// Whether no program has run since a walk began, so that none can have written anything. Blocks.
    pub(super) fn is_idle_since(&self, walk: &WalkRecord) -> bool {
        walk.run_time.is_some_and(|run_time| Some(run_time) == self.programs().run_time())
    }

    /// Whether the workspace was full, and may have been cleaned since, or may have become full: a command has ended since, and another
    /// walk takes no time, or everything that the machine has lost since could be in this workspace.
    pub(super) fn is_in_doubt(&self, walk: &WalkRecord, free: Space) -> bool {
        let lost = walk.free.saturating_sub(free);
        self.quota.is_full(walk.measure)
            || (walk.ends != self.lock().ends && walk.is_quick())
            || walk.measure.space.saturating_add(lost).exceeds(self.quota.limit)
    }

    fn advice(&self, measure: Measure) -> String {
        let partial = if measure.is_partial {
            "at least, and more that cannot be counted because there are too many files or directories within directories, or because \
             programs hide what they map, "
        } else {
            ""
        };
        format!(
            "it takes {}, {partial}and the limit is {}; remove files that are not needed with one command that begins with {}; such \
             a command is ended if the workspace grows",
            measure.space,
            self.quota.limit,
            CLEANERS.join(", ")
        )
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn busy() -> Error {
    Error::refused(ErrorCode::SandboxBusy, "too many workspaces are being measured; try again later")
}

/// A workspace that does not exist takes nothing.
fn measure(tree: &Path, pids: &[i32], inodes_max: u64, mapped: &Arc<MappedFiles>) -> io::Result<Measure> {
    match survey::measure_workspace(tree, pids, inodes_max, mapped) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Measure::default()),
        other => other,
    }
}

/// Whether a command begins with a program that makes files smaller or fewer, lists them, or changes their modes.
fn is_cleaning(command: &str) -> bool {
    command.split_whitespace().next().is_some_and(|word| CLEANERS.contains(&word))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// A workspace that is never full.
    fn spacious(tree: &Path) -> WorkspaceDisk {
        let limit = Space { bytes: 1 << 40, inodes: 1 << 40 };
        let quota = Quota::new(limit, HostDisk::new("/".into(), 0), Uncounted::Full);
        WorkspaceDisk::new(TenantId(uuid::Uuid::now_v7()), tree.to_owned(), Arc::new(quota))
    }

    #[tokio::test]
    async fn a_new_workspace_is_not_measured_before_its_first_command() {
        let tree = tempfile::tempdir().unwrap();
        let disk = spacious(tree.path());
        // A walk would find another number.
        let told = Measure { space: Space { bytes: 4_096, inodes: 7 }, is_partial: false };
        disk.note_new(told).unwrap();
        disk.admit(Purpose::Command("true")).await.unwrap();
        assert_eq!(disk.last_walk().unwrap().measure, told);
        disk.note_end();
        disk.admit(Purpose::Command("true")).await.unwrap();
        assert_eq!(
            disk.last_walk().unwrap().measure.space.inodes,
            1,
            "a command ended, and a walk takes no time"
        );
    }

    #[tokio::test]
    async fn a_command_waits_for_no_walk_that_was_made_when_the_one_before_ended() {
        let tree = tempfile::tempdir().unwrap();
        let disk = spacious(tree.path());
        disk.note_new(Measure::default()).unwrap();
        disk.note_end();
        let (first, second) = tokio::join!(disk.refresh(), disk.refresh());
        assert_eq!(first.unwrap(), second.unwrap());
        let walked_at = disk.last_walk().unwrap().ended_at;
        disk.admit(Purpose::Command("true")).await.unwrap();
        assert_eq!(disk.last_walk().unwrap().ended_at, walked_at, "nobody walked again");
    }

    #[test]
    fn a_workspace_is_idle_since_a_walk_that_knows_how_long_its_programs_had_run() {
        let quota = Quota::new(Space::default(), HostDisk::new("/".into(), 0), Uncounted::Full);
        let disk = WorkspaceDisk::new(TenantId(uuid::Uuid::now_v7()), "/nowhere".into(), Arc::new(quota));
        let is_idle = || disk.is_idle_since(&disk.last_walk().unwrap());
        disk.note_walk(Instant::now(), Duration::ZERO);
        assert!(is_idle(), "no sandbox was started");
        disk.lock().programs.starts += 1;
        assert!(!is_idle(), "one was started, and has ended");
        disk.note_walk(Instant::now(), Duration::ZERO);
        assert!(is_idle());
        disk.note_new(Measure::default()).unwrap();
        assert!(!is_idle(), "nobody has walked through it yet");
    }
}
