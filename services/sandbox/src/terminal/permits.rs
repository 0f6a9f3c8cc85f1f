//! How many terminals run for each tenant. The kernel has a few thousand for the whole machine.

use super::limits::TERMINALS_TENANT_MAX;
use crate::error::Error;
use domain::ids::TenantId;
use rpc::v1::ErrorCode;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The terminals that run, by tenant.
#[derive(Debug, Default)]
pub struct TerminalPermits(Mutex<HashMap<TenantId, usize>>);

/// The right to one running terminal. Dropping it gives it back.
#[derive(Debug)]
pub struct TerminalPermit {
    permits: Arc<TerminalPermits>,
    tenant: TenantId,
}

impl TerminalPermits {
    /// Takes a permit for one more terminal of a tenant.
    ///
    /// # Errors
    /// `terminals_too_many`.
    pub fn take(self: &Arc<Self>, tenant: TenantId) -> Result<TerminalPermit, Error> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = running.entry(tenant).or_default();
        if *count >= TERMINALS_TENANT_MAX {
            let text =
                format!("the tenant already runs {TERMINALS_TENANT_MAX} terminals on this machine; end one");
            return Err(Error::refused(ErrorCode::TerminalsTooMany, text));
        }
        *count += 1;
        Ok(TerminalPermit { permits: Arc::clone(self), tenant })
    }
}

impl Drop for TerminalPermit {
    fn drop(&mut self) {
        let mut running = self.permits.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let (permits, greedy) = (Arc::new(TerminalPermits::default()), TenantId(uuid::Uuid::now_v7()));
        let mut held: Vec<_> = (0..TERMINALS_TENANT_MAX).map(|_| permits.take(greedy).unwrap()).collect();
        let refused = permits.take(greedy).unwrap_err();
        assert!(refused.to_string().contains("already runs 64 terminals"), "{refused}");
        drop(permits.take(TenantId(uuid::Uuid::now_v7())).unwrap());
        held.pop();
        held.push(permits.take(greedy).unwrap());
        assert!(permits.take(greedy).is_err());
        held.clear();
        assert!(permits.0.lock().unwrap().is_empty(), "nothing is kept of those that have none");
    }
}
