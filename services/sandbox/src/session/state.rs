//! One session on this machine: its fence, its workspace, its sandbox and its execs. Its sandbox may see the workspace
//! of another session; everything else belongs to the session alone.
//!
//! Lock order: fence, current, files, snapshots; and the files of one session at a time. A restore takes the fence of
//! its session while it holds the snapshots; no code takes the snapshots while it holds the fence.

use super::{
    draft::Draft,
    fence::{EffectPermit, Fence},
    opening::OpeningProgress,
    places::Offer,
    shared::Shared,
};
use crate::{
    disk::workspace::WorkspaceDisk,
    error::Error,
    exec::{kill, record::OUT_INSIDE, registry::Registry},
    isolation::launch::Mount,
    layout::{self, Key},
    running::{
        guard::{GuardCount, SandboxGuard},
        start::SandboxStart,
    },
    sandbox::{Sandbox, SandboxSpec},
    terminal,
    tree::{
        known::KnownSnapshot,
        meta::{Meta, TREE},
    },
    walls::Wall,
};
use rpc::v1::ErrorCode;
use shares::{Busy, Permit};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

/// Longest wait of a successor for an effect of its predecessor that is under way, before the predecessor's sandbox is
/// ended; milliseconds. Writing a file or starting a process takes far less even on a busy disk.
const SANDBOX_EFFECT_MS: u64 = 5_000;
/// Longest wait of a call for a sandbox while the tenant, or the service, runs as many as it may; milliseconds. An idle sandbox is
/// ended at once, so the call waits only while every sandbox runs a command.
const SANDBOX_PLACE_MS: u64 = 10_000;

#[derive(Debug)]
pub struct Session {
    /// Its tenant and its id.
    pub key: Key,
    pub execs: Arc<Registry>,
    pub terminals: terminal::registry::Registry,
    pub(crate) shared: Arc<Shared>,
    fence: Fence,
    pub(crate) current: Mutex<CurrentSandbox>,
    pub(crate) files: Mutex<Files>,
    /// Held by the one helper that works with the snapshots of the session's own workspace.
    pub(crate) snapshots: Mutex<KnownSnapshot>,
    /// What the opening of its own workspace brings.
    pub(crate) progress: OpeningProgress,
    /// The disk space of its own workspace.
    pub(crate) disk: Arc<WorkspaceDisk>,
    activity: watch::Sender<Activity>,
}

/// The sandbox of a session, if it runs. A task holds the lock to start or end it.
#[derive(Debug, Default)]
pub(crate) struct CurrentSandbox {
    running: Option<SessionSandbox>,
    /// Whether no exec has begun since the sandbox was started.
    is_new: bool,
}

#[derive(Debug)]
struct SessionSandbox {
    sandbox: Arc<Sandbox>,
    start: Arc<SandboxStart>,
    /// The session whose workspace it sees.
    root: Key,
}

/// The sandboxes, of any session, that see this session's own workspace. A task holds the lock to make, mount or remove
/// the workspace.
#[derive(Debug, Default)]
pub(crate) struct Files {
    sandboxes: Vec<Arc<Sandbox>>,
    /// How many were started since the service runs.
    starts: u64,
    /// Cloned files that are no workspace yet.
    pub(crate) draft: Option<Draft>,
}

impl Files {
    /// How many sandboxes were started, if all of them are gone. While one runs, the files may change at any moment.
    pub(crate) fn starts_if_quiet(&self) -> Option<u64> {
        self.sandboxes.iter().all(|sandbox| sandbox.is_gone()).then_some(self.starts)
    }

    /// Ends all of them and returns when they are gone.
    pub(crate) async fn end_all(&mut self) {
        // Forgotten only when they are gone: a caller that leaves in between ends them with its next call.
        futures::future::join_all(self.sandboxes.iter().map(|sandbox| sandbox.stop())).await;
        self.sandboxes.clear();
    }
}

/// When a call needs the place of a sandbox.
#[derive(Debug, Clone, Copy)]
enum PlaceNeed {
    Now,
    /// Perhaps soon.
    Soon,
}

