//! Standard output. Every line is written through here, so that the command ends quietly when its reader exits,
//! as in `| head`.

use anyhow::{Context as _, Result};
use std::io::Write as _;

/// Writes `text` unchanged and flushes it.
pub(crate) fn write(text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("write to standard output")
}

/// Writes `text` and a newline.
pub(crate) fn line(text: &str) -> Result<()> {
    write(&format!("{text}\n"))
}

/// Writes a note for people to standard error, so that programs can read standard output.
pub(crate) fn note(text: &str) {
    // If stderr is closed, the note cannot be shown.
    drop(writeln!(std::io::stderr(), "{text}"));
}
