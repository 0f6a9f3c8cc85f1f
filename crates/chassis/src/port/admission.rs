//! Admits connections: a number in all, fewer of one address, and few of one address whose clients have not sent a valid key.

use crate::network::Network;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits of the number of connections.
#[derive(Debug, Clone)]
pub struct AdmissionLimits {
    /// Maximum simultaneous connections.
    pub connections: usize,
    /// Maximum simultaneous connections of one address.
    pub of_address: usize,
    /// Maximum simultaneous connections of one address whose clients have not sent a valid key; see [`crate::port::vouch`].
    pub keyless: usize,
    /// Proxies, which connect for many clients: only the total bounds their connections.
    pub proxies: Vec<Network>,
}

/// The open connections of a port.
#[derive(Debug)]
pub(super) struct Admissions {
    all: Arc<Semaphore>,
    peers: Arc<Peers>,
}

#[derive(Debug)]
struct Peers {
    limits: AdmissionLimits,
    counts: Mutex<HashMap<IpAddr, Count>>,
}

/// The connections of one address.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    open: usize,
    keyless: usize,
}

/// The admission of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Admission {
    _permit: OwnedSemaphorePermit,
    /// `None`: the address of the connection has no bound.
    member: Option<Member>,
    has_key: AtomicBool,
}

#[derive(Debug)]
struct Member {
    peers: Arc<Peers>,
    network: IpAddr,
}

/// The addresses that one party controls: for IPv6 the /64 that every subscriber gets at least.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

impl Admissions {
    pub(super) fn new(limits: AdmissionLimits) -> Self {
        let all = Arc::new(Semaphore::new(limits.connections));
        Self { all, peers: Arc::new(Peers { limits, counts: Mutex::default() }) }
    }

    /// Admits a connection of an address; `None` at a limit.
    pub(super) fn admit(&self, peer: IpAddr) -> Option<Admission> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let limits = &self.peers.limits;
        if limits.proxies.iter().any(|proxies| proxies.contains(&peer.to_canonical())) {
            return Some(Admission::unbounded(permit));
        }
        let network = network(peer);
        let mut counts = self.peers.lock();
        let count = counts.entry(network).or_default();
        if count.open >= limits.of_address || count.keyless >= limits.keyless {
            return None;
        }
        count.open += 1;
        count.keyless += 1;
        let member = Member { peers: Arc::clone(&self.peers), network };
        Some(Admission { _permit: permit, member: Some(member), has_key: AtomicBool::new(false) })
    }
}

impl Admission {
    /// An admission that counts for no address.
    pub(super) fn unbounded(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: permit, member: None, has_key: AtomicBool::new(false) }
    }

    /// Records that the client sent a valid key.
    pub(super) fn prove(&self) {
        if self.has_key.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(member) = &self.member {
            member.change(|count| count.keyless -= 1);
        }
    }

    /// Whether the client sent a valid key.
    pub(super) fn has_key(&self) -> bool {
        self.has_key.load(Ordering::Relaxed)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let was_keyless = !self.has_key();
        if let Some(member) = &self.member {
            member.change(|count| {
                count.open -= 1;
                count.keyless -= usize::from(was_keyless);
            });
        }
    }
}

impl Member {
    fn change(&self, change: impl FnOnce(&mut Count)) {
        let mut counts = self.peers.lock();
        let Some(count) = counts.get_mut(&self.network) else { return };
        change(count);
        if count.open == 0 {
            counts.remove(&self.network);
        }
    }
}

impl Peers {
    /// Poisoned counts are still consistent: no code panics between two changes.
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn admissions(connections: usize, of_address: usize, keyless: usize) -> Admissions {
        let proxies = vec!["10.0.0.0/8".parse().unwrap()];
        Admissions::new(AdmissionLimits { connections, of_address, keyless, proxies })
    }

    fn admit(admissions: &Admissions, peer: &str) -> Option<Admission> {
        admissions.admit(peer.parse().unwrap())
    }

    #[test]
    fn one_address_has_a_smaller_limit_than_all_together() {
        let admissions = admissions(4, 2, 2);
        let held = [admit(&admissions, "203.0.113.1"), admit(&admissions, "::ffff:203.0.113.1")];
        assert!(held.iter().all(Option::is_some));
        assert!(admit(&admissions, "203.0.113.1").is_none());
        let other = [admit(&admissions, "2001:db8::1"), admit(&admissions, "2001:db8::2")];
        assert!(other.iter().all(Option::is_some));
        drop(held);
        assert!(admit(&admissions, "2001:db8::3").is_none(), "one network");
        assert!(admit(&admissions, "203.0.113.1").is_some());
        drop(other);
        assert!(admissions.peers.lock().is_empty(), "nothing is kept of an address without connections");
    }

    #[test]
    fn connections_without_a_key_have_the_smallest_limit() {
        let admissions = admissions(10, 4, 1);
        let first = admit(&admissions, "203.0.113.1").unwrap();
        assert!(admit(&admissions, "203.0.113.1").is_none());
        first.prove();
        first.prove();
        let second = admit(&admissions, "203.0.113.1").unwrap();
        assert!(admit(&admissions, "203.0.113.1").is_none());
        drop(first);
        let count = *admissions.peers.lock().values().next().unwrap();
        assert_eq!(count, Count { open: 1, keyless: 1 });
        drop(second);
        assert!(admit(&admissions, "203.0.113.1").is_some());
    }

    #[test]
    fn only_the_total_bounds_a_proxy() {
        let admissions = admissions(3, 1, 1);
        let held: Vec<_> = (0..3).map(|_| admit(&admissions, "10.1.2.3")).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(admit(&admissions, "10.1.2.3").is_none() && admit(&admissions, "203.0.113.1").is_none());
    }
}
