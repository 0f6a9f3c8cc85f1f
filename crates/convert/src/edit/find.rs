//! Finds the text that a model meant to quote. Each strategy returns candidate pieces of the content. The first
//! candidate that occurs exactly once in the content wins.

use convert_client::request::Occurrences;

type Strategy = for<'a> fn(&'a str, &str) -> Vec<&'a str>;

/// Ordered from exact to lenient.
const STRATEGIES: [Strategy; 8] = [
    exact,
    lines_trimmed,
    block_by_anchors,
    whitespace_normalized,
    indentation_flexible,
    escapes_normalized,
    boundary_trimmed,
    context_aware,
];

/// Required similarity of the middle of a block whose first and last lines match.
const SIMILARITY_MIN: f64 = 0.65;

/// Replaces the text in `content` that `old` quotes with `new`.
///
/// # Errors
/// A sentence for the model: the text was not found, was found more than once, or was found only in a much larger
/// piece.
pub(crate) fn replace(content: &str, old: &str, new: &str, which: Occurrences) -> Result<String, String> {
    let mut several = false;
    for strategy in STRATEGIES {
        for piece in strategy(content, old) {
            if piece.is_empty() || !content.contains(piece) {
                continue;
            }
            if is_oversized(piece, old) {
                return Err("The closest match is much larger than oldString, so nothing was changed. Read the file and \
                            quote the text exactly."
                    .to_owned());
            }
            match which {
                Occurrences::All => return Ok(content.replace(piece, new)),
                Occurrences::One if content.matches(piece).count() == 1 => {
                    return Ok(content.replacen(piece, new, 1));
                }
                Occurrences::One => several = true,
            }
        }
    }
    Err(if several {
        "oldString is in the file more than once. Quote more lines around the change, or set replaceAll."
            .to_owned()
    } else {
        "oldString is not in the file. Read the file and quote the text exactly, with its indentation."
            .to_owned()
    })
}

/// A lenient strategy must not replace half a file.
fn is_oversized(piece: &str, old: &str) -> bool {
    let (found, quoted) = (piece.lines().count(), old.lines().count());
    found > quoted.max(1) * 2 + 3 || piece.len() > old.len() * 4 + 500
}

fn exact<'a>(content: &'a str, old: &str) -> Vec<&'a str> {
    content.find(old).map(|at| &content[at..at + old.len()]).into_iter().collect()
}

/// The lines of a text with their offsets, without an empty last one.
fn lines(text: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let mut lines: Vec<(usize, &str)> = vec![];
    for line in text.split('\n') {
        lines.push((at, line));
        at += line.len() + 1;
    }
    if lines.len() > 1 && lines.last().is_some_and(|(_, line)| line.is_empty()) {
        lines.pop();
    }
    lines
}

/// The piece of `content` from line `first` to line `last`.
fn span<'a>(content: &'a str, lines: &[(usize, &str)], first: usize, last: usize) -> &'a str {
    &content[lines[first].0..lines[last].0 + lines[last].1.len()]
}

/// Blocks of as many lines as `old` for which `same` holds line by line.
fn blocks<'a>(content: &'a str, old: &str, same: impl Fn(&str, &str) -> bool) -> Vec<&'a str> {
    let (have, want) = (lines(content), lines(old));
    let windows = have.windows(want.len()).enumerate();
    windows
        .filter(|(_, window)| window.iter().zip(&want).all(|((_, a), (_, b))| same(a, b)))
        .map(|(first, window)| span(content, &have, first, first + window.len() - 1))
        .collect()
}

fn lines_trimmed<'a>(content: &'a str, old: &str) -> Vec<&'a str> {
    blocks(content, old, |a, b| a.trim() == b.trim())
}

/// Blocks with the same first and last line; if there are several, the most similar one.
fn block_by_anchors<'a>(content: &'a str, old: &str) -> Vec<&'a str> {
    let (have, want) = (lines(content), lines(old));
    if want.len() < 3 {
        return vec![];
    }
    let (first, last) = (want[0].1.trim(), want[want.len() - 1].1.trim());
    let mut best: Option<(f64, &str)> = None;
    for (start, _) in have.iter().enumerate().filter(|(_, (_, line))| line.trim() == first) {
        let end = have.iter().enumerate().skip(start + 2).find(|(_, (_, line))| line.trim() == last);
        let Some((end, _)) = end else { continue };
        let alike = similarity(&have[start + 1..end], &want[1..want.len() - 1]);
        if alike >= SIMILARITY_MIN && best.is_none_or(|(known, _)| alike > known) {
            best = Some((alike, span(content, &have, start, end)));
        }
    }
    best.map(|(_, piece)| piece).into_iter().collect()
}

