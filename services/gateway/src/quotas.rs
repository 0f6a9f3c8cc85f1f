//! What tenants may store. The gateway counts what it lets in, and reads the true figures from time to time, so that a call that creates
//! something costs no count in Postgres. Several gateways together may let in a few more than the quota, until they read again.

use crate::errors::error::Error;
use domain::{
    ids::TenantId,
    policy::quota::{Level, PlatformQuota, Resource, TenantQuota, Usage},
};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use store::Store;

/// Time for which the figures of a tenant far from its quota count.
const FRESH: Duration = Duration::from_secs(10);
/// The same near the quota.
const FRESH_NEAR: Duration = Duration::from_secs(1);
/// Time between two warnings of a tenant.
const WARNING_PAUSE: Duration = Duration::from_secs(60 * 60);
/// Remembered tenants, some 100 bytes each. Beyond that, all figures are read again.
const TENANTS_MAX: usize = 10_000;

/// What a call is about to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) resource: Resource,
    pub(crate) amount: u64,
}

impl Growth {
    pub(crate) const SESSION: Self = Self { resource: Resource::Sessions, amount: 1 };
    pub(crate) const PROJECT: Self = Self { resource: Resource::Projects, amount: 1 };

    pub(crate) fn bytes(amount: u64) -> Self {
        Self { resource: Resource::StoredBytes, amount }
    }
}

/// A tenant with its quota.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaHolder {
    pub(crate) tenant: TenantId,
    pub(crate) quota: TenantQuota,
}

/// The quotas of the platform, and the figures of the tenants.
#[derive(Debug)]
pub(crate) struct Quotas {
    platform: PlatformQuota,
    figures: Mutex<HashMap<TenantId, Figures>>,
}

#[derive(Debug, Clone, Copy)]
struct Figures {
    usage: Usage,
    /// When the reading of `usage` began.
    read_at: Instant,
    warned_at: Option<Instant>,
}

impl Quotas {
    pub(crate) fn new(platform: PlatformQuota) -> Self {
        Self { platform, figures: Mutex::default() }
    }

    pub(crate) fn platform(&self) -> PlatformQuota {
        self.platform
    }

    /// Counts what a call is about to store. Returns the levels of which people have to be warned now: once an hour for each tenant.
    ///
    /// # Errors
    /// `sessions_too_many`, `projects_too_many`, `storage_full`; `store_unavailable`.
    pub(crate) async fn admit(
        &self,
        store: &Store,
        holder: QuotaHolder,
        growths: &[Growth],
    ) -> Result<Vec<Level>, Error> {
        let now = Instant::now();
        if self.begins_reading(holder, now) {
            let usage = store.count_usage(holder.tenant).await?;
            self.put(holder.tenant, usage, now);
        }
        self.count(holder, growths, now)
    }

    /// Reads the figures of a tenant again with its next call, after a change of its quota.
    pub(crate) fn forget(&self, tenant: TenantId) {
        self.lock().remove(&tenant);
    }

    /// Whether the caller has to read the figures. While it does, other calls use the old ones.
    fn begins_reading(&self, holder: QuotaHolder, now: Instant) -> bool {
        let mut figures = self.lock();
        let Some(known) = figures.get_mut(&holder.tenant) else { return true };
        let is_near = self.levels(holder, known.usage).iter().any(|level| level.is_near());
        let fresh = if is_near { FRESH_NEAR } else { FRESH };
        let is_old = now.duration_since(known.read_at) >= fresh;
        if is_old {
            known.read_at = now;
        }
        is_old
    }

    fn put(&self, tenant: TenantId, usage: Usage, read_at: Instant) {
        let mut figures = self.lock();
        if figures.len() >= TENANTS_MAX {
            figures.clear();
        }
        let known = figures.entry(tenant).or_insert(Figures { usage, read_at, warned_at: None });
        (known.usage, known.read_at) = (usage, read_at);
    }

