//! Tasks that have a name, keep the caller's trace and are joined at shutdown. A panic in a task ends only that task.

use futures::FutureExt as _;
use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// The tasks of one service. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    running: Arc<Mutex<Running>>,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    names: BTreeMap<u64, &'static str>,
}

/// Removes the name from the list, however the task ends.
struct Entry {
    running: Arc<Mutex<Running>>,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.running).names.remove(&self.id);
    }
}

impl Tasks {
    /// Spawns `future` under `name`, inside the caller's span. A panic in it is logged and ends only this task.
    ///
    /// The caller may drop the handle (the task continues), await it or abort it.
    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let entry = self.enter(name);
        // An async block around it would reserve the future's memory twice, before and while it runs.
        let watched = AssertUnwindSafe(future).catch_unwind().map(move |ended| {
            if ended.is_err() {
                report_panic(name);
            }
            drop(entry);
        });
        self.tracker.spawn(watched.in_current_span())
    }

    /// Waits at most `within` for all tasks and returns the sorted names of those that still run.
    ///
    /// Does not cancel them; the caller does that with its shutdown token. It also waits for tasks that are spawned
    /// meanwhile.
    pub async fn join_all(&self, within: Duration) -> Vec<&'static str> {
        self.tracker.close();
        if tokio::time::timeout(within, self.tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        let mut names: Vec<_> = lock(&self.running).names.values().copied().collect();
        names.sort_unstable();
        names
    }

    fn enter(&self, name: &'static str) -> Entry {
        let mut running = lock(&self.running);
        running.next += 1;
        let id = running.next;
        running.names.insert(id, name);
        Entry { running: Arc::clone(&self.running), id }
    }
}

/// Counts and logs that a task panicked. The caller runs it again, or ends.
pub fn report_panic(name: &'static str) {
    metrics::counter!("flotilla_task_panics_total", "task" => name).increment(1);
    tracing::error!("task {name} panicked");
}

/// A poisoned list is still consistent: no code panics between its two changes.
fn lock(running: &Mutex<Running>) -> std::sync::MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_only_its_task() {
        let tasks = Tasks::default();
        tasks.spawn("bad", async { panic!("on purpose") }).await.unwrap();
        tasks.spawn("good", async {}).await.unwrap();
        assert!(tasks.join_all(Duration::from_secs(5)).await.is_empty());
    }

    #[tokio::test]
    async fn a_task_that_hangs_is_named() {
        let tasks = Tasks::default();
        let hanging = tasks.spawn("hangs", std::future::pending());
        tasks.spawn("ends", async {}).await.unwrap();
        assert_eq!(tasks.join_all(Duration::ZERO).await, ["hangs"]);
        hanging.abort();
        assert!(tasks.join_all(Duration::from_secs(5)).await.is_empty());
    }
}
