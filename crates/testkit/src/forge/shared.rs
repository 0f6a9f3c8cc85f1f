//! What the handler of requests shares with the double.

use super::{
    emulator::Emulator,
    rules::{ForgeFault, ForgeRequest, SecondaryLimit},
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::watch, time::Instant};

/// A fault, and for which requests.
#[derive(Debug)]
pub(super) struct Trap {
    pub(super) method: String,
    pub(super) prefix: String,
    /// Requests that it still catches.
    pub(super) times: usize,
    pub(super) fault: ForgeFault,
}

#[derive(Debug)]
pub(super) struct Window {
    pub(super) limit: SecondaryLimit,
    pub(super) started_at: Instant,
    pub(super) writes: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) traps: Vec<Trap>,
    /// `None`: everybody writes as much as they like.
    pub(super) window: Option<Window>,
}

#[derive(Debug, Clone)]
pub(super) struct Shared {
    /// `https://github.test:41234`.
    pub(super) url: String,
    /// The directory of the bare repositories.
    pub(super) root: PathBuf,
    pub(super) emulator: Emulator,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) requests: watch::Sender<Vec<ForgeRequest>>,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
