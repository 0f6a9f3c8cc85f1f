//! The queue of the launcher thread, which tenants share.

use crate::isolation::process::{self, SpawnJob, StartPlace};
use domain::ids::TenantId;
use shares::Shares;
use std::{io, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// Sandboxes and helpers that wait for the thread to start them; each start takes a few milliseconds, and holds some thirty descriptors until then. Further ones
/// wait for their turn and hold none.
const STARTS_WAITING_MAX: u32 = 16;
/// Starts of one tenant in the queue: the start of another tenant waits behind so many of each tenant, and not behind all.
const STARTS_WAITING_TENANT_MAX: usize = 4;
/// Longest wait for the turn. Then the start fails.
const START_WAIT: Duration = Duration::from_secs(60);

/// Where starts wait for the thread. Clones are the same queue.
#[derive(Debug, Clone)]
pub(super) struct StartQueue {
    turns: Arc<Shares<TenantId>>,
    jobs: mpsc::Sender<SpawnJob>,
}

impl StartQueue {
    /// An empty queue, and the end at which the thread takes the jobs.
    pub(super) fn new() -> (Self, mpsc::Receiver<SpawnJob>) {
        let (jobs, waiting) = mpsc::channel(STARTS_WAITING_MAX as usize);
        let turns = Arc::new(Shares::new(STARTS_WAITING_MAX, STARTS_WAITING_TENANT_MAX));
        (Self { turns, jobs }, waiting)
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// `Other` if other starts took the whole wait, or if the thread has ended.
    ///
    /// Cancel-safe.
    pub(super) async fn place(&self, tenant: TenantId) -> io::Result<StartPlace> {
        let busy = |_| io::Error::other("too many sandboxes are being started; try again later");
        let turn = self.turns.acquire(tenant, START_WAIT).await.map_err(busy)?;
        // This does not wait: the channel has room for the jobs of all turns.
        let permit = self.jobs.clone().reserve_owned().await;
        Ok(StartPlace { permit: permit.map_err(|_| process::launcher_ended())?, turn })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use futures::FutureExt as _;
    use tokio::process::Command;

    #[tokio::test]
    async fn starts_of_one_tenant_leave_places_to_others() {
        let (queue, mut waiting) = StartQueue::new();
        let [greedy, other] = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let take = |tenant| queue.place(tenant).now_or_never().map(Result::unwrap);
        let mut held: Vec<_> = (0..STARTS_WAITING_TENANT_MAX).map(|_| take(greedy).unwrap()).collect();
        assert!(take(greedy).is_none());
        assert!(take(other).is_some());

        let child = held.pop().unwrap().submit(Command::new("true"));
        assert!(take(greedy).is_none(), "its job waits for the thread");
        waiting.recv().await.unwrap().run();
        assert!(take(greedy).is_some(), "its process was spawned");
        assert!(child.await.unwrap().unwrap().wait().await.unwrap().success());
    }
}
