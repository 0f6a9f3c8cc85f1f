//! The start of the service: builds what all sessions of this machine share, from the settings and what is on the disk.

use crate::{
    config::Config,
    disk::{
        host::HostDisk,
        space::Space,
        watch::DiskWatch,
        workspace::{Quota, Uncounted},
    },
    exec::boot,
    helper::Helpers,
    image::{
        arrival::Arrivals,
        build::{BuildLimits, BuildMeans},
        builds::Builds,
        manifest::Manifest,
        owner,
        store::{Store, StoreSpec},
    },
    isolation::{facts::Facts, launch::Launcher, policy::User, root::image::Overlay},
    layout::Layout,
    mirror::store::{Mirrors, MirrorsSpec},
    session::{doors::Doors, places::Places, shared::Shared, slots::Slots},
    tree::{empty::EmptyWorkspace, meta::Meta},
    walls::Wall,
};
use chassis::tasks::Tasks;
use domain::ids::TenantId;
use std::{collections::BTreeMap, io, path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Loads what the sessions of this machine share from its disk.
///
/// # Errors
/// Those of the file system.
pub(crate) fn load(
    config: Config,
    launcher: Launcher,
    layout: Layout,
    tasks: Tasks,
    shutdown: CancellationToken,
) -> io::Result<Shared> {
    let workspaces = workspaces(&layout.workspaces())?;
    let mut slots = workspaces.iter().map(|(tenant, meta)| (meta.slot, *tenant)).collect();
    let used: Vec<Manifest> = workspaces.into_iter().map(|(_, meta)| meta.image).collect();
    let limit = Space { bytes: config.disk_bytes, inodes: config.inodes };
    let host = HostDisk::new(layout.root().to_owned(), config.reserve_bytes);
    let uncounted = if config.without.contains(&Wall::Disk) { Uncounted::Counted } else { Uncounted::Full };
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
    Ok(Shared {
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
    })
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
