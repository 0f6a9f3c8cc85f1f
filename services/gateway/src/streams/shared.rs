//! A map of values that all users of a key share. A value lives as long as one user holds it.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// The values by key.
#[derive(Debug)]
pub(crate) struct SharedMap<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V> SharedMap<K, V> {
    /// Returns the value of a key; the first caller creates it with `start`.
    pub(crate) fn join(&self, key: K, start: impl FnOnce() -> V) -> Arc<V> {
        let mut all = self.lock();
        if let Some(shared) = all.get(&key).and_then(Weak::upgrade) {
            return shared;
        }
        // Remove dead entries only when the map would grow. Thousands of clients join at once, and a join must not scan the
        // whole map.
        if all.len() == all.capacity() {
            all.retain(|_, shared| shared.strong_count() > 0);
        }
        let started = Arc::new(start());
        all.insert(key, Arc::downgrade(&started));
        started
    }

    /// The living values that pass a filter.
    pub(crate) fn filter(&self, passes: impl Fn(&V) -> bool) -> Vec<(K, Arc<V>)> {
        let all = self.lock();
        let living = all.iter().filter_map(|(key, shared)| Some((key, shared.upgrade()?)));
        living.filter(|(_, shared)| passes(shared)).map(|(key, shared)| (key.clone(), shared)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Weak<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_with_its_last_holder() {
        let shared = SharedMap::default();
        let first = shared.join("a", || 1);
        let second = shared.join("a", || 2);
        assert!(Arc::ptr_eq(&first, &second));
        let other = shared.join("b", || 3);
        assert_eq!(shared.filter(|_| true).len(), 2);
        drop((first, other));
        assert_eq!(shared.filter(|number| *number < 3), [("a", second)]);
        assert_eq!(*shared.join("a", || 4), 4);
    }
}
