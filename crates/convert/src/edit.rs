//! Edits of a file. Models quote imprecisely, so `find` tries inexact matches after the exact one. What several places match is refused.

mod find;

use crate::{
    lines::{Replacement, Text, unix},
    rewrite::{Block, Rewritten, rewrite},
};
use convert_client::request::{Edit, Occurrences};
use find::{Places, QuoteMatch, Rule, find, quoted_lines, unescaped};
use std::ops::Range;

/// Lines that a sentence about ambiguous places names at most.
const PLACES_NAMED_MAX: usize = 5;

/// Returns the file's new content. No byte outside of the edits changes.
///
/// # Errors
/// A sentence for the model.
pub(crate) fn apply(before: &str, edits: &[Edit]) -> Result<Rewritten, String> {
    let mut after = Rewritten { text: before.to_owned(), inexact_lines: vec![] };
    for (number, edit) in (1..).zip(edits) {
        one(&mut after, edit).map_err(|error| match edits.len() {
            1 => error,
            _ => format!("Edit {number}: {error} No edit was made."),
        })?;
    }
    Ok(after)
}

fn one(file: &mut Rewritten, edit: &Edit) -> Result<(), String> {
    let (old, new) = (unix(&edit.old), unix(&edit.new));
    if old == new {
        return Err(if edit.old == edit.new {
            "oldString and newString are the same: nothing to change.".to_owned()
        } else {
            "oldString and newString differ only in their line ends, and an edit keeps those of the file. Change them with a command."
                .to_owned()
        });
    }
    let text = Text::new(&file.text);
    let found = find(&text, &old).ok_or_else(|| {
        "oldString is not in the file. Read the file and quote the text exactly, with its indentation."
            .to_owned()
    })?;
    let is_exact = found.rule == Rule::Exact;
    check_places(&text, &found, &edit.which, quoted_lines(&old).len())?;
    let replacements = replacements(&text, found, Quote { old: &old, new: &new })?;
    let shift = Shift::of(&text, &replacements);
    for line in &mut file.inexact_lines {
        *line = shift.line(*line);
    }
    if !is_exact {
        file.inexact_lines.extend(replacements.first().map(|first| text.line_at(first.range.start) + 1));
    }
    file.text = text.replaced(&replacements);
    Ok(())
}

/// How far the lines behind each replacement move.
struct Shift {
    /// The first line behind a replacement, from 1, and by how many lines it and all later ones move.
    steps: Vec<(usize, isize)>,
}

impl Shift {
    fn of(text: &Text<'_>, replacements: &[Replacement<'_>]) -> Self {
        let count = |text: &str| isize::try_from(text.matches('\n').count()).unwrap_or(isize::MAX);
        let step = |Replacement { range, text: new }: &Replacement<'_>| {
            (text.line_at(range.end) + 1, count(new) - count(&text.unix()[range.clone()]))
        };
        Self { steps: replacements.iter().map(step).collect() }
    }

    fn line(&self, line: usize) -> usize {
        let behind = self.steps.iter().filter(|(first, _)| *first <= line);
        line.saturating_add_signed(behind.map(|(_, by)| *by).sum())
    }
}

/// A quote and what takes its place, with Unix line ends.
#[derive(Clone, Copy)]
struct Quote<'q> {
    old: &'q str,
    new: &'q str,
}

/// Refuses places that the model did not mean for sure.
fn check_places(
    text: &Text<'_>,
    found: &QuoteMatch,
    which: &Occurrences,
    quoted_lines: usize,
) -> Result<(), String> {
    let lines: Vec<usize> = match &found.places {
        Places::Pieces(pieces) => pieces.iter().map(|piece| text.line_at(piece.start)).collect(),
        Places::Blocks(blocks) => blocks.clone(),
    };
    match which {
        Occurrences::All if found.rule == Rule::Context => Err(
            "oldString is not in the file; some lines of a similar place differ. Read the file and quote the text exactly.".to_owned(),
        ),
        Occurrences::One if lines.len() > 1 => {
            let named: Vec<String> =
                lines.iter().take(PLACES_NAMED_MAX).map(|line| (line + 1).to_string()).collect();
            let more = if lines.len() > PLACES_NAMED_MAX { ", …" } else { "" };
            let place = if quoted_lines == 1 { "lines" } else { "the lines from" };
            Err(format!(
                "oldString {} more than once ({place} {}{more}). Quote more lines around the change, or set replaceAll.",
                if found.rule == Rule::Exact { "is in the file" } else { "is not in the file exactly, and fits inexactly" },
                named.join(", ")
            ))
        }
        Occurrences::One | Occurrences::All => Ok(()),
    }
}

