//! The sessions of this machine.

use super::{shared::Shared, state::Session};
use crate::{
    config::Config,
    disk::{
        host::HostDisk,
        space::Space,
        watch::DiskWatch,
        workspace::{Quota, Uncounted},
    },
    error::Error,
    isolation::{launch::Launcher, walls::Wall},
    layout::{Key, Layout},
    workspace::{helper::Helpers, meta::Meta},
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

/// Sessions in memory; beyond this number unused ones are dropped, because their state is on disk.
const REMEMBERED_MAX: usize = 4_096;

/// The sessions of this machine.
#[derive(Debug)]
pub struct Sessions {
    /// What they share.
    pub shared: Arc<Shared>,
    sessions: Mutex<HashMap<Key, Arc<Session>>>,
}

impl Sessions {
    /// Loads the state from the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn load(
        config: Config,
        launcher: Launcher,
        layout: Layout,
        tasks: Tasks,
        shutdown: CancellationToken,
    ) -> io::Result<Self> {
        forget_old_fences(&layout.fences())?;
        let slots = used_slots(&layout.workspaces())?;
        let limit = Space { bytes: config.disk_bytes, inodes: config.inodes };
        let host = HostDisk::new(layout.root().to_owned(), config.reserve_bytes);
        let uncounted =
            if config.without.contains(&Wall::Disk) { Uncounted::Counted } else { Uncounted::Full };
        let shared = Shared {
            disks: Arc::new(DiskWatch::new(Arc::new(Quota::new(limit, host, uncounted)))),
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

    /// Returns a session. Every valid id names one, which may be empty.
    ///
    /// # Errors
    /// `argument_invalid` when an id is malformed.
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

/// Removes fences that were last raised so long ago that no caller of a lower epoch can be left.
fn forget_old_fences(fences: &Path) -> io::Result<()> {
    let age_max = Duration::from_millis(limits::SANDBOX_FENCE_KEPT_MS);
    for tenant in std::fs::read_dir(fences)? {
        for fence in std::fs::read_dir(tenant?.path())? {
            let fence = fence?;
            // A time in the future gives an error, and the fence stays.
            if fence.metadata()?.modified()?.elapsed().is_ok_and(|age| age > age_max) {
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
