//! The end of a text that grows: of a longer one, the beginning is dropped.

use std::collections::VecDeque;

/// Bytes of the output of a script that are kept. Of a longer one, the end is kept.
pub const LOG_BYTES_MAX: usize = 256 * 1024;

/// The end of what a script printed.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: VecDeque<u8>,
    /// Where they begin in the whole.
    begin: u64,
}

impl Tail {
    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(LOG_BYTES_MAX);
        self.bytes.drain(..excess);
        self.begin += excess as u64;
    }

    /// Where the whole ends.
    pub fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// At most `most` bytes from `offset` on, or from the first one that is kept, with their offset.
    pub fn piece(&self, offset: u64, most: usize) -> (u64, Vec<u8>) {
        let from = offset.max(self.begin);
        let skipped = usize::try_from(from - self.begin).unwrap_or(usize::MAX);
        (from, self.bytes.iter().skip(skipped).take(most).copied().collect())
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }

    /// The last `count` lines, of these the last `bytes_max` bytes. A line that a program wrote over counts as it was last.
    pub fn last_lines(&self, count: usize, bytes_max: usize) -> String {
        let text = String::from_utf8_lossy(&self.to_vec()).into_owned();
        let last_state = |line: &'_ str| line.trim_end_matches('\r').rsplit('\r').next().map(str::to_owned);
        let lines: Vec<String> = text.lines().filter_map(last_state).collect();
        let last = lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n");
        let from = last.len().saturating_sub(bytes_max);
        let from = (from..=last.len()).find(|at| last.is_char_boundary(*at)).unwrap_or(last.len());
        last.get(from..).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_text_is_kept() {
        let mut tail = Tail::default();
        tail.push(b"one\ntwo\nth\xc3\xa9\n");
        assert_eq!(tail.last_lines(2, 100), "two\nth\u{e9}");
        assert_eq!(tail.last_lines(9, 4), "th\u{e9}");
        assert_eq!(tail.last_lines(1, 1), "");
        let mut progress = Tail::default();
        progress.push(b"one\r\n5%\r50%\r100%\r\nend");
        assert_eq!(progress.last_lines(9, 100), "one\n100%\nend");
        assert_eq!((tail.end(), tail.piece(4, 3)), (13, (4, b"two".to_vec())));
        tail.push(&vec![b'x'; LOG_BYTES_MAX]);
        assert_eq!(tail.end(), 13 + LOG_BYTES_MAX as u64);
        assert_eq!(tail.piece(0, 2), (13, b"xx".to_vec()));
        assert_eq!(tail.to_vec().len(), LOG_BYTES_MAX);
    }
}
