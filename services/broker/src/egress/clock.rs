//! The time for grants, which outlive this process, and for the rows of what sessions reach.

use domain::ids::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of this moment.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
