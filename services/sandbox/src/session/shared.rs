//! What all sessions of this machine share, and the user ids that they take from a pool.

use crate::{
    code::Code, config::Config, disk::watch::DiskWatch, error::Error, isolation::launch::Launcher,
    layout::Layout, terminal::shares::Shares, workspace::helper::Helpers,
};
use chassis::tasks::Tasks;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// What all sessions share.
#[derive(Debug)]
pub struct Shared {
    /// The terminals that run, by tenant.
    pub terminals: Arc<Shares>,
    /// Starts sandboxes.
    pub launcher: Launcher,
    /// Runs git.
    pub helpers: Helpers,
    /// Watches the disk space of workspaces.
    pub disks: Arc<DiskWatch>,
    /// The data directory.
    pub layout: Layout,
    /// Where tasks are spawned.
    pub tasks: Tasks,
    /// Cancelled when the service stops.
    pub shutdown: CancellationToken,
    /// The settings of the service.
    pub config: Config,
    /// How long a sandbox may be idle before it ends.
    pub idle: Duration,
    pub(crate) live: Arc<Semaphore>,
    /// One permit for each call that waits for a sandbox: the sandbox that has been idle for longest takes it and ends.
    pub(crate) crowded: Semaphore,
    pub(super) slots: Mutex<BTreeSet<u32>>,
}

/// The right to a user id that no other session has. Dropping it frees the id, unless it was kept.
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
        self.launcher.facts().user_ids.first + slot
    }

    /// Takes a slot that no session has.
    ///
    /// # Errors
    /// `sandbox_unavailable` when there is none.
    pub fn take_slot(self: &Arc<Self>) -> Result<Slot, Error> {
        let mut used = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..self.config.uids).find(|slot| !used.contains(slot));
        let full = || Error::refused(Code::SandboxUnavailable, "this machine cannot hold another workspace");
        let number = free.ok_or_else(full)?;
        used.insert(number);
        Ok(Slot { shared: Arc::clone(self), number, is_kept: false })
    }

    /// Gives a slot back when its workspace is gone.
    pub fn free(&self, slot: u32) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
    }
}
