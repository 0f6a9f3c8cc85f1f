//! Calls to the broker that are repeated.

use rpc::v1::ErrorCode;
use std::time::Duration;
use tonic::{Code, Status};

/// Attempts of one call, and the pause before the second; it doubles.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);
/// The refusals of the broker that another attempt may not meet.
const PASSING: [ErrorCode; 7] = [
    ErrorCode::BrokerUnavailable,
    ErrorCode::CallerLeft,
    ErrorCode::KmsUnavailable,
    ErrorCode::PullInterrupted,
    ErrorCode::RegistryBusy,
    ErrorCode::RegistryFailed,
    ErrorCode::RegistryUnreachable,
];

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
    let is_passing = |code: String| ErrorCode::parse(&code).is_some_and(|code| PASSING.contains(&code));
    rpc::status::code_of(status).map_or(status.code() == Code::Unavailable, is_passing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_repeated() {
        assert!(PASSING.iter().all(|code| code.kind().is_transient()));
        let passes = |code| passes(&rpc::status::error(code, "later"));
        assert!(passes(ErrorCode::RegistryBusy) && !passes(ErrorCode::ImageUnknown));
        assert!(super::passes(&Status::unavailable("no connection")));
    }
}
