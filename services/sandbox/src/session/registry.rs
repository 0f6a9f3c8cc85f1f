//! The sessions of this machine.

use super::{inventory, shared::Shared, state::Session};
use crate::{
    error::Error,
    layout::{self, Key},
};
use chassis::lock;
use domain::{ids::TenantId, limits};
use rpc::v1::ErrorCode;
use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Sessions in memory; beyond this number unused ones are dropped, because their state is on disk.
const REMEMBERED_MAX: usize = 4_096;

/// The sessions of this machine.
#[derive(Debug)]
pub struct Sessions {
    /// What they share.
    pub shared: Arc<Shared>,
    sessions: Mutex<HashMap<Key, Arc<Session>>>,
    /// The tenants that were deleted: a call that comes late must not bring anything of them back.
    closed: Mutex<HashSet<TenantId>>,
}

impl Sessions {
    /// Reads from the disk which tenants were deleted.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn load(shared: Shared) -> io::Result<Self> {
        let closed = closed_tenants(&shared.layout.closed())?;
        Ok(Self { shared: Arc::new(shared), sessions: Mutex::default(), closed: Mutex::new(closed) })
    }

    /// Returns a session. Every valid id names one, which may be empty.
    ///
    /// # Errors
    /// `argument_invalid` when an id is malformed; `tenant_closed`.
    pub fn get(&self, tenant: &str, session: &str) -> Result<Arc<Session>, Error> {
        let key = Key::parse(tenant, session)?;
        if lock(&self.closed).contains(&key.tenant) {
            return Err(Error::refused(ErrorCode::TenantClosed, "the tenant was deleted"));
        }
        Ok(self.find_or_insert(key))
    }

    /// Refuses all calls for a tenant from now on, also after a restart, and returns its sessions. Blocks.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn close(&self, tenant: TenantId) -> io::Result<Vec<Arc<Session>>> {
        layout::replace(&self.shared.layout.closed().join(tenant.to_string()), b"")?;
        lock(&self.closed).insert(tenant);
        let on_disk = inventory::of_tenant(&self.shared.layout, tenant)?;
        let mut keys: HashSet<Key> = on_disk.into_iter().collect();
        keys.extend(lock(&self.sessions).keys().filter(|key| key.tenant == tenant).cloned());
        Ok(keys.into_iter().map(|key| self.find_or_insert(key)).collect())
    }

    /// Forgets the sessions of a tenant whose files are gone.
    pub fn forget(&self, tenant: TenantId) {
        lock(&self.sessions).retain(|key, _| key.tenant != tenant);
    }

    /// Removes fences that were last raised, and marks of deleted tenants that were made, so long ago that no caller of a lower epoch can
    /// be left. If one cannot be removed, the failure is logged and counted, and the sweep goes on. Blocks.
    ///
    /// # Errors
    /// Those of the directories of all fences and of all marks.
    pub fn forget_old_fences(&self) -> io::Result<()> {
        let layout = &self.shared.layout;
        for tenant in std::fs::read_dir(layout.fences())? {
            let path = tenant?.path();
            note_failure(&path, self.forget_old_fences_of(&path));
        }
        for mark in std::fs::read_dir(layout.closed())? {
            let path = mark?.path();
            note_failure(&path, self.forget_old_mark(&path));
        }
        Ok(())
    }

    fn forget_old_fences_of(&self, tenant: &Path) -> io::Result<()> {
        for fence in std::fs::read_dir(tenant)? {
            let path = fence?.path();
            note_failure(&path, self.forget_old_fence(&path));
        }
        Ok(())
    }

    /// A fence is raised only by a session in memory. While the map is locked and the session is not in it, no call can raise it.
    fn forget_old_fence(&self, path: &Path) -> io::Result<()> {
        if !is_old(path)? {
            return Ok(());
        }
        let sessions = lock(&self.sessions);
        if is_old(path)? && !sessions.keys().any(|key| self.shared.layout.fence(key) == path) {
            std::fs::remove_file(path)?;
        }
        Ok(())
    }

    fn forget_old_mark(&self, path: &Path) -> io::Result<()> {
        if is_old(path)? {
            std::fs::remove_file(path)?;
            let tenant = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            lock(&self.closed).retain(|closed| Some(*closed) != tenant);
        }
        Ok(())
    }

    fn find_or_insert(&self, key: Key) -> Arc<Session> {
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions.get(&key) {
            return Arc::clone(session);
        }
        if sessions.len() >= REMEMBERED_MAX {
            // A session with a running sandbox is held by its task.
            sessions.retain(|_, session| Arc::strong_count(session) > 1);
        }
        let session = Arc::new(Session::new(key.clone(), Arc::clone(&self.shared)));
        sessions.insert(key, Arc::clone(&session));
        session
    }
}

/// The tenants that were deleted.
fn closed_tenants(directory: &Path) -> io::Result<HashSet<TenantId>> {
    let mut tenants = HashSet::new();
    for entry in std::fs::read_dir(directory)? {
        tenants.extend(entry?.file_name().to_str().and_then(|name| name.parse::<TenantId>().ok()));
    }
    Ok(tenants)
}

/// Logs and counts a failure of a sweep, which goes on.
fn note_failure(path: &Path, swept: io::Result<()>) {
    match swept {
        Ok(()) => {}
        // The deletion of its tenant was quicker.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            metrics::counter!("flotilla_sandbox_sweep_failures_total").increment(1);
            tracing::warn!(%error, "cannot sweep {}; the next sweep tries again", path.display());
        }
    }
}

/// Whether a file was written so long ago that no caller of that time can be left. A time in the future counts as now.
fn is_old(path: &Path) -> io::Result<bool> {
    let age_max = Duration::from_millis(limits::SANDBOX_FENCE_KEPT_MS);
    match std::fs::metadata(path).and_then(|metadata| metadata.modified()) {
        Ok(modified) => Ok(modified.elapsed().is_ok_and(|age| age > age_max)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
