//! The user ids of workspaces, from a pool of the machine.

use domain::ids::TenantId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The user ids that workspaces have, each by its number in the pool.
#[derive(Debug)]
pub struct Slots {
    used: Mutex<BTreeMap<u32, TenantId>>,
    count: u32,
}

/// The right to a user id that no other workspace has. Dropping it frees the id, unless it was kept.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    number: u32,
    is_kept: bool,
}

/// Why there is no user id for another workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// The tenant has as many workspaces on this machine as one may have.
    Tenant(u32),
    /// The machine has no user id left.
    Machine,
}

impl Slots {
    /// A pool of `count` ids, of which these are used.
    pub fn new(count: u32, used: BTreeMap<u32, TenantId>) -> Self {
        Self { used: Mutex::new(used), count }
    }

    /// Takes the lowest free id. One tenant gets three quarters of all.
    ///
    /// # Errors
    /// `NoSlot`.
    pub fn take(self: &Arc<Self>, tenant: TenantId) -> Result<Slot, NoSlot> {
        let mut used = self.lock();
        let own = used.values().filter(|holder| **holder == tenant).count();
        let own_max = shares::three_quarters(self.count);
        if own >= own_max as usize {
            return Err(NoSlot::Tenant(own_max));
        }
        let number = (0..self.count).find(|number| !used.contains_key(number)).ok_or(NoSlot::Machine)?;
        used.insert(number, tenant);
        Ok(Slot { slots: Arc::clone(self), number, is_kept: false })
    }

    /// Gives an id back when its workspace is gone.
    pub fn free(&self, number: u32) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, TenantId>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Its number, to be remembered in the workspace.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Leaves the slot to the workspace that now remembers it.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_kept {
            self.slots.free(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn one_tenant_leaves_user_ids_to_others() {
        let (greedy, other) = (TenantId(uuid::Uuid::now_v7()), TenantId(uuid::Uuid::now_v7()));
        let slots = Arc::new(Slots::new(4, BTreeMap::from([(1, greedy)])));
        let held = [slots.take(greedy).unwrap(), slots.take(greedy).unwrap()];
        assert_eq!(held.each_ref().map(Slot::number), [0, 2]);
        assert_eq!(slots.take(greedy).map(drop), Err(NoSlot::Tenant(3)));
        slots.take(other).unwrap().keep();
        assert_eq!(slots.take(other).map(drop), Err(NoSlot::Machine));
        drop(held);
        slots.free(1);
        assert_eq!(slots.take(greedy).unwrap().number(), 0);
    }
}
