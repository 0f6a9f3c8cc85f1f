//! Finds the text that a model meant to quote. The rules go from exact to lenient, and the first one that finds anything decides: what it
//! finds in several places is ambiguous, whatever a later rule would say.

use crate::{
    lines::Text,
    rewrite::{plain, plain_character},
};
use std::ops::Range;

/// Where a rule has found a quote. There is at least one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuoteMatch {
    pub rule: Rule,
    pub places: Places,
}

/// Places in a text, in order. They may overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Places {
    Pieces(Vec<Range<usize>>),
    /// The first lines of blocks with as many lines as the quote.
    Blocks(Vec<usize>),
}

/// What a quote and its place have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// All bytes.
    Exact,
    /// All but the white space at the ends of lines.
    LineEnds,
    /// All but the common indentation.
    CommonIndentation,
    /// All but the white space around lines.
    Trimmed,
    /// All but the amount of white space inside of lines.
    Squeezed,
    /// The words of a piece of one line.
    Words,
    /// All but typographic punctuation, and the white space around lines.
    TypographicLines,
    /// All but typographic punctuation, in a piece of one line.
    Typographic,
    /// All but backslashes before quotation marks, and line ends that are written as `\n`.
    Unescaped,
    /// All but white space around the whole quote.
    Bounds,
    /// The first and the last line, and at least half of the others.
    Context,
}

impl Rule {
    const ORDER: [Self; 11] = [
        Self::Exact,
        Self::LineEnds,
        Self::CommonIndentation,
        Self::Trimmed,
        Self::Squeezed,
        Self::Words,
        Self::TypographicLines,
        Self::Typographic,
        Self::Unescaped,
        Self::Bounds,
        Self::Context,
    ];

    fn find(self, text: &Text<'_>, old: &str) -> Option<Places> {
        let blocks =
            |same: fn(&str, &str) -> bool| blocks(text, |have, want| all_alike(have, want, same), old);
        let unix = text.unix();
        let places = match self {
            Self::Exact => Places::Pieces(pieces(unix, old)),
            Self::LineEnds => blocks(|a, b| a.trim_end() == b.trim_end()),
            Self::CommonIndentation => self::blocks(text, |have, want| dedented(have) == dedented(want), old),
            Self::Trimmed => blocks(|a, b| a.trim() == b.trim()),
            Self::Squeezed => blocks(|a, b| a.split_whitespace().eq(b.split_whitespace())),
            Self::Words => with_margins(words(unix, old), unix, old),
            Self::TypographicLines => blocks(|a, b| plain(a.trim()) == plain(b.trim())),
            Self::Typographic => with_margins(typographic(unix, old.trim()), unix, old),
            Self::Unescaped => Places::Pieces(pieces(unix, &unescaped(old))),
            Self::Bounds => with_margins(pieces(unix, old.trim()), unix, old),
            Self::Context => self::blocks(text, has_context, old),
        };
        let is_empty = match &places {
            Places::Pieces(pieces) => pieces.is_empty(),
            Places::Blocks(blocks) => blocks.is_empty(),
        };
        (!is_empty).then_some(places)
    }
}

/// Finds a quote, which is not empty. White space alone is found only exactly.
pub(super) fn find(text: &Text<'_>, old: &str) -> Option<QuoteMatch> {
    let rules = if old.trim().is_empty() { &Rule::ORDER[..1] } else { &Rule::ORDER };
    rules.iter().find_map(|rule| Some(QuoteMatch { rule: *rule, places: rule.find(text, old)? }))
}

/// The lines of a quote. What follows its last line end is a line unless it is empty.
pub(super) fn quoted_lines(quote: &str) -> Vec<&str> {
    quote.strip_suffix('\n').unwrap_or(quote).split('\n').collect()
}

/// Those of the pieces that have white space or an end of the text where the quote has white space around it.
fn with_margins(pieces: Vec<Range<usize>>, text: &str, old: &str) -> Places {
    let is_space = |next: Option<char>| next.is_none_or(char::is_whitespace);
    let (before, after) = (old.starts_with(char::is_whitespace), old.ends_with(char::is_whitespace));
    let fits = |piece: &Range<usize>| {
        (!before || is_space(text[..piece.start].chars().next_back()))
            && (!after || is_space(text[piece.end..].chars().next()))
    };
    Places::Pieces(pieces.into_iter().filter(fits).collect())
}

