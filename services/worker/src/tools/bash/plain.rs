//! The output of a command as it stands on a screen when the command is over, for the model: of each line the last frame that its program wrote
//! over the others, without colours and other sequences for terminals. Programs show progress in thousands of frames.

use crate::tools::context::Bounds;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;

/// The beginning and the end of such a text. It grows with the output, in bounded memory.
#[derive(Debug)]
pub(super) struct PlainText {
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    /// Bytes of the whole text.
    pub(super) length: u64,
    pub(super) side: Bounds,
    /// Where the newest frame begins: after the newest line break or carriage return.
    frame_at: u64,
    /// Whether a carriage return waits for what follows: a line break, or a frame over this one.
    is_returned: bool,
    sequence: Sequence,
}

/// How much of a sequence for terminals has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    None,
    /// Its first byte.
    Begun,
    /// Its parameters: `ESC [ 31 m`.
    Parameters,
    /// A text, such as the title of a window: `ESC ] 0;title BEL`.
    Text,
    /// The last but one byte of such a text.
    TextEnd,
    /// The name of a character set.
    Charset,
}

impl PlainText {
    /// A text of which `side` is kept at each end.
    pub(super) fn new(side: Bounds) -> Self {
        let (head, tail) = (vec![], vec![]);
        Self { head, tail, length: 0, side, frame_at: 0, is_returned: false, sequence: Sequence::None }
    }

    pub(super) fn push(&mut self, mut data: &[u8]) {
        while let Some(first) = data.first() {
            let is_special = |byte: &u8| matches!(*byte, ESCAPE | BACKSPACE | b'\r');
            if self.sequence != Sequence::None || self.is_returned || is_special(first) {
                self.push_byte(*first);
                data = &data[1..];
                continue;
            }
            let end = data.iter().position(is_special).unwrap_or(data.len());
            let (plain, rest) = data.split_at(end);
            self.append(plain);
            data = rest;
        }
    }

    fn push_byte(&mut self, byte: u8) {
        if self.sequence != Sequence::None {
            self.sequence = self.sequence.after(byte);
            // A line break is never a part of a sequence.
            if byte != b'\n' {
                return;
            }
        }
        match byte {
            ESCAPE => self.sequence = Sequence::Begun,
            b'\r' => self.is_returned = true,
            b'\n' if self.is_returned => {
                self.is_returned = false;
                self.append(b"\r\n");
            }
            BACKSPACE => self.drop_last(),
            byte => {
                if std::mem::take(&mut self.is_returned) {
                    self.cut(self.frame_at);
                }
                self.append(&[byte]);
            }
        }
    }

    /// Removes the character before the cursor.
    fn drop_last(&mut self) {
        let kept = if self.tail.is_empty() { &self.head } else { &self.tail };
        let bytes = kept.iter().rev().take_while(|byte| **byte & 0xc0 == 0x80).count() as u64 + 1;
        self.cut(self.length.saturating_sub(bytes).max(self.frame_at));
    }

    /// Removes everything from `length` on.
    fn cut(&mut self, length: u64) {
        let tail_at = self.length - self.tail.len() as u64;
        let kept = |from: u64, bytes: usize| {
            usize::try_from(length.saturating_sub(from)).unwrap_or(usize::MAX).min(bytes)
        };
        self.tail.truncate(kept(tail_at, self.tail.len()));
        self.head.truncate(kept(0, self.head.len()));
        self.length = length;
    }

    fn append(&mut self, data: &[u8]) {
        if let Some(at) = data.iter().rposition(|byte| *byte == b'\n') {
            self.frame_at = self.length + at as u64 + 1;
        }
        let has_gap = self.length != self.head.len() as u64;
        let room = if has_gap { 0 } else { self.side.bytes - self.head.len() };
        let (to_head, mut to_tail) = data.split_at(room.min(data.len()));
        self.head.extend_from_slice(to_head);
        self.length += data.len() as u64;
        // The same bytes give the same end, in whatever pieces they come.
        while !to_tail.is_empty() {
            let room = 2 * self.side.bytes + 1 - self.tail.len();
            let (next, rest) = to_tail.split_at(room.min(to_tail.len()));
            self.tail.extend_from_slice(next);
            if self.tail.len() > 2 * self.side.bytes {
                self.tail.drain(..self.tail.len() - self.side.bytes);
            }
            to_tail = rest;
        }
    }

