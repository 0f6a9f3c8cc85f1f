//! The logs of the servers.

use std::{fs, path::Path};

/// Lines of the log that an error shows when a server fails.
const TAIL_LINES: usize = 20;

/// Returns the last lines of a log; empty if the file does not exist.
pub fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
