//! The addresses of hosts. Many connections at once ask once.

use super::refusal::Refusal;
use chassis::web::{Network, is_public};
use domain::egress::host::HostName;
use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout},
};

/// Time for which an answer is used again.
const KEPT: Duration = Duration::from_secs(30);
/// Hosts whose answers are kept. Beyond it the old ones are forgotten.
const HOSTS_MAX: usize = 1_000;
/// Look-ups before a host counts as unknown: name servers drop some of many parallel questions.
const TRIES: u32 = 3;
/// Longest wait for one look-up.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);

/// The look-ups of this process.
#[derive(Debug, Default)]
pub struct Names {
    /// Networks outside the public internet in which the addresses of hosts may lie.
    opened: Vec<Network>,
    /// Addresses that the operator gives to hosts, for example of an internal registry.
    fixed: BTreeMap<HostName, SocketAddr>,
    known: Mutex<HashMap<HostName, Answer>>,
}

#[derive(Debug, Clone)]
struct Answer {
    asked_at: Instant,
    addresses: Arc<OnceCell<Vec<IpAddr>>>,
}

impl Names {
    /// With the operator's networks and hosts. The port of a fixed address replaces that of the request.
    pub fn new(opened: Vec<Network>, fixed: BTreeMap<HostName, SocketAddr>) -> Self {
        Self { opened, fixed, known: Mutex::default() }
    }

    /// The addresses of a host, all of them public or opened.
    ///
    /// # Errors
    /// `Unresolved`, `Private`.
    pub(super) async fn find(&self, host: &HostName, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
        if let Some(fixed) = self.fixed.get(host) {
            return Ok(vec![*fixed]);
        }
        let addresses = self.known(host);
        let addresses = addresses.get_or_try_init(|| look_up(host)).await?;
        let is_allowed = |address: &IpAddr| {
            is_public(*address) || self.opened.iter().any(|network| network.contains(address))
        };
        if !addresses.iter().all(is_allowed) {
            return Err(Refusal::Private(host.clone()));
        }
        Ok(addresses.iter().map(|address| SocketAddr::new(*address, port)).collect())
    }

    /// The answer for a host, or the place where it will stand.
    fn known(&self, host: &HostName) -> Arc<OnceCell<Vec<IpAddr>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= HOSTS_MAX {
            known.retain(|_, answer| answer.asked_at.elapsed() < KEPT);
        }
        if known.len() >= HOSTS_MAX {
            known.clear();
        }
        let fresh = || Answer { asked_at: Instant::now(), addresses: Arc::default() };
        let answer = known.entry(host.clone()).or_insert_with(fresh);
        if answer.asked_at.elapsed() >= KEPT {
            *answer = fresh();
        }
        Arc::clone(&answer.addresses)
    }
}

async fn look_up(host: &HostName) -> Result<Vec<IpAddr>, Refusal> {
    for _ in 0..TRIES {
        // The dot keeps the resolver from trying the domains of this machine.
        let name = format!("{host}.");
        if let Ok(Ok(found)) = timeout(TRY_TIMEOUT, tokio::net::lookup_host((name.as_str(), 0))).await {
            let addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            if !addresses.is_empty() {
                return Ok(addresses);
            }
        }
    }
    Err(Refusal::Unresolved(host.clone()))
}
