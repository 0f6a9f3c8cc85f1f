//! Waiting with a deadline: a test that hangs reports nothing.

use std::{future::Future, time::Duration};

/// Far longer than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// Time between two polls of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    within(what, async {
        while !condition().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await;
}

pub(crate) async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, event).await {
        Ok(result) => result,
        Err(_) => panic!("waited {} s, but it did not happen: {what}", DEADLINE.as_secs()),
    }
}
