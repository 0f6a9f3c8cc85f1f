//! Converts between column values and domain values.

use crate::error::Error;
use domain::ids::Timestamp;

/// A `timestamptz` in whole milliseconds.
pub(crate) fn timestamp(at: time::OffsetDateTime) -> Timestamp {
    Timestamp(i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
}

/// A `bigint` that counts. None of our columns holds a negative count.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A count as a `bigint`.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A duration in milliseconds, for multiplication with `interval '1 millisecond'`.
pub(crate) fn milliseconds(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The id in a column of the row `what`.
///
/// # Errors
/// `Unreadable`: a newer version wrote an id in another form.
pub(crate) fn parse_id<T: std::str::FromStr>(what: &'static str, text: &str) -> Result<T, Error>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().map_err(|error| Error::unreadable(what, error))
}

/// The text of a column of JSON.
///
/// # Errors
/// `Db`.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))?)
}
