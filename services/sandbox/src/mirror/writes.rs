//! One write of a mirror at a time: the next generation is made of the newest one, so two writes at once would lose what one of them keeps.

use super::key::MirrorKey;
use chassis::lock;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// The mirrors that are being written.
#[derive(Debug, Default)]
pub(super) struct Writes(Mutex<HashMap<MirrorKey, Arc<Mutex<()>>>>);

impl Writes {
    /// Runs `write` when no other thread writes the mirror. Blocks.
    pub(super) fn run<T>(&self, key: &MirrorKey, write: impl FnOnce() -> T) -> T {
        let own = Arc::clone(lock(&self.0).entry(key.clone()).or_default());
        let written = {
            let _guard = lock(&own);
            write()
        };
        let mut all = lock(&self.0);
        // This thread has a reference, the map has one, and each thread that waits has one.
        if Arc::strong_count(&own) == 2 {
            all.remove(key);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{sync::mpsc, thread};

    fn key(source: &str) -> MirrorKey {
        let tenant = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let project = format!("prj_{}", "1".repeat(26)).parse().unwrap();
        MirrorKey { tenant, project, source: source.into() }
    }

    #[test]
    fn a_write_waits_for_the_one_of_its_mirror_and_for_no_other() {
        let writes = Writes::default();
        let (begun, has_begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let order = Mutex::new(vec![]);
        let (writes, order) = (&writes, &order);
        thread::scope(|scope| {
            scope.spawn(move || {
                writes.run(&key("own"), || {
                    begun.send(()).unwrap();
                    ended.recv().unwrap();
                    lock(order).push("first");
                });
            });
            has_begun.recv().unwrap();
            let second = scope.spawn(|| writes.run(&key("own"), || lock(order).push("second")));
            writes.run(&key("other"), || lock(order).push("other"));
            end.send(()).unwrap();
            second.join().unwrap();
        });
        assert_eq!(*lock(order), ["other", "first", "second"]);
        assert!(lock(&writes.0).is_empty());
    }
}