    fn count(&self, holder: QuotaHolder, growths: &[Growth], now: Instant) -> Result<Vec<Level>, Error> {
        let mut figures = self.lock();
        // Forgotten a moment ago because many tenants are known: the next call reads the figures.
        let Some(known) = figures.get_mut(&holder.tenant) else { return Ok(vec![]) };
        let levels = self.levels(holder, known.usage);
        let growth_of = |level: &Level| growths.iter().find(|growth| growth.resource == level.resource);
        let is_full =
            |level: &&Level| growth_of(level).is_some_and(|growth| level.is_exceeded_by(growth.amount));
        let full = levels.iter().find(is_full);
        if let Some(full) = full {
            metrics::counter!("flotilla_quota_refusals_total", "resource" => full.resource.as_str())
                .increment(1);
            return Err(Error::QuotaFull(*full));
        }
        for growth in growths {
            let used = known.usage.of_mut(growth.resource);
            *used = used.saturating_add(growth.amount);
        }
        let near: Vec<Level> = self
            .levels(holder, known.usage)
            .into_iter()
            .filter(|level| growth_of(level).is_some() && level.is_near())
            .collect();
        let is_due = known.warned_at.is_none_or(|at| now.duration_since(at) >= WARNING_PAUSE);
        if near.is_empty() || !is_due {
            return Ok(vec![]);
        }
        known.warned_at = Some(now);
        for level in &near {
            metrics::counter!("flotilla_quota_warnings_total", "resource" => level.resource.as_str())
                .increment(1);
            let (resource, percent) = (level.resource.as_str(), level.percent());
            tracing::warn!(tenant.id = %holder.tenant, "a tenant uses {percent} % of its quota of {resource} ({})", level.limit);
        }
        Ok(near)
    }

    fn levels(&self, holder: QuotaHolder, usage: Usage) -> [Level; 3] {
        let limits = holder.quota.limits(self.platform);
        Resource::ALL.map(|resource| Level { resource, used: usage.of(resource), limit: limits.of(resource) })
    }

    /// A poisoned table is still consistent: no code panics between two changes.
    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Figures>> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::policy::quota::Amounts;

    const HOLDER: QuotaHolder = QuotaHolder {
        tenant: TenantId(uuid::Uuid::nil()),
        quota: TenantQuota { sessions: Some(10), projects: None, stored_bytes: None },
    };

    fn quotas(sessions: u64, now: Instant) -> Quotas {
        let quotas = Quotas::new(Amounts { sessions: 0, projects: 100, stored_bytes: 100 });
        assert!(quotas.begins_reading(HOLDER, now), "nothing is known");
        quotas.put(HOLDER.tenant, Usage { sessions, ..Usage::default() }, now);
        quotas
    }

    #[test]
    fn calls_are_counted_until_the_quota_is_full() {
        let now = Instant::now();
        let quotas = quotas(8, now);
        let near = quotas.count(HOLDER, &[Growth::SESSION], now);
        assert_eq!(near.map(|near| near.iter().map(|level| level.used).collect()), Ok(vec![9]));
        assert_eq!(quotas.count(HOLDER, &[Growth::SESSION], now), Ok(vec![]), "warned already");
        let full = Level { resource: Resource::Sessions, used: 10, limit: 10 };
        assert_eq!(quotas.count(HOLDER, &[Growth::SESSION], now), Err(Error::QuotaFull(full)));
        assert_eq!(quotas.count(HOLDER, &[Growth::bytes(79)], now), Ok(vec![]), "another resource");
        // A call that is refused for one resource counts for none.
        assert!(quotas.count(HOLDER, &[Growth::bytes(1), Growth::SESSION], now).is_err());
        assert_eq!(quotas.count(HOLDER, &[Growth::bytes(21)], now), Ok(vec![]));
        let full = Level { resource: Resource::StoredBytes, used: 100, limit: 100 };
        assert_eq!(quotas.count(HOLDER, &[Growth::bytes(1)], now), Err(Error::QuotaFull(full)));
        let later = now + WARNING_PAUSE;
        assert_eq!(quotas.count(HOLDER, &[Growth::bytes(0)], later).map(|near| near.len()), Ok(1));
    }

    #[test]
    fn figures_near_the_quota_are_read_more_often_and_by_one_call() {
        let now = Instant::now();
        for (sessions, fresh) in [(1, FRESH), (8, FRESH_NEAR)] {
            let quotas = quotas(sessions, now);
            assert!(!quotas.begins_reading(HOLDER, now + fresh / 2));
            assert!(quotas.begins_reading(HOLDER, now + fresh));
            assert!(!quotas.begins_reading(HOLDER, now + fresh), "one call reads");
        }
    }
}
