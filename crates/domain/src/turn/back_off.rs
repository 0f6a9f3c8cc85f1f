//! How long a loop pauses after a failed model call.

/// First back-off of a model call, doubled each time; milliseconds.
const RETRY_BASE_MS: u64 = 2_000;
/// Longest back-off if the provider gives none; milliseconds.
const RETRY_CAP_MS: u64 = 30_000;

/// Milliseconds to wait after attempt number `failed`. If the provider asks for a pause, that pause plus up to a tenth, so
/// that many sessions do not retry at once. Otherwise 2 s, doubled after each attempt up to 30 s, plus up to a quarter.
/// `jitter` is from 0 to 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small numbers"
)]
pub(super) fn back_off_ms(failed: u32, retry_after_ms: Option<u64>, jitter: f64) -> u64 {
    let (wait, share) = match retry_after_ms {
        Some(wait_ms) => (wait_ms, 0.1),
        None => {
            let doublings = failed.saturating_sub(1).min(16);
            (RETRY_BASE_MS.saturating_mul(1 << doublings).min(RETRY_CAP_MS), 0.25)
        }
    };
    wait.saturating_add((wait as f64 * share * jitter.clamp(0.0, 1.0)) as u64)
}