fn replacements<'q>(
    text: &Text<'_>,
    found: QuoteMatch,
    quote: Quote<'q>,
) -> Result<Vec<Replacement<'q>>, String> {
    let Quote { old, new } = quote;
    let pieces = match found.places {
        Places::Blocks(firsts) => {
            let (old_lines, new_lines) = (quoted_lines(old), replacing_lines(quote));
            let mut next = 0;
            let mut replacements = vec![];
            for first in firsts {
                if first >= next {
                    next = first + old_lines.len();
                    replacements.extend(rewrite(text, Block { first, old: &old_lines, new: &new_lines }));
                }
            }
            return Ok(replacements);
        }
        Places::Pieces(pieces) => apart(pieces),
    };
    Ok(match found.rule {
        Rule::Exact => pieces.into_iter().flat_map(|piece| exact(text, piece, quote)).collect(),
        Rule::Typographic => {
            pieces.into_iter().map(|piece| narrowed(text, piece, without_margins(quote))).collect()
        }
        Rule::Unescaped if unescaped(new) != new => {
            return Err("oldString is in the file only without its backslashes, and newString has some, too. Quote the text as it is, \
                        and write newString as it shall be."
                .to_owned());
        }
        Rule::Unescaped => whole(pieces, new),
        Rule::Words | Rule::Bounds => whole(pieces, without_margins(quote).new),
        Rule::LineEnds
        | Rule::CommonIndentation
        | Rule::Trimmed
        | Rule::Squeezed
        | Rule::TypographicLines
        | Rule::Context => vec![],
    })
}

/// The pieces that do not overlap an earlier one.
fn apart(pieces: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut next = 0;
    let is_free = |piece: &Range<usize>| {
        let is_free = piece.start >= next;
        next = if is_free { piece.end } else { next };
        is_free
    };
    pieces.into_iter().filter(is_free).collect()
}

fn whole(pieces: Vec<Range<usize>>, new: &str) -> Vec<Replacement<'_>> {
    pieces.into_iter().map(|range| Replacement { range, text: new.into() }).collect()
}

/// Replaces an exact quote. Where its lines end in different ways, those that stay keep their ends.
fn exact<'q>(text: &Text<'_>, piece: Range<usize>, quote: Quote<'q>) -> Vec<Replacement<'q>> {
    if !text.has_mixed_ends(&piece) {
        return vec![Replacement { range: piece, text: quote.new.into() }];
    }
    let (old, new): (Vec<&str>, Vec<&str>) =
        (quote.old.split_inclusive('\n').collect(), quote.new.split_inclusive('\n').collect());
    let length = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
    let operations = similar::capture_diff_slices(similar::Algorithm::Myers, &old, &new);
    let changed = operations.iter().filter(|operation| !matches!(operation, similar::DiffOp::Equal { .. }));
    changed
        .map(|operation| {
            let start = piece.start + length(&old[..operation.old_range().start]);
            let range = start..start + length(&old[operation.old_range()]);
            Replacement { range, text: new[operation.new_range()].concat().into() }
        })
        .collect()
}

/// Replaces only what differs between the quote and its replacement, so that the punctuation around it stays.
fn narrowed<'q>(text: &Text<'_>, piece: Range<usize>, Quote { old, new }: Quote<'q>) -> Replacement<'q> {
    let head = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).count();
    let rest = old.chars().count().min(new.chars().count()) - head;
    let tail = old.chars().rev().zip(new.chars().rev()).take(rest).take_while(|(a, b)| a == b).count();
    // Plain punctuation has as many characters as the typographic one.
    let bytes = |text: &str| {
        let lengths: Vec<usize> = text.chars().map(char::len_utf8).collect();
        (lengths[..head].iter().sum::<usize>(), lengths[lengths.len() - tail..].iter().sum::<usize>())
    };
    let (before, after) = bytes(&text.unix()[piece.clone()]);
    let (new_before, new_after) = bytes(new);
    Replacement {
        range: piece.start + before..piece.end - after,
        text: new[new_before..new.len() - new_after].into(),
    }
}

/// The quote without white space around it, and its replacement without the same white space.
fn without_margins(Quote { old, new }: Quote<'_>) -> Quote<'_> {
    let trimmed = old.trim();
    let start = &old[..old.len() - old.trim_start().len()];
    let end = &old[start.len() + trimmed.len()..];
    let new = new.strip_prefix(start).unwrap_or(new);
    Quote { old: trimmed, new: new.strip_suffix(end).unwrap_or(new) }
}

/// The lines that take the place of a quote. A quote with its last line end is replaced with it.
fn replacing_lines(Quote { old, new }: Quote<'_>) -> Vec<&str> {
    match (old.ends_with('\n'), new) {
        (true, "") => vec![],
        (true, new) => quoted_lines(new),
        (false, new) => new.split('\n').collect(),
    }
}

#[cfg(test)]
mod tests;
