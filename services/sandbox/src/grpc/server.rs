//! The implementation of both gRPC services.

use crate::session::registry::Sessions;
use rpc::v1;
use std::{pin::Pin, sync::Arc};
use tonic::Status;

/// Messages of a stream that wait for a slow reader, each with at most 256 KiB: 2 MiB for one command, export or build. Then the sender waits. Readers of commands and
/// builds are workers, which read at once, and a gateway makes four exports of a tenant at the same time.
pub(super) const STREAM_WAITING_MAX: usize = 8;

#[derive(Debug)]
pub struct Server {
    pub(super) sessions: Arc<Sessions>,
    pub(super) isolation: v1::GetIsolationResponse,
}

/// The responses of a streaming call.
pub(super) type ResponseStream<T> = Pin<Box<dyn futures::Stream<Item = Result<T, Status>> + Send>>;

impl Server {
    /// A server for `sessions`; `isolation` is the result of the self-test.
    pub fn new(sessions: Arc<Sessions>, isolation: v1::GetIsolationResponse) -> Self {
        Self { sessions, isolation }
    }
}
