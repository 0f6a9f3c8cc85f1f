//! The door of one session to the servers of git: an HTTP server on its socket.

use super::{
    exchange::{self, ExchangeContext},
    lfs,
    rules::GitAccess,
    servers::GitServers,
};
use crate::egress::{
    journal::Journal,
    key::DoorKey,
    relay::{Quota, Relay},
};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// Bytes of the head of a request. Git sends a few hundred. A longer one gets 431 without a code.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Time in which a client must send the head of a request, also of a second one.
const HEAD: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct GitDoor {
    key: DoorKey,
    access: Mutex<Arc<GitAccess>>,
    servers: Arc<GitServers>,
    quota: Arc<Quota>,
}

impl GitDoor {
    /// A door that lets nothing pass yet. The bytes count against `quota`.
    pub(in crate::egress) fn new(key: DoorKey, servers: Arc<GitServers>, quota: Arc<Quota>) -> Self {
        Self { key, access: Mutex::default(), servers, quota }
    }

    /// Lets what these rules allow pass, from the next request on.
    pub(in crate::egress) fn allow(&self, access: GitAccess) {
        *self.access.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    fn access(&self) -> Arc<GitAccess> {
        Arc::clone(&self.access.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves one connection to its end, or until `closing`.
    pub(in crate::egress) async fn serve(
        &self,
        client: impl AsyncRead + AsyncWrite + Unpin,
        journal: &Arc<Journal>,
        closing: &CancellationToken,
    ) {
        let relay = Arc::new(Relay::new(Arc::clone(&self.quota)));
        let handler = service_fn(|request: Request<Incoming>| {
            let context = ExchangeContext {
                key: self.key.clone(),
                access: self.access(),
                servers: Arc::clone(&self.servers),
                relay: Arc::clone(&relay),
                journal: Arc::clone(journal),
            };
            async {
                let asked = lfs::request::parse(request.method(), request.uri());
                Ok::<_, Infallible>(match asked {
                    Some(asked) => lfs::exchange::answer(context, asked, request).await,
                    None => exchange::answer(context, request).await,
                })
            }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES_MAX);
        let connection = server.serve_connection(TokioIo::new(client), handler);
        tokio::select! {
            // An error means that the client left, or sent no HTTP.
            _ = connection => {}
            () = relay.idle() => {}
            () = closing.cancelled() => {}
        }
    }
}
