//! Replaces a quoted block of lines. Lines that the quote and its replacement share keep their bytes, also where the quote has them with
//! other white space, and new lines get the indentation of their place.

use crate::lines::{Replacement, Text};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::borrow::Cow;

/// A text after its changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rewritten {
    pub text: String,
    /// The lines that an inexact quote matched, from 1, as they are numbered in `text`.
    pub inexact_lines: Vec<usize>,
}

/// A block of a text that a model has quoted, with as many lines as the quote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'q> {
    /// Its first line.
    pub first: usize,
    /// The lines of the quote.
    pub old: &'q [&'q str],
    /// The lines that take its place.
    pub new: &'q [&'q str],
}

/// The replacements that turn the block into the new lines, in order.
pub(crate) fn rewrite(text: &Text<'_>, block: Block<'_>) -> Vec<Replacement<'static>> {
    let Block { first, old, new } = block;
    let mut replacements = vec![];
    for operation in capture_diff_slices(Algorithm::Myers, old, new) {
        if matches!(operation, DiffOp::Equal { .. }) {
            continue;
        }
        let (from, to) = (operation.old_range(), operation.new_range());
        let lines: Vec<Cow<'_, str>> = to
            .clone()
            .map(|line| {
                // A line that replaces another one stands where that one stood, else where the line before it does.
                let beside =
                    (from.start + line - to.start).min(from.end.max(1) - 1).min(old.len().saturating_sub(1));
                indented(text, block, Line { text: new[line], beside })
            })
            .collect();
        replacements.push(text.replace_lines(first + from.start..first + from.end, &lines));
    }
    replacements
}

/// A new line, and the line of the quote that it stands beside.
#[derive(Clone, Copy)]
struct Line<'a> {
    text: &'a str,
    beside: usize,
}

/// The line with the indentation that the text has where the quote has that of the line.
fn indented<'a>(text: &Text<'_>, block: Block<'_>, line: Line<'a>) -> Cow<'a, str> {
    if line.text.trim().is_empty() || block.old.is_empty() {
        return line.text.into();
    }
    let filled = |at: &usize| !block.old[*at].trim().is_empty();
    let before = (0..=line.beside).rev().find(filled);
    let Some(beside) = before.or_else(|| (line.beside..block.old.len()).find(filled)) else {
        return line.text.into();
    };
    let pair = |at: usize| Indentation {
        quoted: margin(block.old[at]),
        actual: margin(text.line(block.first + at)),
    };
    let indentation = pair(beside);
    if indentation.quoted == indentation.actual {
        return line.text.into();
    }
    let characters = Characters::of((0..block.old.len()).filter(filled).map(pair));
    let own = margin(line.text);
    format!("{}{}", indentation.shift(own, characters), &line.text[own.len()..]).into()
}

fn margin(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// The indentation of a line, as the quote has it and as the text has it.
#[derive(Debug, Clone, Copy)]
struct Indentation<'a> {
    quoted: &'a str,
    actual: &'a str,
}

/// How the blanks or tabs of a quote become those of the text.
#[derive(Debug, Clone, Copy)]
enum Characters {
    /// The text has a tab for this many blanks of the quote.
    Tabs(usize),
    /// The text has this many blanks for a tab of the quote.
    Blanks(usize),
}

impl Characters {
    /// What the lines of a block tell, if the quote indents with blanks and the text with tabs, or the other way round: two lines by how much deeper the one is, else
    /// one line by its depth.
    fn of<'a>(pairs: impl Iterator<Item = Indentation<'a>>) -> Option<Self> {
        let pairs: Vec<Indentation<'_>> = pairs.collect();
        let only = |text: &str, character: char| text.chars().all(|other| other == character);
        let lengths = |blanks: fn(&Indentation<'a>) -> &'a str, tabs: fn(&Indentation<'a>) -> &'a str| {
            let fit = pairs.iter().filter(|pair| only(blanks(pair), ' ') && only(tabs(pair), '\t'));
            fit.map(|pair| (blanks(pair).len(), tabs(pair).len())).collect::<Vec<_>>()
        };
        let to_tabs = lengths(|pair| pair.quoted, |pair| pair.actual);
        let to_blanks = lengths(|pair| pair.actual, |pair| pair.quoted);
        blanks_per_tab(&to_tabs).map(Self::Tabs).or_else(|| blanks_per_tab(&to_blanks).map(Self::Blanks))
    }

    fn convert(self, margin: &str) -> String {
        match self {
            Self::Tabs(blanks) => margin.replace(&" ".repeat(blanks), "\t"),
            Self::Blanks(blanks) => margin.replace('\t', &" ".repeat(blanks)),
        }
    }
}

/// How many blanks stand for a tab, by lines that have so many blanks on the one side and so many tabs on the other.
fn blanks_per_tab(lines: &[(usize, usize)]) -> Option<usize> {
    let ratio = |blanks: usize, tabs: usize| {
        (blanks > 0 && tabs > 0 && blanks.is_multiple_of(tabs)).then(|| blanks / tabs)
    };
    let (first, others) = lines.split_first()?;
    let deeper = others.iter().find(|line| line.0 != first.0 && line.1 != first.1);
    match deeper {
        Some(other) => ratio(first.0.abs_diff(other.0), first.1.abs_diff(other.1)),
        None => lines.iter().find_map(|(blanks, tabs)| ratio(*blanks, *tabs)),
    }
}

impl Indentation<'_> {
    /// The indentation in the text of a line that the quote would indent with `own`.
    fn shift(self, own: &str, characters: Option<Characters>) -> String {
        let converted = |margin: &str| characters.map_or_else(|| margin.to_owned(), |to| to.convert(margin));
        if let Some(deeper) = own.strip_prefix(self.quoted) {
            return format!("{}{}", self.actual, converted(deeper));
        }
        let Some(shallower) = self.quoted.strip_prefix(own) else { return own.to_owned() };
        let length = self.actual.len().saturating_sub(converted(shallower).len());
        self.actual.get(..length).unwrap_or_default().to_owned()
    }
}

/// Typographic punctuation as its ASCII form, which models write for it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(plain_character).collect()
}

pub(crate) fn plain_character(character: char) -> char {
    match character {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn check(text: &str, old: &[&str], new: &[&str], want: &str) {
        let text = Text::new(text);
        assert_eq!(text.replaced(&rewrite(&text, Block { first: 1, old, new })), want, "{old:?} -> {new:?}");
    }

    #[test]
    fn shared_lines_keep_their_bytes_and_new_lines_get_their_indentation() {
        check("{\n  a  \n  b\n}\n", &["a", "b"], &["a", "c"], "{\n  a  \n  c\n}\n");
        check(
            "{\n\ta\n\t\tb\n}\n",
            &["a", "    b"],
            &["a", "    c", "        d"],
            "{\n\ta\n\t\tc\n\t\t\td\n}\n",
        );
        check("{\n    a\n}\n", &["  a"], &["  b", "c", "    d"], "{\n    b\n  c\n      d\n}\n");
        check(
            "{\n    a\n    b\n}\n",
            &["\ta", "\tb"],
            &["\ta", "\t\tx", "\tb"],
            "{\n    a\n        x\n    b\n}\n",
        );
        check("{\n  a\n}\n", &["a"], &["a", "", "b"], "{\n  a\n\n  b\n}\n");
        check("{\n  a\n  b\n}\n", &["a", "b"], &["b"], "{\n  b\n}\n");
        check("{\na\r\nb\n}\n", &["a", "b"], &["a", "c"], "{\na\r\nc\n}\n");
    }
}