#[derive(Debug, Clone, Copy)]
struct Activity {
    users: usize,
    idle_since: Instant,
}

impl GuardCount for Session {
    fn hold(&self) {
        self.activity.send_modify(|activity| activity.users += 1);
    }

    fn release(&self) {
        self.activity.send_modify(|activity| {
            activity.users -= 1;
            activity.idle_since = Instant::now();
        });
    }
}

impl Session {
    pub(crate) fn new(key: Key, shared: Arc<Shared>) -> Self {
        let execs = Arc::new(Registry::new(shared.layout.execs(&key)));
        let activity = watch::Sender::new(Activity { users: 0, idle_since: Instant::now() });
        let fence = Fence::new(shared.layout.fence(&key));
        let (current, files, snapshots) = (Mutex::default(), Mutex::default(), Mutex::default());
        let terminals = terminal::registry::Registry::default();
        let tree = shared.layout.workspace(&key).join(TREE);
        let disk = Arc::new(WorkspaceDisk::new(key.tenant, tree, Arc::clone(shared.disks.quota())));
        let progress = OpeningProgress::default();
        Self { key, execs, terminals, shared, fence, current, files, snapshots, progress, disk, activity }
    }

    /// Admits a caller with `epoch`, and refuses all lower epochs from now on, also after a restart. All of their
    /// effects are over when this returns.
    ///
    /// # Errors
    /// `epoch_stale` when a higher one was here before.
    ///
    /// Dropped midway: the file of the fence and the memory may differ; call it from a task that goes on.
    pub async fn admit(&self, epoch: u64) -> Result<(), Error> {
        if self.fence.admit(epoch).await? {
            return Ok(());
        }
        let patience = Duration::from_millis(SANDBOX_EFFECT_MS);
        let settled = match tokio::time::timeout(patience, self.fence.settle()).await {
            Ok(settled) => settled,
            Err(_) => {
                tracing::warn!("an effect of a lower epoch does not end; its sandbox is ended");
                if let Some(sandbox) = self.find_sandbox().await {
                    sandbox.stop().await;
                }
                self.fence.settle().await
            }
        };
        self.fence.raise(settled, epoch).await
    }

