//! The connection to the service, and the failure of a request.

use sandbox_wire::{
    frame,
    v1::{self, FailureCode, Reply, reply},
};
use std::{
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, PoisonError},
};

/// The error of a request, as the caller gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: FailureCode,
    /// For people and models.
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Failure> for reply::Body {
    fn from(Failure { code, message }: Failure) -> Self {
        Self::Failure(v1::Failure { code: code.into(), message })
    }
}

/// The connection to the service. Clones share the socket; the lock keeps frames whole.
#[derive(Debug, Clone)]
pub(super) struct Service(Arc<Mutex<UnixStream>>);

impl Service {
    /// The connection over `socket`.
    pub(super) fn new(socket: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(socket)))
    }

    /// Sends one frame, and waits while the service does not read. If the service is gone, this process exits.
    pub(super) fn send(&self, id: u64, body: reply::Body) {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if frame::write(&mut *socket, &Reply { id, body: Some(body) }).is_err() {
            std::process::exit(0);
        }
    }

    pub(super) fn fail(&self, id: u64, failure: Failure) {
        self.send(id, failure.into());
    }
}
