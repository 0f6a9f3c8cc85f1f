//! The delay that a provider requests in its headers.

use std::time::SystemTime;

/// Milliseconds from `retry-after-ms`, else from `retry-after`. That is a number of seconds or an HTTP date; a date is
/// compared with the header `date`, because the provider's clock may differ from ours. Invalid and negative values give
/// `None`; a date in the past gives 0.
pub(crate) fn parse(
    retry_after_ms: Option<&str>,
    retry_after: Option<&str>,
    date: Option<&str>,
) -> Option<u64> {
    retry_after_ms
        .and_then(|text| milliseconds(text, 1.0))
        .or_else(|| retry_after.and_then(|text| milliseconds(text, 1_000.0).or_else(|| until(text, date))))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn milliseconds(text: &str, unit_ms: f64) -> Option<u64> {
    let value = text.trim().parse::<f64>().ok()? * unit_ms;
    (0.0..1e15).contains(&value).then(|| value.ceil() as u64)
}

fn until(text: &str, date: Option<&str>) -> Option<u64> {
    let instant = |text: &str| httpdate::parse_http_date(text.trim()).ok();
    let now = date.and_then(instant).unwrap_or_else(SystemTime::now);
    let wait = instant(text)?.duration_since(now).unwrap_or_default();
    u64::try_from(wait.as_millis()).ok()
}
