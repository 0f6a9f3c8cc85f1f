//! Calls to the broker that are repeated.

use std::time::Duration;
use tonic::{Code, Status};

/// Attempts of one call, and the pause before the second; it doubles.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);
/// The refusals of the broker that another attempt may not meet.
const PASSING: [&str; 5] =
    ["kms_unavailable", "registry_busy", "registry_failed", "registry_unreachable", "pull_interrupted"];

/// Repeats a call to the broker that may succeed a moment later.
pub(super) async fn with_patience<T, F>(mut call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let (mut tries, mut pause) = (1, PAUSE);
    loop {
        match call().await {
            Err(status) if tries < TRIES && passes(&status) => {
                tracing::debug!("the broker cannot do it yet: {}", status.message());
                tokio::time::sleep(pause).await;
                (tries, pause) = (tries + 1, pause * 2);
            }
            result => return result,
        }
    }
}

fn passes(status: &Status) -> bool {
    let code = rpc::status::code_of(status);
    let is_passing =
        |code: &str| PASSING.contains(&code) || ["broker_unavailable", "caller_left"].contains(&code);
    code.as_deref().map_or(status.code() == Code::Unavailable, is_passing)
}
