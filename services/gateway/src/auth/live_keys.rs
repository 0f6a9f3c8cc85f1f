//! The keys behind open streams. A stream may live for days, so it ends when its key is revoked or the tenant is deleted, also if that
//! happens at another gateway.

use axum::http::Extensions;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use store::Store;
use tokio_util::sync::CancellationToken;

/// The SHA-256 of a key.
pub(crate) type KeySha256 = [u8; 32];

/// Time between two checks of all keys with streams.
const CHECK: Duration = Duration::from_secs(1);
/// Keys of one query. More keys take several queries.
const KEYS_MAX: usize = 1_000;

/// The keys that have streams.
#[derive(Debug, Default)]
pub(crate) struct LiveKeys(Mutex<HashMap<KeySha256, Entry>>);

#[derive(Debug)]
struct Entry {
    revoked: CancellationToken,
    streams: usize,
}

/// A stream of a key. Dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct LiveKey {
    keys: Arc<LiveKeys>,
    key: KeySha256,
    revoked: CancellationToken,
}

impl LiveKeys {
    /// Watches the key of a stream for as long as the result lives.
    pub(crate) fn watch(self: &Arc<Self>, key: KeySha256) -> LiveKey {
        let mut keys = self.lock();
        let entry =
            keys.entry(key).or_insert_with(|| Entry { revoked: CancellationToken::new(), streams: 0 });
        entry.streams += 1;
        LiveKey { keys: Arc::clone(self), key, revoked: entry.revoked.clone() }
    }

    /// Ends the streams of revoked keys until the task is dropped. While Postgres is away, no stream ends.
    pub(crate) async fn check_forever(self: Arc<Self>, store: Store) {
        loop {
            tokio::time::sleep(CHECK).await;
            let keys: Vec<KeySha256> = self.lock().keys().copied().collect();
            for some in keys.chunks(KEYS_MAX) {
                match store.list_valid_keys(some).await {
                    Ok(valid) => self.revoke(some, &valid.into_iter().collect()),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::debug!(error, "cannot check the keys of open streams");
                    }
                }
            }
        }
    }

    fn revoke(&self, checked: &[KeySha256], valid: &HashSet<Vec<u8>>) {
        let mut keys = self.lock();
        for key in checked.iter().filter(|key| !valid.contains(key.as_slice())) {
            // Later streams of the key get a token of their own, if it is made valid again.
            if let Some(entry) = keys.remove(key) {
                entry.revoked.cancel();
            }
        }
    }

    /// A poisoned table is still consistent: no code panics between two changes.
    fn lock(&self) -> MutexGuard<'_, HashMap<KeySha256, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveKey {
    /// Cancelled when the key is revoked.
    pub(crate) fn revoked(&self) -> &CancellationToken {
        &self.revoked
    }
}

impl Drop for LiveKey {
    fn drop(&mut self) {
        let mut keys = self.keys.lock();
        if self.revoked.is_cancelled() {
            return;
        }
        if let Some(entry) = keys.get_mut(&self.key) {
            entry.streams -= 1;
            if entry.streams == 0 {
                keys.remove(&self.key);
            }
        }
    }
}

/// The key of a request, once the caller is known. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestKey(Arc<OnceLock<KeySha256>>);

impl RequestKey {
    /// Notes the key of the caller of a request. The operator's key cannot be revoked.
    pub(crate) fn note(extensions: &Extensions, key: Option<KeySha256>) {
        if let (Some(Self(cell)), Some(key)) = (extensions.get(), key) {
            // A request has one caller, so the first key is that of all.
            cell.get_or_init(|| key);
        }
    }

    /// The key, if the caller has one.
    pub(crate) fn get(&self) -> Option<KeySha256> {
        self.0.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_revoked_key_end() {
        let keys = Arc::new(LiveKeys::default());
        let (first, second, other) = (keys.watch([1; 32]), keys.watch([1; 32]), keys.watch([2; 32]));
        keys.revoke(&[[1; 32], [2; 32]], &HashSet::from([vec![2; 32]]));
        assert!(first.revoked().is_cancelled() && second.revoked().is_cancelled());
        assert!(!other.revoked().is_cancelled());
        let again = keys.watch([1; 32]);
        drop((first, second));
        assert!(!again.revoked().is_cancelled() && keys.lock().len() == 2);
        drop((again, other));
        assert!(keys.lock().is_empty(), "nothing is watched for no stream");
    }
}
