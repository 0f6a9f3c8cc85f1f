//! The sources that loops of this worker read now. The loops that need the same one take turns: the first one reads, and the others find what it stored.

use chassis::lock;
use domain::ids::{ProjectId, TenantId};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex as StdMutex, Weak},
};
use tokio::sync::Mutex;

/// The map forgets the sources that nobody reads when it has this many.
const SOURCES_KEPT: usize = 1_000;

/// A source among those of all tenants: its digest in the store.
pub(crate) type SourceKey = (TenantId, ProjectId, Vec<u8>);

#[derive(Debug, Default)]
pub(crate) struct SourceReads(StdMutex<HashMap<SourceKey, Weak<Mutex<()>>>>);

impl SourceReads {
    /// The lock that a loop holds while it reads the source.
    pub(crate) fn of(&self, key: SourceKey) -> Arc<Mutex<()>> {
        let mut reads = lock(&self.0);
        if reads.len() >= SOURCES_KEPT {
            reads.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = reads.get(&key).and_then(Weak::upgrade).unwrap_or_default();
        reads.insert(key, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn readers_of_one_source_take_turns_and_others_do_not_wait() {
        let reads = SourceReads::default();
        let key = |tenant, name: &str| -> SourceKey {
            (TenantId(uuid::Uuid::from_u128(tenant)), "prj_1".parse().unwrap(), name.into())
        };
        let first = reads.of(key(1, "a"));
        let _held = first.lock().await;
        assert!(reads.of(key(1, "a")).try_lock().is_err());
        for other in [key(2, "a"), key(1, "b")] {
            assert!(reads.of(other).try_lock().is_ok());
        }
    }

    #[test]
    fn sources_that_nobody_reads_are_forgotten() {
        let reads = SourceReads::default();
        for number in 0..3 * SOURCES_KEPT {
            drop(reads.of((
                TenantId(uuid::Uuid::nil()),
                "prj_1".parse().unwrap(),
                number.to_string().into(),
            )));
        }
        assert!(lock(&reads.0).len() <= SOURCES_KEPT);
    }
}
