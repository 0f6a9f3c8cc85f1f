//! The sessions of this machine.

use super::{doors::Doors, inventory, places::Places, shared::Shared, slots::Slots, state::Session};
use crate::{
    code::Code,
    config::Config,
    disk::{
        host::HostDisk,
        space::Space,
        watch::DiskWatch,
        workspace::{Quota, Uncounted},
    },
    error::Error,
    exec::boot,
    image::{
        arrival::Arrivals,
        build::{BuildLimits, BuildMeans},
        builds::Builds,
        manifest::Manifest,
        owner,
        store::{Store, StoreSpec},
    },
    isolation::{facts::Facts, launch::Launcher, policy::User, root::image::Overlay, walls::Wall},
    layout::{self, Key, Layout},
    workspace::{
        empty::EmptyWorkspace,
        helper::Helpers,
        meta::Meta,
        mirror::store::{Mirrors, MirrorsSpec},
    },
};
use chassis::{lock, tasks::Tasks};
use domain::{ids::TenantId, limits};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

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
        let closed = closed_tenants(&layout.closed())?;
        let workspaces = workspaces(&layout.workspaces())?;
        let mut slots = workspaces.iter().map(|(tenant, meta)| (meta.slot, *tenant)).collect();
        let used: Vec<Manifest> = workspaces.into_iter().map(|(_, meta)| meta.image).collect();
        let limit = Space { bytes: config.disk_bytes, inodes: config.inodes };
        let host = HostDisk::new(layout.root().to_owned(), config.reserve_bytes);
        let uncounted =
            if config.without.contains(&Wall::Disk) { Uncounted::Counted } else { Uncounted::Full };
        let quota = Arc::new(Quota::new(limit, host, uncounted));
        let facts = launcher.facts();
        let (owner, overlay) = owner_of_layers(facts, &layout, &mut slots, config.uids)?;
        let store = StoreSpec {
            layout: layout.clone(),
            unpack: facts.unpack.clone(),
            owner,
            overlay,
            bytes_max: config.image_bytes,
            quota: Arc::clone(&quota),
            tasks: tasks.clone(),
        };
        let images = Arc::new(Store::load(store, &used)?);
        let means = BuildMeans {
            store: Arc::clone(&images),
            launcher: launcher.clone(),
            tasks: tasks.clone(),
            shutdown: shutdown.clone(),
            limits: BuildLimits {
                time: Duration::from_millis(config.setup_ms),
                bytes: config.setup_bytes,
                without_terminals: config.without.contains(&Wall::Terminals),
            },
        };
        let builds = Arc::new(Builds::load(layout.clone(), means)?);
        let mirrors = MirrorsSpec {
            layout: layout.clone(),
            bytes_max: config.mirror_bytes,
            quota: Arc::clone(&quota),
            tasks: tasks.clone(),
        };
        let doors = Doors::new(config.egress.as_deref(), config.egress_ca.as_deref())?;
        let shared = Shared {
            doors,
            disks: Arc::new(DiskWatch::new(quota)),
            arrivals: Arrivals::new(Arc::clone(&images)),
            builds,
            images,
            mirrors: Arc::new(Mirrors::load(mirrors)?),
            empty: EmptyWorkspace::new(layout.empty_workspace(), launcher.facts().clone()),
            helpers: Helpers::new(launcher.clone(), Duration::from_millis(config.helper_wait_ms)),
            idle: Duration::from_millis(config.idle_ms),
            places: Places::new(config.live_max),
            slots: Arc::new(Slots::new(config.uids, slots)),
            terminals: Arc::default(),
            launcher,
            layout,
            tasks,
            shutdown,
            config,
            boot: boot::id()?,
        };
        Ok(Self { shared: Arc::new(shared), sessions: Mutex::default(), closed: Mutex::new(closed) })
    }

    /// Returns a session. Every valid id names one, which may be empty.
    ///
    /// # Errors
    /// `argument_invalid` when an id is malformed; `tenant_closed`.
    pub fn get(&self, tenant: &str, session: &str) -> Result<Arc<Session>, Error> {
        let key = Key::parse(tenant, session)?;
        if lock(&self.closed).contains(&key.tenant) {
            return Err(Error::refused(Code::TenantClosed, "the tenant was deleted"));
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

/// The user of layers, and who joins them. If no user is left, nobody does.
fn owner_of_layers(
    facts: &Facts,
    layout: &Layout,
    slots: &mut BTreeMap<u32, TenantId>,
    uids: u32,
) -> io::Result<(Option<u32>, Overlay)> {
    if facts.user == User::Service {
        return Ok((None, facts.overlay.clone()));
    }
    let slot = owner::take_slot(&layout.layers_owner(), slots, uids)?;
    let none_left =
        || Overlay::Unsupported("workspaces have all user ids; raise FLOTILLA_SANDBOX_UIDS".to_owned());
    let overlay = if slot.is_some() { facts.overlay.clone() } else { none_left() };
    Ok((slot.map(|slot| facts.user_ids.first + slot), overlay))
}

/// The workspaces of this machine, with their tenants.
fn workspaces(directory: &Path) -> io::Result<Vec<(TenantId, Meta)>> {
    let mut workspaces = Vec::new();
    for directory in std::fs::read_dir(directory)? {
        let directory = directory?;
        let Some(tenant) = directory.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        for session in std::fs::read_dir(directory.path())? {
            workspaces.extend(Meta::read(&session?.path())?.map(|meta| (tenant, meta)));
        }
    }
    Ok(workspaces)
}
