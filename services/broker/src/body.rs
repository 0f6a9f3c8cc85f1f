//! Reads the answers of servers outside that must fit in memory.

use reqwest::Response;

/// Why an answer is not read to its end.
pub(crate) enum BodyError {
    /// It is longer than its bound.
    TooLong,
    Broken(reqwest::Error),
}

/// Appends an answer of at most `bytes_max` bytes to `body`. For a secret, pass a buffer with room for the whole answer: it does not move, so no copy stays
/// in memory.
///
/// # Errors
/// `TooLong`, `Broken`: `body` may have the beginning.
pub(crate) async fn read(
    mut response: Response,
    bytes_max: usize,
    body: &mut Vec<u8>,
) -> Result<(), BodyError> {
    if response.content_length().is_some_and(|length| length > bytes_max as u64) {
        return Err(BodyError::TooLong);
    }
    let mut rest = bytes_max;
    while let Some(piece) = response.chunk().await.map_err(BodyError::Broken)? {
        rest = rest.checked_sub(piece.len()).ok_or(BodyError::TooLong)?;
        body.extend_from_slice(&piece);
    }
    Ok(())
}