/// The similarity of two blocks from 0 to 1, line by line.
#[expect(clippy::cast_precision_loss, reason = "a ratio of small counts")]
fn similarity(have: &[(usize, &str)], want: &[(usize, &str)]) -> f64 {
    let longer = have.len().max(want.len());
    if longer == 0 {
        return 1.0;
    }
    let alike = |((_, a), (_, b)): (&(usize, &str), &(usize, &str))| {
        f64::from(similar::TextDiff::from_chars(a.trim(), b.trim()).ratio())
    };
    have.iter().zip(want).map(alike).sum::<f64>() / longer as f64
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn whitespace_normalized<'a>(content: &'a str, old: &str) -> Vec<&'a str> {
    let mut found = blocks(content, old, |a, b| squeezed(a) == squeezed(b));
    let words: Vec<&str> = old.split_whitespace().collect();
    if old.trim().contains('\n') || words.is_empty() {
        return found;
    }
    // A piece of one line that has the same words.
    for (at, line) in lines(content) {
        let starts = line.match_indices(words[0]).map(|(start, _)| start);
        for start in starts {
            if let Some(length) = words_match(&line[start..], &words) {
                found.push(&content[at + start..at + start + length]);
            }
        }
    }
    found
}

/// Length of the prefix of `text` that consists of `words` with any white space between them.
fn words_match(text: &str, words: &[&str]) -> Option<usize> {
    let mut rest = text;
    for (number, word) in words.iter().enumerate() {
        if number > 0 {
            let trimmed = rest.trim_start();
            if trimmed.len() == rest.len() {
                return None;
            }
            rest = trimmed;
        }
        rest = rest.strip_prefix(word)?;
    }
    Some(text.len() - rest.len())
}

fn indentation_flexible<'a>(content: &'a str, old: &str) -> Vec<&'a str> {
    let (have, want) = (lines(content), dedented(&lines(old)));
    let windows = have.windows(want.len()).enumerate();
    windows
        .filter(|(_, window)| dedented(window) == want)
        .map(|(first, window)| span(content, &have, first, first + window.len() - 1))
        .collect()
}

/// The lines without their common indentation.
fn dedented<'a>(lines: &[(usize, &'a str)]) -> Vec<&'a str> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let filled = lines.iter().filter(|(_, line)| !line.trim().is_empty());
    let shared = filled.map(|(_, line)| indentation(line)).min().unwrap_or(0);
    lines.iter().map(|(_, line)| line.get(shared.min(indentation(line))..).unwrap_or(line)).collect()
}

/// Handles unnecessary escapes by the model: `\n` for a line ending, `\"` for a quotation mark.
fn escapes_normalized<'a>(content: &'a str, old: &str) -> Vec<&'a str> {
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
    if plain == old { vec![] } else { exact(content, &plain) }
}

fn boundary_trimmed<'a>(content: &'a str, old: &str) -> Vec<&'a str> {
    let trimmed = old.trim();
    if trimmed == old || trimmed.is_empty() { vec![] } else { exact(content, trimmed) }
}

/// Blocks of the same length with the same first and last line, and at least half of the middle lines identical.
fn context_aware<'a>(content: &'a str, old: &str) -> Vec<&'a str> {
    let (have, want) = (lines(content), lines(old));
    if want.len() < 3 {
        return vec![];
    }
    let end = want.len() - 1;
    let windows = have.windows(want.len()).enumerate();
    windows
        .filter(|(_, window)| {
            let same = |at: usize| window[at].1.trim() == want[at].1.trim();
            let filled: Vec<usize> = (1..end).filter(|at| !want[*at].1.trim().is_empty()).collect();
            same(0) && same(end) && filled.iter().filter(|at| same(**at)).count() * 2 >= filled.len()
        })
        .map(|(first, _)| span(content, &have, first, first + end))
        .collect()
}
