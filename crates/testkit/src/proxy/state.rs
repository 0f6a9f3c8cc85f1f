//! The state of a proxy, shared with its connections.

use super::link::{ConnectionEnd, Rules, Trap};
use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
};
use tokio::{net::TcpStream, sync::watch};

/// The current behaviour of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) rules: Rules,
    pub(super) target: SocketAddr,
    /// Each cut increments it. Connections from before the newest cut end by `end`.
    pub(super) cuts: u64,
    pub(super) end: ConnectionEnd,
}

/// The state that a proxy shares with its connections.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: watch::Sender<State>,
    pub(super) trap: Mutex<Option<Trap>>,
    pub(super) connections: AtomicU64,
    pub(super) sprung: AtomicU64,
}

impl Shared {
    pub(super) fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the stream send an RST when it is dropped.
pub(super) fn reset(stream: &TcpStream) {
    // A closed stream does not need one.
    drop(stream.set_zero_linger());
}
