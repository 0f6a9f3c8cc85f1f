//! An HTTP server in this process.

use axum::{Router, serve::Listener};
use std::fmt::Debug;
use tokio::sync::oneshot;

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
