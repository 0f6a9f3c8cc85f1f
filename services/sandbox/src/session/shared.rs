//! What all sessions of this machine share.

use super::{
    doors::Doors,
    places::Places,
    slots::{NoSlot, Slot, Slots},
};
use crate::{
    config::Config,
    disk::watch::DiskWatch,
    error::Error,
    helper::Helpers,
    image::{arrival::Arrivals, builds::Builds, store::Store},
    isolation::launch::Launcher,
    layout::Layout,
    mirror::store::Mirrors,
    terminal::permits::TerminalPermits,
    tree::empty::EmptyWorkspace,
};
use chassis::tasks::Tasks;
use domain::ids::TenantId;
use rpc::v1::ErrorCode;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub struct Shared {
    /// The terminals that run, by tenant.
    pub terminals: Arc<TerminalPermits>,
    pub launcher: Launcher,
    pub helpers: Helpers,
    /// The workspace that sessions without files start with.
    pub empty: EmptyWorkspace,
    pub mirrors: Arc<Mirrors>,
    /// Watches the disk space of workspaces.
    pub disks: Arc<DiskWatch>,
    pub images: Arc<Store>,
    /// Those that are on their way.
    pub arrivals: Arrivals,
    /// What setups make on top of images.
    pub builds: Arc<Builds>,
    /// The doors of sessions to the network.
    pub doors: Doors,
    pub layout: Layout,
    pub tasks: Tasks,
    /// Cancelled when the service stops.
    pub shutdown: CancellationToken,
    /// The settings of the service.
    pub config: Config,
    /// How long a sandbox may be idle before it ends.
    pub idle: Duration,
    pub places: Places,
    /// The user ids of workspaces.
    pub slots: Arc<Slots>,
    /// The boot of the machine.
    pub boot: String,
}

impl Shared {
    /// Gives the user id of a slot.
    pub fn uid(&self, slot: u32) -> u32 {
        self.launcher.facts().user_ids.first + slot
    }

    /// Takes a user id for a workspace of `tenant`.
    ///
    /// # Errors
    /// `sandbox_unavailable` when there is none.
    pub fn take_slot(&self, tenant: TenantId) -> Result<Slot, Error> {
        self.slots.take(tenant).map_err(|reason| {
            let text = match reason {
                NoSlot::Tenant(max) => format!(
                    "the tenant already has {max} workspaces on this machine, the limit for one tenant; delete sessions"
                ),
                NoSlot::Machine => "this machine cannot hold another workspace".to_owned(),
            };
            Error::refused(ErrorCode::SandboxUnavailable, text)
        })
    }
}
