//! The bound on how long the worker waits for Postgres.

use domain::limits;
use std::time::Duration;
use store::error::Error;

/// Waits for an answer of Postgres for a bounded time. A connection that lost its other end stays silent for ever, while the
/// lease, on a connection of its own, keeps running.
///
/// # Errors
/// Those of `answer`, or a transient error once the time is over: whether the write took effect is then unknown.
pub(crate) async fn with_store_timeout<T>(
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let patience = Duration::from_millis(limits::STORE_ANSWER_MS);
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Err(Error::timed_out()))
}
