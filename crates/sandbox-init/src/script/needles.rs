//! The values of secrets as they may stand in output and in files.

use aho_corasick::{AhoCorasick, BuildError, MatchKind};

/// Bytes of the shortest text that is looked for. Shorter ones match unrelated text.
const NEEDLE_BYTES_MIN: usize = 8;
/// How lines around a key or a certificate begin, which stand in many other files.
const ARMOUR: &str = "-----";

/// Texts that are looked for.
pub(super) struct Needles {
    /// In order, each once.
    texts: Vec<Box<[u8]>>,
    /// The variable of each text.
    variables: Vec<String>,
    automaton: AhoCorasick,
}

impl Needles {
    /// Each line of the values: tools print a value with several lines, such as a key, line by line.
    ///
    /// # Errors
    /// If the values together are too long for the search.
    pub(super) fn of_output(variables: &[(String, String)]) -> Result<Self, BuildError> {
        Self::new(variables.iter().flat_map(|(name, value)| value.lines().map(move |line| (name, line))))
    }

    /// The longest line of each value: other lines of a certificate or of a configuration stand in files without it.
    ///
    /// # Errors
    /// As [`Needles::of_output`].
    pub(super) fn of_files(variables: &[(String, String)]) -> Result<Self, BuildError> {
        let longest = |(name, value): &'_ (String, String)| {
            let is_single = value.trim().lines().count() <= 1;
            let lines = value.lines().filter(|line| is_single || !line.starts_with(ARMOUR));
            lines.max_by_key(|line| line.trim().len()).map(|line| (name.clone(), line.to_owned()))
        };
        let longest: Vec<_> = variables.iter().filter_map(longest).collect();
        Self::new(longest.iter().map(|(name, line)| (name, line.as_str())))
    }

    fn new<'a>(lines: impl Iterator<Item = (&'a String, &'a str)>) -> Result<Self, BuildError> {
        let lines = lines.map(|(name, line)| (line.trim(), name));
        let mut lines: Vec<_> = lines.filter(|(line, _)| line.len() >= NEEDLE_BYTES_MIN).collect();
        lines.sort();
        lines.dedup_by_key(|(line, _)| *line);
        let texts: Vec<Box<[u8]>> = lines.iter().map(|(line, _)| line.as_bytes().into()).collect();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&texts)?;
        let variables = lines.into_iter().map(|(_, name)| name.clone()).collect();
        Ok(Self { texts, variables, automaton })
    }

    /// Where the texts stand in `bytes`, by their beginning. They may overlap.
    pub(super) fn spans(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        let found = self.automaton.find_overlapping_iter(bytes);
        let mut spans: Vec<_> = found.map(|span| (span.start(), span.end())).collect();
        spans.sort_unstable();
        spans
    }

    /// The length of the longest end of `bytes` with which a text can begin that goes on after it.
    pub(super) fn open_end(&self, bytes: &[u8]) -> usize {
        let longest = self.texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let lengths = 1..longest.min(bytes.len() + 1);
        let is_open = |length: &usize| {
            let end = &bytes[bytes.len() - length..];
            let from = self.texts.partition_point(|text| &**text < end);
            // The first one may be the end itself.
            self.texts[from..].iter().take(2).any(|text| text.len() > *length && text.starts_with(end))
        };
        lengths.rev().find(is_open).unwrap_or(0)
    }

    /// The variable whose value stands in what is read.
    ///
    /// # Errors
    /// Those of the reader.
    pub(super) fn find_in(&self, reader: impl std::io::Read) -> std::io::Result<Option<&str>> {
        let found = self.automaton.stream_find_iter(reader).next().transpose()?;
        Ok(found.map(|found| self.variables[found.pattern().as_usize()].as_str()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn variables() -> Vec<(String, String)> {
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\n  abcdefgh\nabcdefghij\nxyz\n";
        [("KEY", key), ("PIN", "1234567"), ("TOKEN", "ghp_12345")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn output_has_no_long_line_of_a_value() {
        let needles = Needles::of_output(&variables()).unwrap();
        for (text, variable) in [
            (" abcdefgh ", Some("KEY")),
            ("a ghp_12345", Some("TOKEN")),
            ("-----BEGIN OPENSSH PRIVATE KEY-----", Some("KEY")),
            ("xyz 1234567 ghp_1234 abcdefg", None),
        ] {
            assert_eq!(needles.find_in(text.as_bytes()).unwrap(), variable, "{text}");
        }
        assert_eq!(Needles::of_output(&[]).unwrap().find_in(&b"anything"[..]).unwrap(), None);
    }

    #[test]
    fn files_may_have_the_lines_that_other_files_have_too() {
        let needles = Needles::of_files(&variables()).unwrap();
        for (text, variable) in [
            ("x abcdefghij", Some("KEY")),
            ("ghp_12345", Some("TOKEN")),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nabcdefgh", None),
        ] {
            assert_eq!(needles.find_in(text.as_bytes()).unwrap(), variable, "{text}");
        }
    }
}
