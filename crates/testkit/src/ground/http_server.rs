//! An HTTP server in this process.

use axum::{Router, serve::Listener};
use std::fmt::Debug;
use tokio::{net::TcpListener, sync::oneshot};

/// A free port of this machine, with its host and port.
pub(crate) async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let host = listener.local_addr().expect("an address").to_string();
    (listener, host)
}

/// Serves requests until the sender of `stopped` is dropped. Must be called inside a runtime.
pub(crate) fn spawn<L>(listener: L, router: Router, stopped: oneshot::Receiver<()>)
where
    L: Listener,
    L::Addr: Debug,
{
    tokio::spawn(async move {
        tokio::select! {
            _ = stopped => {}
            result = async { axum::serve(listener, router).await } => result.expect("a server"),
        }
    });
}
