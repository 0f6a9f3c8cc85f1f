//! The logs of the servers.

use std::{fs, path::Path};

/// Lines of a log that are shown when a server fails.
const TAIL_LINES: usize = 20;

/// Gives the last lines of a log; empty when there is none.
pub fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
