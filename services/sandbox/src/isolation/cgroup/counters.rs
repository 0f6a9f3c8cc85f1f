//! What the kernel counts in a group.

use std::{fs, io, path::Path};

/// Reads the processor time of everything in a group so far; µs.
///
/// # Errors
/// Those of the file system; `InvalidData`.
pub(super) fn processor_time_us(group: &Path) -> io::Result<u64> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    // Version 1 counts in nanoseconds.
    if let Ok(text) = fs::read_to_string(group.join("cpuacct.usage")) {
        return text.trim().parse::<u64>().map(|ns| ns / 1_000).map_err(|_| invalid());
    }
    field(&fs::read_to_string(group.join("cpu.stat"))?, "usage_usec").ok_or_else(invalid)
}

/// The second word of the line that begins with `word`.
pub(super) fn field(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn counters_are_read_by_their_whole_name() {
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "oom_kill"), Some(5));
    }

    #[test]
    fn both_versions_count_processor_time() {
        let group = tempfile::tempdir().unwrap();
        assert!(processor_time_us(group.path()).is_err());
        fs::write(group.path().join("cpu.stat"), "usage_usec 12\nuser_usec 7\n").unwrap();
        assert_eq!(processor_time_us(group.path()).unwrap(), 12);
        fs::write(group.path().join("cpuacct.usage"), "34567\n").unwrap();
        assert_eq!(processor_time_us(group.path()).unwrap(), 34);
    }
}