    /// Returns the right to have an effect now, for a caller that was admitted earlier.
    ///
    /// # Errors
    /// `epoch_stale`.
    pub async fn hold(&self, epoch: u64) -> Result<EffectPermit<'_>, Error> {
        self.fence.hold(epoch).await
    }

    /// Gives what the workspace started from.
    ///
    /// # Errors
    /// `workspace_missing`.
    pub async fn workspace(&self) -> Result<Meta, Error> {
        let missing =
            || Error::refused(ErrorCode::WorkspaceMissing, "the session has no workspace on this machine");
        self.find_workspace().await?.ok_or_else(missing)
    }

    /// Gives what the workspace started from, if there is one.
    pub async fn find_workspace(&self) -> Result<Option<Meta>, Error> {
        Meta::find(&self.shared.layout.workspace(&self.key)).await
    }

    /// As [`Files::starts_if_quiet`] of its own workspace; also `None` while a sandbox starts.
    pub(crate) fn starts_if_quiet(&self) -> Option<u64> {
        self.files.try_lock().ok()?.starts_if_quiet()
    }

    /// The directory of the files of its own workspace.
    pub(crate) fn tree(&self) -> PathBuf {
        self.shared.layout.workspace(&self.key).join(TREE)
    }

    /// Gives the sandbox, which is started in the workspace of `root` if it does not run.
    ///
    /// # Errors
    /// `workspace_missing`, `sandbox_unavailable`; `argument_invalid` when it runs in another workspace.
    pub async fn enter(self: &Arc<Self>, root: &Arc<Self>) -> Result<SandboxGuard, Error> {
        self.run_sandbox(root, PlaceNeed::Now).await
    }

    /// Starts the sandbox in the workspace of `root` for a call that may follow, unless it runs. It then is idle. No other sandbox ends for it.
    ///
    /// # Errors
    /// Those of [`Session::enter`].
    pub async fn start(self: &Arc<Self>, root: &Arc<Self>) -> Result<(), Error> {
        self.run_sandbox(root, PlaceNeed::Soon).await.map(drop)
    }

    async fn run_sandbox(self: &Arc<Self>, root: &Arc<Self>, need: PlaceNeed) -> Result<SandboxGuard, Error> {
        let mut current = self.current.lock().await;
        let (sandbox, start) = match &current.running {
            Some(running) if !running.sandbox.is_ended() => {
                if running.root != root.key {
                    let text = "the session already works in another workspace";
                    return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
                }
                (Arc::clone(&running.sandbox), Arc::clone(&running.start))
            }
            Some(_) | None => {
                let (sandbox, start) = (self.start_sandbox(root, need).await?, Arc::default());
                current.running = Some(SessionSandbox {
                    sandbox: Arc::clone(&sandbox),
                    start: Arc::clone(&start),
                    root: root.key.clone(),
                });
                current.is_new = true;
                (sandbox, start)
            }
        };
        let limits = self.shared.launcher.facts().limits;
        Ok(SandboxGuard::new(Arc::<Self>::clone(self), sandbox, start, limits, Arc::clone(&root.disk)))
    }

    /// Whether no exec has begun since the sandbox was started. The next call gives false.
    pub async fn take_is_new(&self) -> bool {
        std::mem::take(&mut self.current.lock().await.is_new)
    }

    /// Gives the running sandbox without starting one.
    pub async fn find_sandbox(&self) -> Option<Arc<Sandbox>> {
        let current = self.current.lock().await;
        let running = current.running.as_ref().map(|running| Arc::clone(&running.sandbox));
        running.filter(|sandbox| !sandbox.is_ended())
    }

    /// Ends every process of the session: its execs as [`kill::run`] does, then the sandbox with the processes they
    /// left. Returns whether there was a sandbox.
    pub async fn kill_all(&self) -> bool {
        // The lock keeps other calls from starting another sandbox.
        let mut current = self.current.lock().await;
        if let Some(SessionSandbox { sandbox, .. }) = &current.running {
            let execs = self.execs.list_running().await;
            futures::future::join_all(execs.iter().map(|exec| kill::run(exec, sandbox))).await;
        }
        Self::end_sandbox(&mut current).await
    }

    /// Ends the sandbox unless it is in use. Returns whether no sandbox is left.
    pub async fn release(&self) -> bool {
        // The lock keeps other calls from entering.
        let mut current = self.current.lock().await;
        let is_unused = self.activity.borrow().users == 0;
        if is_unused {
            Self::end_sandbox(&mut current).await;
        }
        is_unused
    }

    /// Ends the sandbox, if one runs, and returns when it is gone. Gives whether there was one.
    pub(crate) async fn end_sandbox(current: &mut CurrentSandbox) -> bool {
        let Some(SessionSandbox { sandbox, .. }) = current.running.take() else { return false };
        let was_running = !sandbox.is_ended();
        sandbox.stop().await;
        was_running
    }

    /// Starts a sandbox in the workspace of `root`, and the task that ends it.
    async fn start_sandbox(
        self: &Arc<Self>,
        root: &Arc<Self>,
        need: PlaceNeed,
    ) -> Result<Arc<Sandbox>, Error> {
        let shared = &self.shared;
        if shared.shutdown.is_cancelled() {
            return Err(Error::refused(ErrorCode::SandboxUnavailable, "the sandbox service is stopping"));
        }
        // The files come first: a clone may hold them for minutes, and the session needs no place meanwhile.
        let mut files = root.files.lock().await;
        let meta = root.workspace().await?;
        let permit = self.permit_for_sandbox(need).await?;
        let out = shared.layout.execs(&self.key);
        layout::make_passage(&out).map_err(Error::io("make the directory of execs"))?;
        let tree = root.tree();
        let network = shared.doors.mounts(&root.key);
        let mounts = [Mount::read(out, OUT_INSIDE), Mount::write(tree, "/workspace")];
        let plan = SandboxSpec {
            tenant: self.key.tenant,
            uid: shared.uid(meta.slot),
            root: shared.images.root(&meta.image).await?,
            mounts: mounts.into_iter().chain(network).collect(),
            options: meta.options,
            permit: Some(permit),
        };
        let started = Instant::now();
        let quiet = files.starts_if_quiet();
        // Also if it fails: programs may have run.
        files.starts += 1;
        let start = Sandbox::start(&shared.launcher, &shared.tasks, plan);
        let (sandbox, ()) = tokio::join!(start, root.add_fingerprint(quiet));
        let sandbox = Arc::new(sandbox?);
        if !sandbox.bounds_terminals() && !shared.config.without.contains(&Wall::Terminals) {
            sandbox.stop().await;
            let text = "the terminals of the sandbox cannot be bounded; try again";
            return Err(Error::refused(ErrorCode::SandboxUnavailable, text));
        }
        metrics::histogram!("flotilla_sandbox_start_duration_ms")
            .record(started.elapsed().as_secs_f64() * 1_000.0);
        files.sandboxes.retain(|other| !other.is_gone());
        files.sandboxes.push(Arc::clone(&sandbox));
        root.disk.add(Arc::clone(&sandbox));
        shared.disks.add(&root.disk);
        drop(files);
        let (session, root, ended) = (Arc::clone(self), Arc::clone(root), Arc::clone(&sandbox));
        shared.tasks.spawn("sandbox idle", async move {
            session.end_when_idle(&ended).await;
            // This reference keeps the root in memory, and with it the list of sandboxes that use its workspace.
            drop(root);
        });
        Ok(sandbox)
    }

    /// Adds a fingerprint to the newest snapshot while a sandbox starts, as [`KnownSnapshot::add_fingerprint`]. A snapshot that is being taken gets its own.
    async fn add_fingerprint(&self, starts: Option<u64>) {
        if let Ok(mut known) = self.snapshots.try_lock() {
            known.add_fingerprint(starts, self.tree()).await;
        }
    }

    /// Gets permission to start a sandbox. At the limit, one that is needed now waits, and an idle one ends.
    async fn permit_for_sandbox(&self, need: PlaceNeed) -> Result<Permit, Error> {
        let (places, tenant) = (&self.shared.places, self.key.tenant);
        let text = match need {
            PlaceNeed::Now => match places.take(tenant, Duration::from_millis(SANDBOX_PLACE_MS)).await {
                Ok(permit) => return Ok(permit),
                Err(Busy::Own) => {
                    "all sandboxes that the tenant may run on this machine are in use; try again later"
                }
                Err(Busy::All) => "all sandboxes of this machine are in use; try again later",
            },
            PlaceNeed::Soon => match places.take_free(tenant) {
                Some(permit) => return Ok(permit),
                None => "no place for a sandbox is free; the call that needs it waits for one",
            },
        };
        Err(Error::refused(ErrorCode::SandboxUnavailable, text))
    }

    /// Ends `sandbox` when it has been idle for long enough, when another session needs its place, or when the
    /// service stops.
    async fn end_when_idle(&self, sandbox: &Sandbox) {
        let idle = self.shared.idle;
        let mut activity = self.activity.subscribe();
        loop {
            let Activity { users, idle_since } = *activity.borrow_and_update();
            let mut offer = (users == 0).then(|| self.shared.places.offer(self.key.tenant));
            let end = async {
                let Some(offer) = &mut offer else { return std::future::pending().await };
                tokio::select! {
                    () = offer.chosen() => {}
                    () = tokio::time::sleep_until(idle_since + idle) => {}
                }
            };
            tokio::select! {
                () = sandbox.ended() => return,
                () = self.shared.shutdown.cancelled() => return sandbox.stop().await,
                _ = activity.changed() => continue,
                () = end => {}
            }
            // The lock keeps other calls from entering.
            let _current = self.current.lock().await;
            let now = *self.activity.borrow();
            // If a call entered in this moment, another sandbox must end instead.
            if now.users == 0 && now.idle_since == idle_since {
                let _ending = offer.map(Offer::accept);
                sandbox.stop().await;
                return;
            }
        }
    }
}
