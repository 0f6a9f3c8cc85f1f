//! What all who follow the same thing share, as long as one of them does.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// By what is followed. Whoever holds one of the values keeps it.
#[derive(Debug)]
pub(crate) struct Shared<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for Shared<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V> Shared<K, V> {
    /// Gives what is shared, started by the first who asks.
    pub(crate) fn join(&self, key: K, start: impl FnOnce() -> V) -> Arc<V> {
        let mut all = self.lock();
        if let Some(shared) = all.get(&key).and_then(Weak::upgrade) {
            return shared;
        }
        // What ended is forgotten before there would be more room: thousands begin at once, and none of them looks at all others.
        if all.len() == all.capacity() {
            all.retain(|_, shared| shared.strong_count() > 0);
        }
        let started = Arc::new(start());
        all.insert(key, Arc::downgrade(&started));
        started
    }

    /// What somebody still follows, of what is wanted.
    pub(crate) fn all(&self, is_wanted: impl Fn(&V) -> bool) -> Vec<(K, Arc<V>)> {
        let all = self.lock();
        let living = all.iter().filter_map(|(key, shared)| Some((key, shared.upgrade()?)));
        living.filter(|(_, shared)| is_wanted(shared)).map(|(key, shared)| (key.clone(), shared)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Weak<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_who_leaves_ends_it() {
        let shared = Shared::default();
        let first = shared.join("a", || 1);
        let second = shared.join("a", || 2);
        assert!(Arc::ptr_eq(&first, &second));
        let other = shared.join("b", || 3);
        assert_eq!(shared.all(|_| true).len(), 2);
        drop((first, other));
        assert_eq!(shared.all(|number| *number < 3), [("a", second)]);
        assert_eq!(*shared.join("a", || 4), 4);
    }
}
