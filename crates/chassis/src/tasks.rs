//! Tasks that have a name. A panic is counted and logged, and ends only its task. Every task of the services starts
//! here: those that end by themselves, loops for the life of the process, and tasks that belong to a handle.

use futures::FutureExt as _;
use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::Instrument as _;

/// Pause before a loop that panicked runs again: a lasting fault must not fill the log.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

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
struct RunningTask {
    running: Arc<Mutex<Running>>,
    id: u64,
}

impl Drop for RunningTask {
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
        self.tracker.spawn(self.watched(name, future).in_current_span())
    }

    /// Spawns `future` like [`Tasks::spawn`], but outside the caller's span: the task may run for hours, and the span ends with the call.
    pub fn spawn_apart(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.tracker.spawn(self.watched(name, future))
    }

    /// Spawns a loop that the process depends on. After a panic it runs again, after a pause of a second, with a new future of `run`. The
    /// task ends when the future ends by itself.
    pub fn spawn_loop<F>(
        &self,
        name: &'static str,
        mut run: impl FnMut() -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(name, async move {
            while catch_panic(name, run()).await.is_none() {
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        })
    }

    /// Runs `future` as a task and waits for its result. `None`: it panicked.
    ///
    /// Dropped midway: the task continues.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        // A caller that left needs no result.
        self.spawn(name, future.map(|result| drop(sender.send(result))));
        receiver.await.ok()
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

    fn watched<F: Future<Output = ()>>(
        &self,
        name: &'static str,
        future: F,
    ) -> impl Future<Output = ()> + use<F> {
        let entry = self.enter(name);
        // An async block around it would reserve the future's memory twice, before and while it runs.
        catch_panic(name, future).map(move |_| drop(entry))
    }

    fn enter(&self, name: &'static str) -> RunningTask {
        let mut running = lock(&self.running);
        running.next += 1;
        let id = running.next;
        running.names.insert(id, name);
        RunningTask { running: Arc::clone(&self.running), id }
    }
}

/// Spawns a task that belongs to its handle: dropping the handle ends the task. A caller that awaits the handle sees a panic as an error. The task
/// is outside the caller's span, because the handle may have other owners later.
pub fn spawn_owned<T: Send + 'static>(
    name: &'static str,
    future: impl Future<Output = T> + Send + 'static,
) -> AbortOnDropHandle<T> {
    let watched = AssertUnwindSafe(future).catch_unwind().map(move |ended| {
        ended.unwrap_or_else(|panic| {
            report_panic(name);
            std::panic::resume_unwind(panic)
        })
    });
    AbortOnDropHandle::new(tokio::spawn(watched))
}

/// Runs a future whose panic ends neither its task nor its loop. `None`: it panicked, which is counted and logged.
pub fn catch_panic<F: Future>(
    name: &'static str,
    future: F,
) -> impl Future<Output = Option<F::Output>> + use<F> {
    AssertUnwindSafe(future).catch_unwind().map(move |ended| ended.map_err(|_| report_panic(name)).ok())
}

fn report_panic(name: &'static str) {
    tracing::error!("task {name} panicked");
}

/// A poisoned list is still consistent: no code panics between its two changes.
fn lock(running: &Mutex<Running>) -> std::sync::MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_only_its_task() {
        let tasks = Tasks::default();
        tasks.spawn("bad", async { panic!("on purpose") }).await.unwrap();
        tasks.spawn("good", async {}).await.unwrap();
        assert!(tasks.join_all(Duration::from_secs(5)).await.is_empty());
    }

    #[tokio::test]
    async fn a_loop_that_panics_runs_again_until_it_ends() {
        let (tasks, runs) = (Tasks::default(), Arc::new(Mutex::new(0)));
        let counted = Arc::clone(&runs);
        let run = move || {
            let counted = Arc::clone(&counted);
            async move {
                let run = {
                    let mut runs = counted.lock().unwrap();
                    *runs += 1;
                    *runs
                };
                assert!(run == 2, "on purpose");
            }
        };
        tasks.spawn_loop("bad", run).await.unwrap();
        assert_eq!(*runs.lock().unwrap(), 2);
    }

    #[tokio::test]
    async fn a_result_comes_from_a_task_that_its_caller_cannot_end() {
        let tasks = Tasks::default();
        assert_eq!(tasks.run("good", async { 7 }).await, Some(7));
        assert_eq!(tasks.run("bad", async { panic!("on purpose") }).await, None::<()>);
        let (sender, receiver) = oneshot::channel();
        let run = tasks.run("slow", async move {
            tokio::task::yield_now().await;
            sender.send(())
        });
        assert_eq!(run.now_or_never(), None, "the caller left");
        receiver.await.unwrap();
    }

    #[tokio::test]
    async fn the_owner_of_a_task_sees_its_panic_and_ends_it() {
        assert_eq!(spawn_owned("good", async { 7 }).await.unwrap(), 7);
        let panicked = spawn_owned("bad", async { panic!("on purpose") }).await;
        assert!(panicked.is_err_and(|error: tokio::task::JoinError| error.is_panic()));
        let (sender, receiver) = oneshot::channel::<()>();
        let owned = spawn_owned("hangs", async move {
            std::future::pending::<()>().await;
            drop(sender);
        });
        drop(owned);
        assert!(receiver.await.is_err(), "the task is gone");
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
