//! The worker's control over its loops.

use super::contention::Contention;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// The worker's messages to one loop.
pub(crate) struct Control {
    /// Counts nudges: an input was accepted that must not wait for the next step.
    pub(crate) nudges: watch::Receiver<u64>,
    /// Cancelled when the worker hands over its sessions.
    pub(crate) leave: Leave,
    /// Whether the worker's lease is certainly valid. Otherwise the loop starts nothing new.
    pub(crate) lease: watch::Receiver<bool>,
    /// The worker's slots. If none is free, other sessions may have waited longer.
    pub(crate) slots: Arc<Semaphore>,
    /// The tenants that may be waiting for a slot.
    pub(crate) contention: Arc<Contention>,
    /// The worker's only slot for suspects, if this session is a suspect.
    pub(crate) suspect_slot: Option<OwnedSemaphorePermit>,
}

/// Waits until the worker's lease is certainly valid. Cancel-safe.
pub(crate) async fn lease_runs(lease: &mut watch::Receiver<bool>) {
    while !*lease.borrow_and_update() {
        if lease.changed().await.is_err() {
            // The lease thread has ended, and with it the right to begin anything. Another worker continues the
            // session.
            std::future::pending::<()>().await;
        }
    }
}

/// Tells loops to give up their sessions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leave {
    /// At the next step boundary.
    pub(crate) soon: CancellationToken,
    /// At once: the grace period for open streams is over.
    pub(crate) now: CancellationToken,
}
