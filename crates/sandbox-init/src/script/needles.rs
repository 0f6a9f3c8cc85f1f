//! The values of secrets as they may stand in output and in files.

use aho_corasick::{AhoCorasick, BuildError, MatchKind};

/// Bytes of the shortest text that is looked for. A shorter value would be found in places where it stands by chance.
const NEEDLE_BYTES_MIN: usize = 8;

/// What is looked for: each line of a value that is long enough. Tools print values with several lines, such as keys, line by line.
pub(super) struct Needles {
    /// In order, each once.
    texts: Vec<Box<[u8]>>,
    /// The variable of each text.
    variables: Vec<String>,
    automaton: AhoCorasick,
}

impl Needles {
    /// Those of the variables.
    ///
    /// # Errors
    /// If the values together are too long for the search.
    pub(super) fn of(variables: &[(String, String)]) -> Result<Self, BuildError> {
        let lines =
            variables.iter().flat_map(|(name, value)| value.lines().map(move |line| (line.trim(), name)));
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
    #![allow(clippy::unwrap_used, missing_docs)]
    use super::*;

    #[test]
    fn each_long_line_of_a_value_is_looked_for() {
        let variables =
            [("KEY", "-----BEGIN\n  abcdefgh\nxyz\n"), ("PIN", "1234567"), ("TOKEN", "ghp_12345")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let needles = Needles::of(&variables).unwrap();
        for (text, variable) in [
            (" abcdefgh ", Some("KEY")),
            ("a ghp_12345", Some("TOKEN")),
            ("-----BEGIN", Some("KEY")),
            ("xyz 1234567 ghp_1234 abcdefg", None),
        ] {
            assert_eq!(needles.find_in(text.as_bytes()).unwrap(), variable, "{text}");
        }
        assert_eq!(Needles::of(&[]).unwrap().find_in(&b"anything"[..]).unwrap(), None);
    }
}
