//! Keys that were found in the store a moment ago, so that the calls of one client do not each look up the same key.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use store::control::tenants::KeyOwner;

/// Time for which a key is not looked up again. A key that another gateway revoked is accepted for at most this time.
const FRESH: Duration = Duration::from_secs(1);
/// Remembered keys, some 200 bytes each. Beyond that, all are looked up again.
const KEYS_MAX: usize = 10_000;

/// The keys, by their SHA-256.
#[derive(Debug, Default)]
pub(super) struct KeyCache(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Each owner with the time before its look-up.
    owners: HashMap<[u8; 32], (Instant, KeyOwner)>,
    cleared_at: Option<Instant>,
}

impl KeyCache {
    /// Returns the owner of a key that was looked up recently.
    pub(super) fn find(&self, sha256: &[u8; 32], now: Instant) -> Option<KeyOwner> {
        let table = self.lock();
        let (began_at, owner) = table.owners.get(sha256)?;
        (now.duration_since(*began_at) < FRESH).then(|| owner.clone())
    }

    /// Remembers the owner of a key, unless all keys were forgotten since the look-up began: this one may have been revoked meanwhile.
    pub(super) fn put(&self, sha256: [u8; 32], owner: KeyOwner, began_at: Instant) {
        let mut table = self.lock();
        if table.cleared_at.is_some_and(|cleared_at| began_at <= cleared_at) {
            return;
        }
        if table.owners.len() >= KEYS_MAX {
            table.owners.clear();
        }
        table.owners.insert(sha256, (began_at, owner));
    }

    /// Forgets all keys, after a change of a key or a tenant at this gateway.
    pub(super) fn clear(&self, now: Instant) {
        let mut table = self.lock();
        table.owners.clear();
        table.cleared_at = Some(now);
    }

    /// A poisoned table is still consistent: no code panics between two changes.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{
        ids::{TenantId, Timestamp},
        policy::{quota::TenantQuota, role::Role},
    };
    use store::tenant::{retention::Retention, tenants::Tenant};

    fn owner(name: &str) -> KeyOwner {
        let tenant = Tenant {
            id: TenantId(uuid::Uuid::nil()),
            name: "acme".to_owned(),
            running_max: 1,
            weight: 1,
            retention: Retention::default(),
            quota: TenantQuota::default(),
            created_at: Timestamp(0),
        };
        KeyOwner { tenant, name: name.to_owned(), prefix: "flk_test".to_owned(), role: Role::Admin }
    }

    #[test]
    fn a_key_is_remembered_for_less_than_two_seconds() {
        let (cache, start) = (KeyCache::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        cache.put([1; 32], owner("ci"), start);
        assert_eq!(cache.find(&[1; 32], after(999)), Some(owner("ci")));
        assert_eq!(cache.find(&[2; 32], after(0)), None);
        assert_eq!(cache.find(&[1; 32], after(1_000)), None);
        cache.put([1; 32], owner("ci"), after(1_000));
        cache.clear(after(1_500));
        assert_eq!(cache.find(&[1; 32], after(1_500)), None, "revoked here");
        cache.put([1; 32], owner("ci"), after(1_400));
        assert_eq!(cache.find(&[1; 32], after(1_500)), None, "looked up before that");
        cache.put([1; 32], owner("ci"), after(1_501));
        assert_eq!(cache.find(&[1; 32], after(1_501)), Some(owner("ci")));
    }
}
