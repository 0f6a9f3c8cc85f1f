//! The last bytes that a terminal wrote.

use super::limits::{KEPT_BYTES_MAX, READER_PIECE_BYTES_MAX};
use bytes::Bytes;
use std::collections::VecDeque;

/// The last bytes of an output, and their offset in it.
#[derive(Debug, Default)]
pub(super) struct Scrollback {
    bytes: VecDeque<u8>,
    /// The offset behind the last byte.
    pub(super) end: u64,
}

impl Scrollback {
    pub(super) fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    pub(super) fn append(&mut self, data: &[u8]) {
        self.end += data.len() as u64;
        let data = &data[data.len().saturating_sub(KEPT_BYTES_MAX)..];
        let excess = (self.bytes.len() + data.len()).saturating_sub(KEPT_BYTES_MAX);
        self.bytes.drain(..excess);
        self.bytes.extend(data);
    }

    /// What is kept from `offset` on, at most a piece for a reader, and where it begins. Empty at the end.
    pub(super) fn read(&self, offset: u64) -> (u64, Bytes) {
        let from = offset.clamp(self.start(), self.end);
        let skipped = usize::try_from(from - self.start()).unwrap_or(usize::MAX);
        (from, self.bytes.iter().skip(skipped).take(READER_PIECE_BYTES_MAX).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_at_their_offsets() {
        let mut scrollback = Scrollback::default();
        scrollback.append(b"first");
        assert_eq!(scrollback.read(2), (2, Bytes::from_static(b"rst")));
        scrollback.append(&vec![b'x'; KEPT_BYTES_MAX - 2]);
        assert_eq!((scrollback.start(), scrollback.end), (3, 5 + KEPT_BYTES_MAX as u64 - 2));
        assert_eq!((scrollback.read(0).0, scrollback.read(0).1.len()), (3, READER_PIECE_BYTES_MAX));
        assert_eq!(&scrollback.read(0).1[..3], b"stx");
        scrollback.append(&vec![b'y'; 2 * KEPT_BYTES_MAX]);
        assert_eq!((scrollback.bytes.len(), scrollback.bytes[0]), (KEPT_BYTES_MAX, b'y'));
        assert_eq!(scrollback.read(scrollback.end), (scrollback.end, Bytes::new()));
        assert_eq!(scrollback.read(u64::MAX), (scrollback.end, Bytes::new()));
    }
}