    /// The whole text, if it is short enough.
    pub(super) fn whole(&self) -> Option<String> {
        let Bounds { lines, bytes } = self.side;
        let length = (self.head.len() + self.tail.len()) as u64;
        if self.length != length || length > 2 * bytes as u64 {
            return None;
        }
        let all = [&self.head[..], &self.tail[..]].concat();
        let all = String::from_utf8_lossy(&all).into_owned();
        // Invalid UTF-8 made the text longer.
        (all.len() <= 2 * bytes && all.lines().count() <= 2 * lines).then_some(all)
    }
}

impl Sequence {
    /// Its state after one more byte.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            // What has no end does not swallow the lines after it.
            (_, b'\n') => Self::None,
            (Self::Begun, b'[') => Self::Parameters,
            (Self::Begun, b']' | b'P' | b'_' | b'^' | b'X') => Self::Text,
            (Self::Begun, 0x20..=0x2f) => Self::Charset,
            (Self::Parameters, 0x20..=0x3f) => Self::Parameters,
            (Self::Text, ESCAPE) => Self::TextEnd,
            (Self::Text, BELL) | (Self::TextEnd, b'\\') => Self::None,
            (Self::Text | Self::TextEnd, _) => Self::Text,
            (Self::None | Self::Begun | Self::Parameters | Self::Charset, _) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn plain(chunks: &[&[u8]], bytes: usize) -> PlainText {
        let mut plain = PlainText::new(Bounds { lines: 1_000, bytes });
        chunks.iter().for_each(|chunk| plain.push(chunk));
        plain
    }

    #[test]
    fn a_line_is_what_stands_on_the_screen() {
        for (output, want) in [
            ("a\nb\n", "a\nb\n"),
            ("a\r\nb\r\n", "a\r\nb\r\n"),
            ("1%\r2%\r3%\ndone\n", "3%\ndone\n"),
            ("before\n\r1%\r2%", "before\n2%"),
            ("1%\r2%\r", "2%"),
            ("1%\r2%\r\n", "2%\r\n"),
            ("1%\r\r\nx", "1%\r\nx"),
            ("\x1b[31mred\x1b[0m \x1b[1;4mbold\x1b[m", "red bold"),
            ("\x1b[2K\x1b[1G50%\r\x1b[K100%\n", "100%\n"),
            ("\x1b]0;title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
            ("\x1b(Bplain\x1b=\x1b>", "plain"),
            ("\x1b]0;no end\nnext", "\nnext"),
            ("|\x08/\x08-\x08done", "done"),
            ("a\n\x08b", "a\nb"),
            ("é\x08e", "e"),
        ] {
            assert_eq!(plain(&[output.as_bytes()], 1_000).whole().as_deref(), Some(want), "{output:?}");
        }
    }

    #[test]
    fn a_frame_may_be_longer_than_what_is_kept() {
        let long = [b'x'; 100];
        let text = plain(&[b"head\n", &[b'y'; 30], b"\n", &long, b"\rlast\nend\n"], 10);
        assert_eq!((&text.head[..], &text.tail[..]), (&b"head\nyyyyy"[..], &b"last\nend\n"[..]));
        assert_eq!(text.length, 5 + 31 + 9);
        let short = plain(&[b"ab\n", &long, b"\rc"], 10);
        assert_eq!(short.whole().as_deref(), Some("ab\nc"), "the head has room again");
    }

    proptest! {
        #[test]
        fn chunks_change_nothing(pieces in prop::collection::vec(prop::sample::select(&[
            "a", "bb", "\r", "\n", "\x1b[3", "1m", "\x1b", "]0;t", "\x07", "\x08", "é", "(B",
        ][..]), 0..60), bytes in 1..40_usize) {
            let whole = pieces.concat();
            let at_once = plain(&[whole.as_bytes()], bytes);
            let chunks: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
            let one_by_one = plain(&chunks, bytes);
            prop_assert_eq!((&at_once.head, at_once.length), (&one_by_one.head, one_by_one.length));
            let end = |text: &PlainText| text.tail[text.tail.len().saturating_sub(bytes)..].to_vec();
            prop_assert_eq!(end(&at_once), end(&one_by_one));
            prop_assert!(at_once.head.len() <= bytes && at_once.tail.len() <= 2 * bytes);
        }
    }
}
