//! The form of a text in which edits and patches work: Unix line endings, no byte order mark.

/// Edits a text in a form with Unix line endings and without a byte order mark, and then restores both.
pub(crate) fn in_unix_lines(
    before: &str,
    change: impl FnOnce(&str) -> Result<String, String>,
) -> Result<String, String> {
    let (mark, body) = before.strip_prefix('\u{feff}').map_or(("", before), |body| ("\u{feff}", body));
    let crlf = body.contains("\r\n");
    let after = if crlf { change(&unix(body))?.replace('\n', "\r\n") } else { change(body)? };
    Ok(format!("{mark}{after}"))
}

/// A text with Unix line endings.
pub(crate) fn unix(text: &str) -> String {
    text.replace("\r\n", "\n")
}
