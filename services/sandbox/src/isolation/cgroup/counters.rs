//! What the kernel counts in a group.

use super::slices::Version;
use std::{fs, io, path::Path};

/// Reads the processor time of everything in a group so far; µs.
///
/// # Errors
/// Those of the file system; `InvalidData`.
pub(super) fn processor_time_us(group: &Path, version: Version) -> io::Result<u64> {
    let time_us = match version {
        // It counts in nanoseconds.
        Version::V1 | Version::V1Counters => {
            let text = fs::read_to_string(group.join("cpuacct.usage"))?;
            text.trim().parse::<u64>().ok().map(|ns| ns / 1_000)
        }
        Version::V2 => field(&fs::read_to_string(group.join("cpu.stat"))?, "usage_usec"),
    };
    time_us.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The second word of the line that begins with `word`.
pub(super) fn field(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn counters_are_read_by_their_whole_name() {
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "oom_kill"), Some(5));
    }

    #[test]
    fn both_versions_count_processor_time() {
        let group = tempfile::tempdir().unwrap();
        let read = |version| processor_time_us(group.path(), version).ok();
        assert_eq!([Version::V1, Version::V2].map(read), [None; 2]);
        fs::write(group.path().join("cpu.stat"), "usage_usec 12\nuser_usec 7\n").unwrap();
        fs::write(group.path().join("cpuacct.usage"), "34567\n").unwrap();
        assert_eq!([Version::V1, Version::V2].map(read), [Some(34), Some(12)]);
    }
}
