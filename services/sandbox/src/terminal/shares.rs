//! How many terminals run for each tenant. The kernel has a few thousand for the whole machine.

use super::limits::TERMINALS_TENANT_MAX;
use crate::{code::Code, error::Error};
use domain::ids::TenantId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The terminals that run, by tenant.
#[derive(Debug, Default)]
pub struct Shares(Mutex<HashMap<TenantId, usize>>);

/// The right to one running terminal. Dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    tenant: TenantId,
}

impl Shares {
    /// Takes a share for one more terminal of a tenant.
    ///
    /// # Errors
    /// `terminals_too_many`.
    pub fn take(self: &Arc<Self>, tenant: TenantId) -> Result<Share, Error> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = running.entry(tenant).or_default();
        if *count >= TERMINALS_TENANT_MAX {
            let text =
                format!("the tenant already runs {TERMINALS_TENANT_MAX} terminals on this machine; end one");
            return Err(Error::refused(Code::TerminalsTooMany, text));
        }
        *count += 1;
        Ok(Share { shares: Arc::clone(self), tenant })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut running = self.shares.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = running.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn one_tenant_cannot_take_the_share_of_another() {
        let (shares, greedy) = (Arc::new(Shares::default()), TenantId(uuid::Uuid::now_v7()));
        let mut held: Vec<_> = (0..TERMINALS_TENANT_MAX).map(|_| shares.take(greedy).unwrap()).collect();
        let refused = shares.take(greedy).unwrap_err();
        assert!(refused.to_string().contains("already runs 64 terminals"), "{refused}");
        drop(shares.take(TenantId(uuid::Uuid::now_v7())).unwrap());
        held.pop();
        held.push(shares.take(greedy).unwrap());
        assert!(shares.take(greedy).is_err());
        held.clear();
        assert!(shares.0.lock().unwrap().is_empty(), "nothing is kept of those that have none");
    }
}
