//! The door of a workspace to the network. The broker opens it before the first tool of a turn, with what the settings allow.

use crate::process::{deps::Deps, sandbox::Identity};
use rpc::v1::{self, AllowList};
use settings::Settings;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use tokio::sync::Mutex;
use tonic::Status;

/// The door. Clones share it.
#[derive(Clone)]
pub(crate) struct Egress {
    deps: Arc<Deps>,
    identity: Identity,
    /// What the newest settings allow.
    wanted: Arc<StdMutex<Option<Vec<AllowList>>>>,
    /// What this loop last opened it for. Held during a call, so that calls arrive in their order.
    opened: Arc<Mutex<Option<Vec<AllowList>>>>,
}

impl Egress {
    pub(super) fn new(deps: Arc<Deps>, identity: Identity) -> Self {
        Self { deps, identity, wanted: Arc::default(), opened: Arc::default() }
    }

    /// Notes what the settings allow. Without any list the door is opened too: it then tells programs which setting is missing.
    pub(crate) fn allow(&self, settings: &Settings) {
        let lists = settings.network().iter().map(|hosts| AllowList {
            setting: format!("environment.network.allow in the settings of the {}", hosts.level.as_str()),
            entries: hosts.allow.clone(),
        });
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(lists.collect());
    }

    /// Opens the door for what the settings allow, unless this loop did. Call it when the files are open: a workspace that is made anew loses its door.
    ///
    /// # Errors
    /// The broker refuses: the door may still have wider rules, so nothing may run. A broker that is away serves no door, and commands run without a
    /// network.
    pub(crate) async fn ready(&self) -> Result<(), Status> {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some(broker), Some(lists)) = (&self.deps.broker, wanted) else { return Ok(()) };
        let mut opened = self.opened.lock().await;
        if opened.as_ref() == Some(&lists) {
            return Ok(());
        }
        let door = v1::OpenEgressRequest {
            tenant_id: self.identity.tenant.to_string(),
            session_id: self.identity.workspace.to_string(),
            lists: lists.clone(),
        };
        match broker.open_egress(door).await {
            Ok(()) => {
                *opened = Some(lists);
                Ok(())
            }
            // This machine has no doors, now or at all.
            Err(status)
                if matches!(rpc::status::code_of(&status).as_deref(), None | Some("egress_unavailable")) =>
            {
                tracing::debug!("no door to the network: {}", status.message());
                Ok(())
            }
            Err(status) => {
                metrics::counter!("flotilla_worker_egress_failures_total").increment(1);
                tracing::warn!("the broker does not set what a session may reach: {}", status.message());
                Err(status)
            }
        }
    }
}
