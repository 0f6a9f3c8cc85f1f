//! The output of a command as the worker holds it: its beginning and its end, and what models and clients see of them.

use crate::tools::context::Bounds;
use domain::text;

/// Bytes of the output that clients see: its newest ones.
pub(super) const TOOL_PROGRESS_BYTES: usize = 30_000;

/// Bytes and lines reserved for notes around the output that a model reads.
const ROOM: Bounds = Bounds { lines: 16, bytes: 1_024 };

/// The received output: its beginning and its end.
#[derive(Debug)]
pub(super) struct OutputExcerpt {
    head: Vec<u8>,
    tail: Vec<u8>,
    pub(super) next_offset: u64,
    side: Bounds,
}

impl OutputExcerpt {
    /// Keeps as much of the beginning and of the end as the model may read of both together.
    pub(super) fn new(bounds: Bounds) -> Self {
        let half = |all: usize, room: usize| ((all - room.min(all / 4)) / 2).max(1);
        let side = Bounds { lines: half(bounds.lines, ROOM.lines), bytes: half(bounds.bytes, ROOM.bytes) };
        Self { head: vec![], tail: vec![], next_offset: 0, side }
    }

    pub(super) fn push(&mut self, offset: u64, data: &[u8]) {
        let known =
            usize::try_from(self.next_offset.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        let fresh = &data[known..];
        self.next_offset = self.next_offset.max(offset + data.len() as u64);
        let side_bytes = self.side.bytes;
        let to_head = (side_bytes - self.head.len()).min(fresh.len());
        self.head.extend_from_slice(&fresh[..to_head]);
        self.tail.extend_from_slice(&fresh[to_head..]);
        // Clients always see the same amount, even if the model reads less.
        let tail_bytes = side_bytes.max(TOOL_PROGRESS_BYTES);
        if self.tail.len() > 2 * tail_bytes {
            self.tail.drain(..self.tail.len() - tail_bytes);
        }
    }

    /// Whether the text contains the whole output.
    pub(super) fn is_shown_whole(&self) -> bool {
        self.whole().is_some()
    }

    /// The whole output as text, if it is short enough.
    fn whole(&self) -> Option<String> {
        let Bounds { lines, bytes } = self.side;
        let length = (self.head.len() + self.tail.len()) as u64;
        if self.next_offset != length || length > 2 * bytes as u64 {
            return None;
        }
        let all = [&self.head[..], &self.tail[..]].concat();
        let all = String::from_utf8_lossy(&all).into_owned();
        // Invalid UTF-8 made the text longer.
        (all.len() <= 2 * bytes && all.lines().count() <= 2 * lines).then_some(all)
    }

    /// The newest output, as clients see it while the command runs.
    pub(super) fn newest(&self) -> String {
        let both = [&self.head[..], &self.tail[..]].concat();
        let output = String::from_utf8_lossy(&both).replace('\0', "\u{fffd}");
        text::tail(&output, TOOL_PROGRESS_BYTES).to_owned()
    }

    /// The output as text, with a note instead of an omitted middle. It always keeps both ends, because failures show
    /// at the end.
    pub(super) fn text(&self, spill_path: &str) -> String {
        if let Some(all) = self.whole() {
            return all;
        }
        let tail = &self.tail[self.tail.len().saturating_sub(self.side.bytes)..];
        let is_whole = self.next_offset == (self.head.len() + tail.len()) as u64;
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(tail));
        let all = format!("{head}{tail}");
        let (first, last) = if is_whole { (&*all, &*all) } else { (&*head, &*tail) };
        let (first, last) = (first_lines(first, self.side), last_lines(last, self.side));
        let left_out = self.next_offset.saturating_sub((first.len() + last.len()) as u64);
        format!("{first}\n\n(… {left_out} bytes left out; the whole output is in {spill_path} …)\n\n{last}")
    }
}

/// The beginning of a text, as far as the model reads it.
fn first_lines(text: &str, side: Bounds) -> &str {
    let end = text.match_indices('\n').nth(side.lines - 1).map_or(text.len(), |(end, _)| end);
    text::head(&text[..end], side.bytes)
}

/// The end of a text, as far as the model reads it.
fn last_lines(text: &str, side: Bounds) -> &str {
    let start =
        text.trim_end_matches('\n').rmatch_indices('\n').nth(side.lines - 1).map_or(0, |(at, _)| at + 1);
    text::tail(&text[start..], side.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::limits;

    #[test]
    fn output_keeps_its_beginning_and_its_end() {
        let mut excerpt = OutputExcerpt::new(Bounds::default());
        excerpt.push(0, b"hello ");
        excerpt.push(3, b"lo world");
        assert_eq!(excerpt.text("/x"), "hello world", "an overlap is taken once");
        for at in 0..200_u64 {
            excerpt.push(11 + at * 1000, &[b'a' + u8::try_from(at % 26).unwrap_or(0); 1000]);
        }
        let text = excerpt.text("/run/out");
        assert!(text.starts_with("hello world") && text.ends_with('r'), "{}", text::tail(&text, 20));
        assert!(text.contains("bytes left out; the whole output is in /run/out"));
        assert!(text.len() < limits::TOOL_OUTPUT_BYTES_MAX);
    }

    #[test]
    fn settings_say_how_much_is_kept() {
        let mut excerpt = OutputExcerpt::new(Bounds { lines: 4, bytes: 1_000 });
        (0..9).for_each(|number| excerpt.push(excerpt.next_offset, format!("{number}\n").as_bytes()));
        let text = excerpt.text("/x");
        assert!(text.starts_with("0\n\n(") && text.ends_with("8\n"), "{text}");
        let mut least = OutputExcerpt::new(Bounds { lines: 1, bytes: 1 });
        least.push(0, b"abc\ndef\n");
        assert!(least.text("/x").starts_with("a\n\n("), "{}", least.text("/x"));
    }

    #[test]
    fn many_short_lines_keep_both_ends_too() {
        let mut excerpt = OutputExcerpt::new(Bounds::default());
        for number in 0..5_000_u64 {
            excerpt.push(excerpt.next_offset, format!("{number}\n").as_bytes());
        }
        let text = excerpt.text("/run/out");
        assert!(text.starts_with("0\n1\n") && text.ends_with("\n4998\n4999\n"), "{}", text::tail(&text, 20));
        assert!(text.contains("the whole output is in /run/out"));
        assert!(text.lines().count() < limits::TOOL_OUTPUT_LINES_MAX);
        let mut binary = OutputExcerpt::new(Bounds::default());
        binary.push(0, &vec![0xff; binary.side.bytes * 2]);
        let text = binary.text("/run/out");
        assert!(text.contains("in /run/out") && text.len() < limits::TOOL_OUTPUT_BYTES_MAX, "{}", text.len());
    }
}
