//! The output of a command as the worker holds it: its beginning and its end, and what models and clients see of them.

use super::plain::PlainText;
use crate::tools::context::Bounds;
use domain::text;

/// Bytes of the output that clients see: its newest ones.
pub(super) const TOOL_PROGRESS_BYTES: usize = 30_000;

/// Bytes and lines reserved for notes around the output that a model reads.
const ROOM: Bounds = Bounds { lines: 16, bytes: 1_024 };

/// The received output: for the model its beginning and its end as plain text, and its newest bytes for clients.
#[derive(Debug)]
pub(super) struct OutputExcerpt {
    plain: PlainText,
    /// The newest bytes as they came.
    newest: Vec<u8>,
    pub(super) next_offset: u64,
}

impl OutputExcerpt {
    /// Keeps as much of the beginning and of the end as the model may read of both together.
    pub(super) fn new(bounds: Bounds) -> Self {
        let half = |all: usize, room: usize| ((all - room.min(all / 4)) / 2).max(1);
        let side = Bounds { lines: half(bounds.lines, ROOM.lines), bytes: half(bounds.bytes, ROOM.bytes) };
        Self { plain: PlainText::new(side), newest: vec![], next_offset: 0 }
    }

    pub(super) fn push(&mut self, offset: u64, data: &[u8]) {
        let known =
            usize::try_from(self.next_offset.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        let fresh = &data[known..];
        self.next_offset = self.next_offset.max(offset + data.len() as u64);
        self.plain.push(fresh);
        self.newest.extend_from_slice(fresh);
        if self.newest.len() > 2 * TOOL_PROGRESS_BYTES {
            self.newest.drain(..self.newest.len() - TOOL_PROGRESS_BYTES);
        }
    }

    /// Whether the text contains the whole output.
    pub(super) fn is_shown_whole(&self) -> bool {
        self.plain.whole().is_some()
    }

    /// The newest output, as clients see it while the command runs.
    pub(super) fn newest(&self) -> String {
        let output = String::from_utf8_lossy(&self.newest).replace('\0', "\u{fffd}");
        text::tail(&output, TOOL_PROGRESS_BYTES).to_owned()
    }

    /// The output as text, with a note instead of an omitted middle. It always keeps both ends, because failures show
    /// at the end.
    pub(super) fn text(&self, spill_path: &str) -> String {
        let plain = &self.plain;
        if let Some(all) = plain.whole() {
            return all;
        }
        let side = plain.side;
        let tail = &plain.tail[plain.tail.len().saturating_sub(side.bytes)..];
        let is_whole = plain.length == (plain.head.len() + tail.len()) as u64;
        let (head, tail) = (String::from_utf8_lossy(&plain.head), String::from_utf8_lossy(tail));
        let all = format!("{head}{tail}");
        let (first, last) = if is_whole { (&*all, &*all) } else { (&*head, &*tail) };
        let (first, last) = (first_lines(first, side), last_lines(last, side));
        let left_out = plain.length.saturating_sub((first.len() + last.len()) as u64);
        format!("{first}\n\n(… {left_out} bytes left out; the whole output is in {spill_path} …)\n\n{last}")
    }
}

/// A text as it stands on a screen when it is over.
pub(super) fn plain(output: &str) -> String {
    let mut plain = PlainText::new(Bounds { lines: usize::MAX, bytes: output.len() });
    plain.push(output.as_bytes());
    String::from_utf8_lossy(&plain.head).into_owned()
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
    fn frames_of_progress_do_not_push_out_what_failed() {
        let mut excerpt = OutputExcerpt::new(Bounds::default());
        let mut push = |text: &str| excerpt.push(excerpt.next_offset, text.as_bytes());
        (0..3_000).for_each(|n| push(&format!("\rDownloading {n}/3000 [====>      ] 12.3MB/s")));
        push("\n\x1b[31mERROR\x1b[0m: linker failed\n");
        (0..3_000).for_each(|n| push(&format!("\rUploading {n}/3000 [====>      ] 12.3MB/s")));
        push("\nend\n");
        let want = "Downloading 2999/3000 [====>      ] 12.3MB/s\nERROR: linker failed\n\
            Uploading 2999/3000 [====>      ] 12.3MB/s\nend\n";
        assert_eq!(excerpt.text("/x"), want);
        assert!(excerpt.is_shown_whole());
        let live = excerpt.newest();
        assert!(live.len() > 20_000 && live.contains("\rUploading 2998/3000"), "people see it as it came");
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
        binary.push(0, &vec![0xff; binary.plain.side.bytes * 2]);
        let text = binary.text("/run/out");
        assert!(text.contains("in /run/out") && text.len() < limits::TOOL_OUTPUT_BYTES_MAX, "{}", text.len());
    }
}
