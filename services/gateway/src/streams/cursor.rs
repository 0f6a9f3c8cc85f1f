//! Cursors: the positions from which streams resume. A session's cursor is a position in its log, a tenant's is a
//! moment of Postgres.

use crate::ground::{error::Error, invalid::Invalid};
use store::log::feed::Horizon;

/// The prefix of cursors of a session's stream.
const SESSION: &str = "v1.";
/// The prefix of cursors of a tenant's stream.
const TENANT: &str = "t1.";

/// The start of a session's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// After this position.
    After(u64),
    /// With the next event.
    Now,
}

/// The cursor after an event of a session: `v1.7`.
pub(crate) fn of_session(seq: u64) -> String {
    format!("{SESSION}{seq}")
}

/// The cursor after an item of a tenant's stream: `t1.81002`.
pub(crate) fn of_tenant(horizon: Horizon) -> String {
    format!("{TENANT}{horizon}")
}

/// Reads a cursor that [`of_session`] returned; an empty text means the beginning.
///
/// # Errors
/// `cursor_invalid`.
pub(crate) fn parse_session(text: &str) -> Result<Start, Error> {
    if text.is_empty() {
        return Ok(Start::After(0));
    }
    let seq = text.strip_prefix(SESSION).and_then(|seq| seq.parse().ok());
    seq.map(Start::After).ok_or_else(foreign)
}

/// Reads a cursor that [`of_tenant`] returned; an empty text is `None`.
///
/// # Errors
/// `cursor_invalid`.
pub(crate) fn parse_tenant(text: &str) -> Result<Option<Horizon>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    let horizon = text.strip_prefix(TENANT).and_then(|horizon| horizon.parse().ok());
    horizon.map(Some).ok_or_else(foreign)
}

fn foreign() -> Error {
    Invalid::Cursor.because("the cursor is not from this stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_reads_only_its_own_cursors() {
        assert_eq!(parse_session(&of_session(7)), Ok(Start::After(7)));
        assert_eq!(parse_tenant(&of_tenant(7)), Ok(Some(7)));
        assert_eq!((parse_session(""), parse_tenant("")), (Ok(Start::After(0)), Ok(None)));
        assert_eq!(parse_session(&of_tenant(7)), Err(foreign()));
        assert_eq!(parse_tenant(&of_session(7)), Err(foreign()));
    }
}
