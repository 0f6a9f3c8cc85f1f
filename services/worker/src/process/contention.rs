//! The tenants that may be waiting for a slot, as far as this worker knows. A loop asks Redis at its step boundary only if the
//! answer could be to yield.
//!
//! The sweep reads Postgres once a second, and the doorbell announces sessions that arrived since. The next sweep notices
//! a missed waiting session; a wrongly assumed one costs one call to Redis.

use bus::queue::Slots;
use domain::ids::TenantId;
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};
use store::control::candidate::Candidate;

/// This worker's knowledge of the sessions that wait for a slot.
#[derive(Debug, Default)]
pub(crate) struct Contention(Mutex<Backlog>);

#[derive(Debug, Default)]
struct Backlog {
    /// The number of doorbell rings.
    rings: u64,
    /// The number of rings before the last sweep read Postgres.
    swept: u64,
    /// The tenants whose sessions waited at the last sweep.
    waiting: HashSet<TenantId>,
    /// Whether more sessions waited than one sweep lists.
    is_cut: bool,
}

impl Contention {
    pub(crate) fn ring(&self) {
        self.with(|backlog| backlog.rings += 1);
    }

    /// Returns the number of doorbell rings. The sweep reads it before it reads Postgres.
    pub(crate) fn rings(&self) -> u64 {
        self.with(|backlog| backlog.rings)
    }

    /// Records the result of a sweep that began after `rings` rings and lists at most `most` sessions.
    pub(crate) fn note_sweep(&self, rings: u64, found: &[Candidate], most: usize) {
        self.with(|backlog| {
            backlog.swept = backlog.swept.max(rings);
            backlog.waiting = found.iter().map(|session| session.target.tenant).collect();
            backlog.is_cut = found.len() >= most;
        });
    }

    /// Whether a loop of `tenant` may have to give up its slot. While slots are free, only the limit of its own tenant can make
    /// another session wait.
    pub(crate) fn may_concern(&self, tenant: TenantId, slots: Slots) -> bool {
        self.with(|backlog| match slots {
            Slots::Free => backlog.is_cut || backlog.waiting.contains(&tenant),
            Slots::Full => backlog.rings > backlog.swept || !backlog.waiting.is_empty(),
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Backlog) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use domain::session::Class;
    use store::control::candidate::SessionRef;
    use uuid::Uuid;

    fn tenant() -> TenantId {
        TenantId(Uuid::now_v7())
    }

    fn waits(tenant: TenantId) -> Candidate {
        let session = "ses_00000000000000000000000000".parse().unwrap();
        let place = SessionRef { tenant, session };
        Candidate { target: place, class: Class::default(), attempts: 0, running_max: 1, weight: 1 }
    }

    /// Whether a loop asks: with free slots, and with none.
    fn asks(contention: &Contention, tenant: TenantId) -> [bool; 2] {
        [Slots::Free, Slots::Full].map(|slots| contention.may_concern(tenant, slots))
    }

    #[test]
    fn a_loop_asks_only_while_a_session_may_wait() {
        let (contention, tenant) = (Contention::default(), tenant());
        assert_eq!(asks(&contention, tenant), [false, false]);
        contention.ring();
        assert_eq!(asks(&contention, tenant), [false, true], "a session may wait for a slot");
        contention.note_sweep(contention.rings(), &[], 10);
        assert_eq!(asks(&contention, tenant), [false, false], "the sweep found no waiting session");
    }

    #[test]
    fn free_slots_concern_only_the_tenant_that_waits_for_its_own_limit() {
        let (contention, tenant, other) = (Contention::default(), tenant(), tenant());
        contention.note_sweep(0, &[waits(tenant)], 10);
        assert_eq!(asks(&contention, tenant), [true, true]);
        assert_eq!(asks(&contention, other), [false, true]);
        contention.note_sweep(0, &[waits(tenant)], 1);
        assert_eq!(asks(&contention, other), [true, true], "the sweep may have been cut");
    }

    #[test]
    fn a_ring_during_a_sweep_is_not_forgotten() {
        let (contention, tenant) = (Contention::default(), tenant());
        let before = contention.rings();
        contention.ring();
        contention.note_sweep(before, &[], 10);
        assert_eq!(asks(&contention, tenant), [false, true]);
    }
}
