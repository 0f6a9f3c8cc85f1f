//! The bound on the worker's waits for Postgres.

use std::time::Duration;
use store::error::Error;

/// Longest wait of a loop for one response from Postgres; milliseconds. Above the server's own statement timeout: only a
/// connection to a vanished server takes longer.
const STORE_ANSWER_MS: u64 = 20_000;

/// Waits for a response from Postgres for a bounded time. A connection to a vanished server stays silent forever, while the
/// lease, which has its own connection, is still renewed.
///
/// # Errors
/// Those of `answer`, or a transient error once the time is over: it is then unknown whether the write took effect.
pub(crate) async fn with_store_timeout<T>(
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let patience = Duration::from_millis(STORE_ANSWER_MS);
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Err(Error::timed_out()))
}
