//! The sessions of this machine, and what they share.

use crate::{
    code::Code,
    config::Config,
    error::Error,
    isolation::launch::Launcher,
    layout::{Key, Layout},
    session::Session,
    terminal::shares::Shares,
    workspace::{Meta, helper::Helpers},
};
use chassis::tasks::Tasks;
use domain::limits;
use std::{
    collections::{BTreeSet, HashMap},
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// User ids for sessions.
const SLOTS: u32 = 65_536;
/// Sessions in memory beyond which those are forgotten that nobody uses; all they know is on disk.
const REMEMBERED_MAX: usize = 4_096;

/// What all sessions share.
#[derive(Debug)]
pub struct Shared {
    /// The terminals that run, by tenant.
    pub terminals: Arc<Shares>,
    /// Starts sandboxes.
    pub launcher: Launcher,
    /// Runs git.
    pub helpers: Helpers,
    /// Where things lie.
    pub layout: Layout,
    /// Where tasks are spawned.
    pub tasks: Tasks,
    /// Cancelled when the service stops.
    pub shutdown: CancellationToken,
    /// The settings.
    pub config: Config,
    /// After which a sandbox ends.
    pub idle: Duration,
    pub(crate) live: Arc<Semaphore>,
    /// One permit for each call that waits for a place: whichever sandbox has been idle for longest takes it and ends.
    pub(crate) crowded: Semaphore,
    slots: Mutex<BTreeSet<u32>>,
}

/// The sessions of this machine.
#[derive(Debug)]
pub struct Sessions {
    /// What they share.
    pub shared: Arc<Shared>,
    sessions: Mutex<HashMap<Key, Arc<Session>>>,
}

/// The right to a user id that no other session has. Given back when dropped, unless it was kept.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    number: u32,
    is_kept: bool,
}

impl Slot {
    /// Its number, to be remembered in the workspace.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Leaves the slot to the workspace that now remembers it.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_kept {
            self.shared.free(self.number);
        }
    }
}

impl Shared {
    /// Gives the user id of a slot.
    pub fn uid(&self, slot: u32) -> u32 {
        self.config.uid_base + slot
    }

    /// Takes a slot that no session has.
    ///
    /// # Errors
    /// `sandbox_unavailable` when there is none.
    pub fn take_slot(self: &Arc<Self>) -> Result<Slot, Error> {
        let mut used = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..SLOTS).find(|slot| !used.contains(slot));
        let full =
            || Error::refused(Code::SandboxUnavailable, "this machine has no room for another workspace");
        let number = free.ok_or_else(full)?;
        used.insert(number);
        Ok(Slot { shared: Arc::clone(self), number, is_kept: false })
    }

    /// Gives a slot back when its workspace is gone.
    pub fn free(&self, slot: u32) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
    }
}

impl Sessions {
    /// Takes up what is on disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn load(
        config: Config,
        launcher: Launcher,
        layout: Layout,
        (tasks, shutdown): (Tasks, CancellationToken),
    ) -> io::Result<Self> {
        forget_old_fences(&layout.fences())?;
        let slots = used_slots(&layout.workspaces())?;
        let shared = Shared {
            helpers: Helpers::new(launcher.clone()),
            idle: Duration::from_millis(config.idle_ms),
            live: Arc::new(Semaphore::new(config.live_max)),
            crowded: Semaphore::new(0),
            slots: Mutex::new(slots),
            terminals: Arc::default(),
            launcher,
            layout,
            tasks,
            shutdown,
            config,
        };
        Ok(Self { shared: Arc::new(shared), sessions: Mutex::default() })
    }

    /// Gives a session; there is always one, if only with nothing in it.
    ///
    /// # Errors
    /// `argument_invalid` when an id is none.
    pub fn get(&self, tenant: &str, session: &str) -> Result<Arc<Session>, Error> {
        let key = Key::parse(tenant, session)?;
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.get(&key) {
            return Ok(Arc::clone(session));
        }
        if sessions.len() >= REMEMBERED_MAX {
            // A session with a running sandbox is held by its task.
            sessions.retain(|_, session| Arc::strong_count(session) > 1);
        }
        let session = Arc::new(Session::new(key.clone(), Arc::clone(&self.shared)));
        sessions.insert(key, Arc::clone(&session));
        Ok(session)
    }
}

/// Removes the fences that nobody raised for so long that no caller of a lower epoch can be left.
fn forget_old_fences(fences: &Path) -> io::Result<()> {
    let kept = Duration::from_millis(limits::SANDBOX_FENCE_KEPT_MS);
    for tenant in std::fs::read_dir(fences)? {
        for fence in std::fs::read_dir(tenant?.path())? {
            let fence = fence?;
            // A time in the future has not elapsed.
            if fence.metadata()?.modified()?.elapsed().is_ok_and(|age| age > kept) {
                std::fs::remove_file(fence.path())?;
            }
        }
    }
    Ok(())
}

fn used_slots(workspaces: &Path) -> io::Result<BTreeSet<u32>> {
    let mut slots = BTreeSet::new();
    for tenant in std::fs::read_dir(workspaces)? {
        for session in std::fs::read_dir(tenant?.path())? {
            slots.extend(Meta::read(&session?.path())?.map(|meta| meta.slot));
        }
    }
    Ok(slots)
}
