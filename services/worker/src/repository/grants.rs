//! The hosts that people have allowed in a session, as the broker knows them. They are open for a while after each tool, so a worker that dies leaves no host
//! open.

use crate::process::{broker::Broker, sandbox::Identity};
use domain::{egress::host::HostName, limits};
use rpc::v1;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// Time after which the hosts of a session are sent again, before its next tool; milliseconds.
const GRANT_RENEWAL_MS: u64 = 60_000;
/// Time for which hosts are open after they were sent: a command that begins just before they would be sent again runs as long as it may. Milliseconds.
const GRANT_MS: u32 = limits::EXEC_TIMEOUT_MAX_MS + GRANT_RENEWAL_MS as u32;

/// The hosts of one session. Clones share what the broker knows.
#[derive(Clone)]
pub(super) struct HostGrants {
    identity: Identity,
    /// What the broker has confirmed; `None`: not known. Held during a call, so that calls arrive in their order.
    confirmed: Arc<Mutex<Option<ConfirmedHosts>>>,
}

struct ConfirmedHosts {
    hosts: BTreeSet<HostName>,
    sent_at: Instant,
}

impl HostGrants {
    pub(super) fn new(identity: Identity) -> Self {
        Self { identity, confirmed: Arc::default() }
    }

    /// Tells the broker which hosts people have allowed, unless it knows. If it does not answer, hosts stay closed, or close by themselves.
    pub(super) async fn set(&self, broker: &Broker, hosts: BTreeSet<HostName>) {
        let mut confirmed = self.confirmed.lock().await;
        let is_known = confirmed.as_ref().is_some_and(|known| {
            let is_recent = known.sent_at.elapsed() < Duration::from_millis(GRANT_RENEWAL_MS);
            known.hosts == hosts && (hosts.is_empty() || is_recent)
        });
        if is_known {
            return;
        }
        let sent_at = Instant::now();
        // The broker may know the hosts although no answer comes.
        *confirmed = None;
        let request = v1::GrantHostsRequest {
            tenant_id: self.identity.tenant.to_string(),
            workspace_session_id: self.identity.workspace.to_string(),
            session_id: self.identity.session.to_string(),
            epoch: self.identity.epoch,
            hosts: hosts.iter().map(ToString::to_string).collect(),
            valid_ms: GRANT_MS,
        };
        match broker.grant_hosts(request).await {
            Ok(()) => *confirmed = Some(ConfirmedHosts { hosts, sent_at }),
            Err(status) => tracing::debug!("the broker does not open hosts: {}", status.message()),
        }
    }
}