/// Every place of `wanted`, also those that overlap.
fn pieces(text: &str, wanted: &str) -> Vec<Range<usize>> {
    let mut pieces = vec![];
    let mut from = 0;
    let step = wanted.chars().next().map_or(1, char::len_utf8);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(wanted)) {
        pieces.push(from + at..from + at + wanted.len());
        from += at + step;
    }
    pieces
}

fn blocks(text: &Text<'_>, is_alike: impl Fn(&[&str], &[&str]) -> bool, old: &str) -> Places {
    let (have, want) = (text.lines(), quoted_lines(old));
    let windows = have.windows(want.len()).enumerate();
    Places::Blocks(windows.filter(|(_, window)| is_alike(window, &want)).map(|(first, _)| first).collect())
}

fn all_alike(have: &[&str], want: &[&str], same: fn(&str, &str) -> bool) -> bool {
    have.iter().zip(want).all(|(a, b)| same(a, b))
}

/// The lines without their common indentation.
fn dedented<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let shared = filled.map(|line| indentation(line)).min().unwrap_or(0);
    lines.iter().map(|line| line.get(shared.min(indentation(line))..).unwrap_or(line)).collect()
}

/// Pieces of one line that have the words of the quote, with any white space between them.
fn words(text: &str, old: &str) -> Vec<Range<usize>> {
    let words: Vec<&str> = old.split_whitespace().collect();
    let mut found = vec![];
    if !old.trim().contains('\n') && words.len() > 1 {
        for (start, _) in text.match_indices(words[0]) {
            if let Some(length) = words_match(&text[start..], &words) {
                found.push(start..start + length);
            }
        }
    }
    found
}

/// Length of the prefix of `text` that consists of `words` with any white space between them, in one line.
fn words_match(text: &str, words: &[&str]) -> Option<usize> {
    let mut rest = text;
    for (number, word) in words.iter().enumerate() {
        if number > 0 {
            let trimmed =
                rest.trim_start_matches(|character: char| character.is_whitespace() && character != '\n');
            if trimmed.len() == rest.len() {
                return None;
            }
            rest = trimmed;
        }
        rest = rest.strip_prefix(word)?;
    }
    Some(text.len() - rest.len())
}

/// Pieces that differ from the quote in typographic punctuation only.
fn typographic(text: &str, old: &str) -> Vec<Range<usize>> {
    // The byte of the text at which each byte of its plain form begins.
    let mut origins = vec![];
    let mut plain_text = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let plain = plain_character(character);
        plain_text.push(plain);
        origins.extend(std::iter::repeat_n(at, plain.len_utf8()));
    }
    origins.push(text.len());
    let pieces = pieces(&plain_text, &plain(old)).into_iter();
    pieces.map(|piece| origins[piece.start]..origins[piece.end]).collect()
}

/// The quote without needless escapes: `\n` for a line end, `\"` for a quotation mark.
pub(super) fn unescaped(old: &str) -> String {
    let mut plain = String::with_capacity(old.len());
    let mut characters = old.chars().peekable();
    while let Some(character) = characters.next() {
        let escaped = (character == '\\').then(|| characters.peek().copied()).flatten();
        let meant = match escaped {
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some(quote @ ('\'' | '"' | '`' | '\\' | '$' | '\n')) => Some(quote),
            Some(_) | None => None,
        };
        if meant.is_some() {
            characters.next();
        }
        plain.push(meant.unwrap_or(character));
    }
    plain
}

/// Whether two blocks have the same first and last line, and at least half of the middle lines, blank ones aside.
fn has_context(have: &[&str], want: &[&str]) -> bool {
    let Some(end) = want.len().checked_sub(1).filter(|end| *end >= 2) else { return false };
    let same = |at: usize| have[at].trim() == want[at].trim();
    if !same(0) || !same(end) {
        return false;
    }
    let filled: Vec<usize> = (1..end).filter(|at| !want[*at].trim().is_empty()).collect();
    filled.iter().filter(|at| same(**at)).count() * 2 >= filled.len()
}
