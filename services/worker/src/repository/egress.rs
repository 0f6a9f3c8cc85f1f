//! The door of a workspace to the network. The broker opens it with what the settings of a turn allow, while the loop goes on.

use crate::process::{broker::Broker, deps::Deps, sandbox::Identity};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use rpc::v1;
use settings::Settings;
use std::sync::{Arc, Mutex, PoisonError};

/// The door. Clones share it.
#[derive(Clone)]
pub(crate) struct Egress {
    deps: Arc<Deps>,
    identity: Identity,
    newest: Arc<Mutex<Option<Attempt>>>,
}

/// The opening of the door for these lists.
struct Attempt {
    lists: Vec<v1::AllowList>,
    opening: Opening,
}

/// An opening that many wait for; whether the door is open then.
type Opening = Shared<BoxFuture<'static, bool>>;

impl Egress {
    pub(super) fn new(deps: Arc<Deps>, identity: Identity) -> Self {
        Self { deps, identity, newest: Arc::default() }
    }

    /// Begins to open the door for the hosts that these settings allow, unless this loop did. Without any, it is opened too: it then tells programs
    /// which setting is missing.
    pub(crate) fn allow(&self, settings: &Settings) {
        let Some(broker) = self.deps.broker.clone() else { return };
        let lists = settings.network().iter().map(|hosts| v1::AllowList {
            setting: format!("environment.network.allow in the settings of the {}", hosts.level.as_str()),
            entries: hosts.allow.clone(),
        });
        let lists: Vec<_> = lists.collect();
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest
            .as_ref()
            .is_some_and(|newest| newest.lists == lists && newest.opening.peek() != Some(&false))
        {
            return;
        }
        let door = v1::OpenEgressRequest {
            tenant_id: self.identity.tenant.to_string(),
            session_id: self.identity.workspace.to_string(),
            lists: lists.clone(),
        };
        let opening = open(broker, door).boxed().shared();
        self.deps.tasks.spawn("egress", opening.clone().map(drop));
        *newest = Some(Attempt { lists, opening });
    }

    /// Waits until the door is open, or cannot be opened: tools then run without a network, as they do where there is no broker.
    pub(crate) async fn ready(&self) {
        if let Some(opening) = self.opening() {
            opening.await;
        }
    }

    fn opening(&self) -> Option<Opening> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.as_ref().map(|newest| newest.opening.clone())
    }
}

async fn open(broker: Broker, door: v1::OpenEgressRequest) -> bool {
    let opened = broker.open_egress(door).await;
    if let Err(status) = &opened {
        let code = rpc::status::code_of(status);
        metrics::counter!("flotilla_worker_egress_failures_total").increment(1);
        tracing::warn!(error.code = code, "the network of a session stays as it was: {}", status.message());
    }
    opened.is_ok()
}
