//! Sends messages over NATS. What cannot be sent is lost, as any message may be.

use async_nats::Client;
use bytes::Bytes;
use futures::FutureExt as _;
use std::{panic::AssertUnwindSafe, time::Duration};

/// Longest wait for messages to leave this process, before the next ones follow: NATS may be away.
const FLUSH: Duration = Duration::from_millis(100);

/// Starts the only task of a queue. It ends with the last sender of the queue, and survives panics of the client: see [`send`].
pub(crate) fn spawn(queue: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(queue);
}

/// Sends a message. Its caller is the only task of a queue, so a panic of the client ends only this message.
pub(crate) async fn send(nats: &Client, subject: String, payload: Bytes) {
    match AssertUnwindSafe(nats.publish(subject, payload)).catch_unwind().await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "cannot send a message"),
        Err(_) => tracing::error!("the NATS client panicked; a message is lost"),
    }
}

/// Waits until the messages so far have left this process. Its caller is that of [`send`].
pub(crate) async fn flush(nats: &Client) {
    match tokio::time::timeout(FLUSH, AssertUnwindSafe(nats.flush()).catch_unwind()).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::debug!(%error, "cannot send what is written"),
        Ok(Err(_)) => tracing::error!("the NATS client panicked while it sent"),
        Err(_) => tracing::debug!("NATS does not take what is written"),
    }
}
