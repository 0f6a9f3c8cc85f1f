//! Bounds on the worker's waits for Postgres.

use std::time::Duration;
use store::error::Error;
use tokio::time::Instant;

/// Longest wait of a loop for one response from Postgres; milliseconds. Above the server's own statement timeout: only a
/// connection to a vanished server takes longer.
const STORE_ANSWER_MS: u64 = 20_000;
/// Pauses between attempts: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between two attempts; the pauses double up to it.
const PAUSE_MAX: Duration = Duration::from_secs(1);

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

/// Makes a call, and repeats it for `within` while Postgres is away, so that a short outage fails no turn. Only for calls that may
/// be repeated.
///
/// # Errors
/// Those of the last attempt.
pub(crate) async fn retry_while_away<T, F>(within: Duration, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let until = Instant::now() + within;
    let mut pause = PAUSE;
    loop {
        match with_store_timeout(call()).await {
            Err(error) if error.is_transient() && Instant::now() < until => {
                tracing::warn!(error = &error as &dyn std::error::Error, "Postgres is away; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            result => return result,
        }
    }
}
