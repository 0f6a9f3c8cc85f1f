//! Applies the hunks of a patch to a file. A line matches exactly, else without trailing white space, else without surrounding
//! white space, else with plain punctuation. Lines that a hunk only quotes keep their bytes.

use crate::{
    lines::Text,
    rewrite::{Block, Rewritten, plain, rewrite},
};
use convert_client::patch::Hunk;

/// Applies the hunks and returns the file's new content.
///
/// # Errors
/// A sentence for the model with the lines that are not in the file, or that are in it more than once.
pub(crate) fn apply(path: &str, before: &str, hunks: &[Hunk]) -> Result<Rewritten, String> {
    let text = Text::new(before);
    let file = File { path, lines: text.lines() };
    let places = file.places(hunks)?;
    file.check_unique(hunks, &places)?;
    let (mut replacements, mut inexact_lines) = (vec![], vec![]);
    let mut moved = 0_isize;
    for place in &places {
        let old: Vec<&str> = file.lines[place.first..place.end()].to_vec();
        let (quoted, new): (Vec<&str>, Vec<&str>) =
            (place.old.iter().map(String::as_str).collect(), place.new.iter().map(String::as_str).collect());
        if old != quoted {
            inexact_lines.push(place.first.saturating_add_signed(moved) + 1);
        }
        moved += isize::try_from(new.len()).unwrap_or(0) - isize::try_from(old.len()).unwrap_or(0);
        replacements.extend(rewrite(&text, Block { first: place.first, old: &quoted, new: &new }));
    }
    Ok(Rewritten { text: text.replaced(&replacements), inexact_lines })
}

#[derive(Debug, Clone, Copy)]
struct HunkPosition<'h> {
    /// The first line of context above it, from 0; without context, as `first`.
    start: usize,
    /// The first of its lines, from 0.
    first: usize,
    /// The lines that are there.
    old: &'h [String],
    new: &'h [String],
}

impl HunkPosition<'_> {
    /// The line behind the last one.
    fn end(&self) -> usize {
        self.first + self.old.len()
    }
}

struct File<'t> {
    path: &'t str,
    lines: Vec<&'t str>,
}

impl File<'_> {
    /// Places each hunk at the first lines that fit, behind the hunk before it.
    fn places<'h>(&self, hunks: &'h [Hunk]) -> Result<Vec<HunkPosition<'h>>, String> {
        let mut from = 0;
        let mut places = vec![];
        for hunk in hunks {
            let mut start = None;
            for context in &hunk.after {
                let at = self.find(std::slice::from_ref(context), from, false).ok_or_else(|| {
                    format!(
                        "{} has no line {:?} where the patch looks for it.",
                        self.path,
                        domain::text::head(context, 200)
                    )
                })?;
                start = start.or(Some(at));
                from = at + 1;
            }
            let mut place = self.place(hunk, from).ok_or_else(|| {
                let old_lines = domain::text::head(&hunk.old.join("\n"), 1_000).to_owned();
                format!(
                    "These lines of the patch are not in {}; read the file and quote them as they are:\n{old_lines}",
                    self.path
                )
            })?;
            place.start = start.unwrap_or(place.first);
            from = place.end();
            places.push(place);
        }
        Ok(places)
    }

    fn place<'h>(&self, hunk: &'h Hunk, from: usize) -> Option<HunkPosition<'h>> {
        let (old, new) = (&hunk.old[..], &hunk.new[..]);
        if old.is_empty() {
            // The hunk quotes no lines: insert after its context, or at the end of the file.
            let first = if hunk.after.is_empty() { self.lines.len() } else { from };
            return Some(HunkPosition { start: first, first, old, new });
        }
        if let Some(first) = self.find(old, from, hunk.is_at_end) {
            return Some(HunkPosition { start: first, first, old, new });
        }
        // Models often quote the end of the file as an empty line.
        let (last, shorter) = old.split_last()?;
        if !last.is_empty() || shorter.is_empty() {
            return None;
        }
        let new = new.strip_suffix(&[String::new()]).unwrap_or(new);
        self.find(shorter, from, hunk.is_at_end).map(|first| HunkPosition {
            start: first,
            first,
            old: shorter,
            new,
        })
    }

    /// Refuses hunks that would fit in several places. The hunks from the last to the first, each at the last lines that fit, must come to
    /// the same places. A hunk below a line of context, or at the end of the file, means the nearest lines.
    fn check_unique(&self, hunks: &[Hunk], places: &[HunkPosition<'_>]) -> Result<(), String> {
        let mut before = self.lines.len();
        for (hunk, place) in hunks.iter().zip(places).rev() {
            let is_named = !hunk.after.is_empty() || hunk.is_at_end || place.old.is_empty();
            if !is_named
                && let Some(fit) = Fit::ALL.into_iter().find(|fit| self.fits(place.first, place.old, *fit))
                && let Some(other) = (place.first + 1..=before.saturating_sub(place.old.len()))
                    .find(|at| self.fits(*at, place.old, fit))
            {
                return Err(format!(
                    "These lines of the patch are in {} more than once (lines {} and {}); quote more lines around the change, or put a \
                     line before it behind @@:\n{}",
                    self.path,
                    place.first + 1,
                    other + 1,
                    domain::text::head(&place.old.join("\n"), 1_000)
                ));
            }
            before = place.start;
        }
        Ok(())
    }

    /// Finds lines at or after `from`; tries the end first if they should be there.
    fn find(&self, wanted: &[String], from: usize, is_at_end: bool) -> Option<usize> {
        let last = self.lines.len().checked_sub(wanted.len())?;
        if is_at_end && last >= from && Fit::ALL.into_iter().any(|fit| self.fits(last, wanted, fit)) {
            return Some(last);
        }
        Fit::ALL.into_iter().find_map(|fit| (from..=last).find(|at| self.fits(*at, wanted, fit)))
    }

    fn fits(&self, at: usize, wanted: &[String], fit: Fit) -> bool {
        self.lines[at..at + wanted.len()].iter().zip(wanted).all(|(a, b)| fit.holds(a, b))
    }
}

/// How alike a line and its quote are.
#[derive(Debug, Clone, Copy)]
enum Fit {
    Exact,
    LineEnd,
    Trimmed,
    Plain,
}

impl Fit {
    /// From exact to lenient.
    const ALL: [Self; 4] = [Self::Exact, Self::LineEnd, Self::Trimmed, Self::Plain];

    fn holds(self, a: &str, b: &str) -> bool {
        match self {
            Self::Exact => a == b,
            Self::LineEnd => a.trim_end() == b.trim_end(),
            Self::Trimmed => a.trim() == b.trim(),
            Self::Plain => plain(a.trim()) == plain(b.trim()),
        }
    }
}

#[cfg(test)]
mod tests;
