//! Standard output: every line is written through here, so that a reader that left (`| head`) ends the command quietly.

use anyhow::{Context as _, Result};
use std::io::Write as _;

/// Writes `text` as it is and shows it at once.
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

/// Writes a note for people to standard error, where it does not disturb what programs read.
pub(crate) fn note(text: &str) {
    // Without a stderr there is nobody to tell.
    drop(writeln!(std::io::stderr(), "{text}"));
}
