//! Who may wait for a slot, as far as this worker knows by itself: a loop asks Redis at its step boundary only when the
//! answer can be other than "go on".
//!
//! The sweep looks into Postgres once a second, and the doorbell says that there may be more since then. A wrong "nobody"
//! therefore lasts until the next sweep; a wrong "somebody" costs one question.

use bus::queue::Slots;
use domain::ids::TenantId;
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};
use store::control::candidate::Candidate;

/// What is known of those who wait.
#[derive(Debug, Default)]
pub(crate) struct Contention(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How often the doorbell rang.
    rings: u64,
    /// The rings that the last look saw the effect of.
    seen: u64,
    /// Whose sessions waited at the last look.
    waiting: HashSet<TenantId>,
    /// More waited than one look shows.
    is_cut: bool,
}

impl Contention {
    /// Notes that the doorbell rang.
    pub(crate) fn ring(&self) {
        self.with(|known| known.rings += 1);
    }

    /// Gives how often the doorbell rang; to be asked before a look.
    pub(crate) fn rings(&self) -> u64 {
        self.with(|known| known.rings)
    }

    /// Notes what a look found that began after so many rings, and that shows `most` sessions at most.
    pub(crate) fn looked(&self, rings: u64, found: &[Candidate], most: usize) {
        self.with(|known| {
            known.seen = known.seen.max(rings);
            known.waiting = found.iter().map(|session| session.target.tenant).collect();
            known.is_cut = found.len() >= most;
        });
    }

    /// Whether a loop of `tenant` may have to give its slot up. With free slots only its own tenant's limit can be in the
    /// way of somebody.
    pub(crate) fn may_concern(&self, tenant: TenantId, slots: Slots) -> bool {
        self.with(|known| match slots {
            Slots::Free => known.is_cut || known.waiting.contains(&tenant),
            Slots::Full => known.rings > known.seen || !known.waiting.is_empty(),
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]
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
    fn nobody_is_asked_about_while_nobody_waits() {
        let (contention, tenant) = (Contention::default(), tenant());
        assert_eq!(asks(&contention, tenant), [false, false]);
        contention.ring();
        assert_eq!(asks(&contention, tenant), [false, true], "somebody may wait for a slot");
        contention.looked(contention.rings(), &[], 10);
        assert_eq!(asks(&contention, tenant), [false, false], "the look says that nobody does");
    }

    #[test]
    fn free_slots_concern_only_the_tenant_that_waits_for_its_own_limit() {
        let (contention, tenant, other) = (Contention::default(), tenant(), tenant());
        contention.looked(0, &[waits(tenant)], 10);
        assert_eq!(asks(&contention, tenant), [true, true]);
        assert_eq!(asks(&contention, other), [false, true]);
        contention.looked(0, &[waits(tenant)], 1);
        assert_eq!(asks(&contention, other), [true, true], "the look may have been cut");
    }

    #[test]
    fn a_ring_during_a_look_is_not_forgotten() {
        let (contention, tenant) = (Contention::default(), tenant());
        let before = contention.rings();
        contention.ring();
        contention.looked(before, &[], 10);
        assert_eq!(asks(&contention, tenant), [false, true]);
    }
}
