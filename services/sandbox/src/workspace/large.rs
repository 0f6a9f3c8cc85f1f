//! Files that a helper left out because git would read all of them, which takes minutes also if they have no blocks.

use std::fmt;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A file that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::workspace) struct LargeFile {
    /// Below /workspace.
    pub(in crate::workspace) path: String,
    /// Its apparent size.
    pub(in crate::workspace) bytes: u64,
}

impl fmt::Display for LargeFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.bytes >= GIB { (GIB, "GiB") } else { (MIB, "MiB") };
        write!(formatter, "{}, {:.1} {}", self.path, self.bytes as f64 / unit.0 as f64, unit.1)
    }
}

/// Parses a sequence of `size SPACE path NUL`, and sorts it by path.
pub(in crate::workspace) fn parse(records: &[u8]) -> Vec<LargeFile> {
    let parse = |record: &[u8]| {
        let text = String::from_utf8_lossy(record);
        let (bytes, path) = text.split_once(' ')?;
        Some(LargeFile { path: path.to_owned(), bytes: bytes.parse().ok()? })
    };
    let mut files: Vec<LargeFile> = records.split(|byte| *byte == 0).filter_map(parse).collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_left_out_is_named_with_its_size() {
        let files = parse(b"2621440 c\x008589934592 a b\n\0nonsense\0");
        let texts: Vec<_> = files.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a b\n, 8.0 GiB", "c, 2.5 MiB"]);
    }
}
