//! The bound on the worker's waits for Postgres.

use domain::limits;
use std::time::Duration;
use store::error::Error;

/// Waits for a response from Postgres for a bounded time. A connection to a vanished server stays silent forever, while the
/// lease, which has its own connection, is still renewed.
///
/// # Errors
/// Those of `answer`, or a transient error once the time is over: it is then unknown whether the write took effect.
pub(crate) async fn with_store_timeout<T>(
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let patience = Duration::from_millis(limits::STORE_ANSWER_MS);
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Err(Error::timed_out()))
}
