//! A text as the quotes of models see it: Unix line ends, no byte order mark. Replacements are made in the text as it is, so that
//! each byte outside of them stays.

use std::{borrow::Cow, ops::Range};

/// A text, and its form with Unix line ends. All positions are bytes of that form, and all line numbers count from 0.
pub(crate) struct Text<'a> {
    /// Without its byte order mark.
    original: &'a str,
    mark: &'static str,
    unix: Cow<'a, str>,
    /// The line feeds of `unix` that follow a carriage return in the original, in order.
    carriage_returns: Vec<usize>,
    /// Where each line begins. What follows the last line feed is a line unless it is empty.
    starts: Vec<usize>,
}

/// What takes the place of a piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replacement<'a> {
    pub range: Range<usize>,
    /// With Unix line ends; it gets those of its place.
    pub text: Cow<'a, str>,
}

impl<'a> Text<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let (mark, original) = text.strip_prefix('\u{feff}').map_or(("", text), |body| ("\u{feff}", body));
        let pairs = original.match_indices("\r\n");
        let carriage_returns: Vec<usize> = pairs.enumerate().map(|(before, (at, _))| at - before).collect();
        let unix = unix(original);
        let ends = unix.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(ends).filter(|start| *start < unix.len()).collect();
        Self { original, mark, unix, carriage_returns, starts }
    }

    pub(crate) fn unix(&self) -> &str {
        &self.unix
    }

    pub(crate) fn line_count(&self) -> usize {
        self.starts.len()
    }

    /// A line without its end.
    pub(crate) fn line(&self, number: usize) -> &str {
        let line = &self.unix[self.start(number)..self.start(number + 1)];
        line.strip_suffix('\n').unwrap_or(line)
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        (0..self.line_count()).map(|number| self.line(number)).collect()
    }

    /// The line that has the byte at `position`.
    pub(crate) fn line_at(&self, position: usize) -> usize {
        self.starts.partition_point(|start| *start <= position).saturating_sub(1)
    }

    fn start(&self, line: usize) -> usize {
        self.starts.get(line).copied().unwrap_or(self.unix.len())
    }

    /// Puts whole lines in the place of `lines`. A text whose last line has no end keeps it so.
    pub(crate) fn replace_lines(&self, lines: Range<usize>, new: &[Cow<'_, str>]) -> Replacement<'static> {
        let mut range = self.start(lines.start)..self.start(lines.end);
        let mut text: String = new.iter().flat_map(|line| [line.as_ref(), "\n"]).collect();
        let is_open = !self.unix.is_empty() && !self.unix.ends_with('\n');
        if is_open && lines.end == self.line_count() {
            if lines.is_empty() {
                text.insert(0, '\n');
            } else if new.is_empty() {
                range.start = range.start.saturating_sub(1);
            }
            text.pop();
        }
        Replacement { range, text: text.into() }
    }

    /// Whether the lines of a piece end in different ways.
    pub(crate) fn has_mixed_ends(&self, range: &Range<usize>) -> bool {
        let returns = self.returns_before(range.end) - self.returns_before(range.start);
        returns > 0 && returns < self.unix[range.clone()].matches('\n').count()
    }

    fn returns_before(&self, position: usize) -> usize {
        self.carriage_returns.partition_point(|at| *at < position)
    }

    /// The original with these replacements, which are in order and do not overlap.
    pub(crate) fn replaced(&self, replacements: &[Replacement<'_>]) -> String {
        let mut text = self.mark.to_owned();
        let mut next = 0;
        for Replacement { range, text: new } in replacements {
            text.push_str(&self.original[next..self.original_position(range.start)]);
            if self.ends_with_return(range.start) {
                text.push_str(&new.replace('\n', "\r\n"));
            } else {
                text.push_str(new);
            }
            next = self.original_position(range.end);
        }
        text.push_str(&self.original[next..]);
        text
    }

    fn original_position(&self, position: usize) -> usize {
        position + self.returns_before(position)
    }

    /// Whether the line at `position` ends with a carriage return; if it has no end, the line before it.
    fn ends_with_return(&self, position: usize) -> bool {
        let end = self.unix[position..].find('\n').map(|after| position + after);
        let end = end.or_else(|| self.unix[..position].rfind('\n'));
        end.is_some_and(|end| self.carriage_returns.binary_search(&end).is_ok())
    }
}

/// A text with Unix line ends.
pub(crate) fn unix(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_replacement_takes_the_line_ends_of_its_place() {
        let text = Text::new("\u{feff}a\r\nb\nc\r\nd");
        let replace = |range: Range<usize>, new: &'static str| {
            text.replaced(&[Replacement { range, text: new.into() }])
        };
        assert_eq!(replace(0..1, "x\ny"), "\u{feff}x\r\ny\r\nb\nc\r\nd");
        assert_eq!(replace(2..3, "x\ny"), "\u{feff}a\r\nx\ny\nc\r\nd");
        assert_eq!(replace(6..7, "x\ny"), "\u{feff}a\r\nb\nc\r\nx\r\ny", "the last line has no end");
        assert_eq!(replace(0..7, ""), "\u{feff}");
    }

    #[test]
    fn lines_are_replaced_whole_and_an_open_end_stays_open() {
        let lines = |text: &str, lines: Range<usize>, new: &[&str]| {
            let new: Vec<Cow<'_, str>> = new.iter().map(|line| Cow::from(*line)).collect();
            let text = Text::new(text);
            text.replaced(&[text.replace_lines(lines, &new)])
        };
        assert_eq!(lines("a\nb\n", 1..2, &["x", "y"]), "a\nx\ny\n");
        assert_eq!(lines("a\nb", 1..2, &["x", "y"]), "a\nx\ny");
        assert_eq!(lines("a\nb", 2..2, &["c"]), "a\nb\nc");
        assert_eq!(lines("a\nb\n", 2..2, &["c"]), "a\nb\nc\n");
        assert_eq!(lines("a\nb", 1..2, &[]), "a");
        assert_eq!(lines("a\nb", 0..1, &[]), "b");
        assert_eq!(lines("", 0..0, &["a"]), "a\n");
        assert_eq!(lines("a", 0..1, &[]), "");
    }

    proptest::proptest! {
        #[test]
        fn bytes_outside_of_a_replacement_stay(left in "[ab\r\n]{0,12}", right in "[ab\r\n]{0,12}") {
            let before = format!("{left}QUOTE{right}");
            let text = Text::new(&before);
            let at = text.unix().find("QUOTE").unwrap();
            let after = text.replaced(&[Replacement { range: at..at + 5, text: "new".into() }]);
            proptest::prop_assert_eq!(after, format!("{left}new{right}"));
        }
    }
}
