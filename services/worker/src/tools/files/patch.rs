//! Reads the patch format that some models write instead of single edits, and finds the position of each hunk. A line
//! matches exactly, else without trailing white space, else without surrounding white space, else with plain
//! punctuation.

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Creates a new file.
    Add {
        /// Its path.
        path: String,
        /// Its content.
        content: String,
    },
    /// Removes a file.
    Delete {
        /// Its path.
        path: String,
    },
    /// Changes a file, and moves it if `to` is set.
    Update {
        /// Its path.
        path: String,
        /// The new path.
        to: Option<String>,
        /// In the order of the file.
        hunks: Vec<Hunk>,
    },
}

/// A part of a file and its replacement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hunk {
    /// Lines that occur before the part, in order: a class, a function.
    pub(crate) after: Vec<String>,
    /// The lines to replace.
    pub(crate) old: Vec<String>,
    /// The replacement.
    pub(crate) new: Vec<String>,
    /// Whether the part is at the end of the file.
    pub(crate) is_at_end: bool,
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";
const END_OF_FILE: &str = "*** End of File";

/// Reads a patch.
///
/// # Errors
/// A sentence for the model with the problem and its line.
pub(crate) fn parse(text: &str) -> Result<Vec<Change>, String> {
    let lines: Vec<&str> = text.trim().lines().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    // Some models wrap the whole patch in a here-document.
    let begin = lines.iter().position(|line| line.trim() == BEGIN);
    let end = lines.iter().rposition(|line| line.trim() == END);
    let (Some(begin), Some(end)) = (begin, end) else {
        return Err(format!("A patch begins with the line {BEGIN:?} and ends with {END:?}."));
    };
    let mut reader =
        Reader { lines: lines.get(begin + 1..end).unwrap_or_default(), at: 0, offset: begin + 2 };
    let mut changes = vec![];
    while let Some(line) = reader.next() {
        if let Some(path) = line.strip_prefix(ADD) {
            changes.push(Change::Add { path: named(path, &reader)?, content: reader.added()? });
        } else if let Some(path) = line.strip_prefix(DELETE) {
            changes.push(Change::Delete { path: named(path, &reader)? });
        } else if let Some(path) = line.strip_prefix(UPDATE) {
            let path = named(path, &reader)?;
            let to = reader.peek().and_then(|line| line.strip_prefix(MOVE));
            let to = to.map(|to| named(to, &reader)).transpose()?;
            reader.at += usize::from(to.is_some());
            let hunks = reader.hunks()?;
            if hunks.is_empty() && to.is_none() {
                return Err(format!("The patch contains no change for {path}."));
            }
            changes.push(Change::Update { path, to, hunks });
        } else if !line.trim().is_empty() {
            return Err(format!(
                "Line {} of the patch is {:?}; expected \"*** Add File: \", \"*** Update File: \" or \"*** Delete File: \".",
                reader.number(),
                domain::text::head(line, 80)
            ));
        }
    }
    if changes.is_empty() { Err("The patch changes no file.".to_owned()) } else { Ok(changes) }
}

fn named(path: &str, reader: &Reader<'_>) -> Result<String, String> {
    match path.trim() {
        "" => Err(format!("Line {} of the patch names no file.", reader.number())),
        path => Ok(path.to_owned()),
    }
}

struct Reader<'a> {
    lines: &'a [&'a str],
    at: usize,
    offset: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// The number of the last line read, from 1.
    fn number(&self) -> usize {
        self.offset + self.at.saturating_sub(1)
    }

    fn added(&mut self) -> Result<String, String> {
        let mut content = String::new();
        while let Some(line) = self.peek().filter(|line| !line.starts_with("*** ")) {
            self.at += 1;
            let Some(line) = line.strip_prefix('+') else {
                return Err(format!(
                    "Line {} of the patch must begin with \"+\": it is in a new file.",
                    self.number()
                ));
            };
            content.push_str(line);
            content.push('\n');
        }
        Ok(content)
    }

    fn hunks(&mut self) -> Result<Vec<Hunk>, String> {
        let mut hunks = vec![];
        let mut open: Option<Hunk> = None;
        while let Some(line) = self.peek() {
            if line == END_OF_FILE {
                self.at += 1;
                if let Some(mut hunk) = open.take() {
                    hunk.is_at_end = true;
                    hunks.push(hunk);
                }
                continue;
            }
            if line.starts_with("*** ") {
                break;
            }
            self.at += 1;
            if let Some(context) = line.strip_prefix("@@") {
                // Several context lines in a row narrow the position step by step.
                let is_fresh = open.as_ref().is_some_and(|hunk| hunk.old.is_empty() && hunk.new.is_empty());
                let mut hunk = if is_fresh { open.take().unwrap_or_default() } else { Hunk::default() };
                hunks.extend(open.take());
                hunk.after.extend(
                    context.strip_prefix(' ').filter(|text| !text.trim().is_empty()).map(ToOwned::to_owned),
                );
                open = Some(hunk);
                continue;
            }
            let hunk = open.get_or_insert_default();
            match line.chars().next() {
                Some('+') => hunk.new.push(line[1..].to_owned()),
                Some('-') => hunk.old.push(line[1..].to_owned()),
                Some(' ') => both(hunk, &line[1..]),
                // Models forget the space before an empty line.
                None => both(hunk, ""),
                Some(_) => {
                    return Err(format!(
                        "Line {} of the patch must begin with \" \", \"+\", \"-\" or \"@@\": {:?}",
                        self.number(),
                        domain::text::head(line, 80)
                    ));
                }
            }
        }
        hunks.extend(open.filter(|hunk| !hunk.old.is_empty() || !hunk.new.is_empty()));
        Ok(hunks)
    }
}

fn both(hunk: &mut Hunk, line: &str) {
    hunk.old.push(line.to_owned());
    hunk.new.push(line.to_owned());
}

/// Applies the hunks and returns the file's new content.
///
/// # Errors
/// A sentence for the model with the lines that are not in the file.
pub(crate) fn apply(path: &str, content: &str, hunks: &[Hunk]) -> Result<String, String> {
    let mut lines: Vec<&str> = content.split('\n').collect();
    // A file ends with a line ending, which does not start another line.
    if lines.last() == Some(&"") {
        lines.pop();
    }
    let mut pieces = vec![];
    let mut from = 0;
    for hunk in hunks {
        for context in &hunk.after {
            let context_lines = [context.as_str()];
            let at = find(&lines, &context_lines, from, false).ok_or_else(|| {
                format!(
                    "{path} has no line {:?} where the patch looks for it.",
                    domain::text::head(context, 200)
                )
            })?;
            from = at + 1;
        }
        let (at, old, new) = place(&lines, hunk, from).ok_or_else(|| {
            let old_lines = domain::text::head(&hunk.old.join("\n"), 1_000).to_owned();
            format!("These lines of the patch are not in {path}; read the file and quote them as they are:\n{old_lines}")
        })?;
        from = at + old;
        pieces.push((at, old, new));
    }
    let mut after: Vec<&str> = vec![];
    let mut next = 0;
    for (at, old, new) in &pieces {
        after.extend(&lines[next..*at]);
        after.extend(new.iter().map(String::as_str));
        next = at + old;
    }
    after.extend(&lines[next..]);
    let mut text = after.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    Ok(text)
}

/// The position of a hunk, the number of lines to replace, and the replacement.
fn place<'a>(lines: &[&str], hunk: &'a Hunk, from: usize) -> Option<(usize, usize, &'a [String])> {
    let (old, new): (Vec<&str>, &[String]) = (hunk.old.iter().map(String::as_str).collect(), &hunk.new);
    if old.is_empty() {
        // The hunk quotes no lines: insert after its context, or at the end of the file.
        let at = if hunk.after.is_empty() { lines.len() } else { from };
        return Some((at, 0, new));
    }
    if let Some(at) = find(lines, &old, from, hunk.is_at_end) {
        return Some((at, old.len(), new));
    }
    // Models often quote the end of the file as an empty line.
    let (last, shorter) = old.split_last()?;
    if !last.is_empty() || shorter.is_empty() {
        return None;
    }
    let new = new.strip_suffix(&[String::new()]).unwrap_or(new);
    find(lines, shorter, from, hunk.is_at_end).map(|at| (at, shorter.len(), new))
}

/// Finds lines at or after `from`; tries the end first if they should be there.
fn find(lines: &[&str], wanted: &[&str], from: usize, is_at_end: bool) -> Option<usize> {
    let last = lines.len().checked_sub(wanted.len())?;
    let same: [fn(&str, &str) -> bool; 4] = [
        |a, b| a == b,
        |a, b| a.trim_end() == b.trim_end(),
        |a, b| a.trim() == b.trim(),
        |a, b| plain(a.trim()) == plain(b.trim()),
    ];
    let fits = |at: usize, same: fn(&str, &str) -> bool| {
        lines[at..at + wanted.len()].iter().zip(wanted).all(|(a, b)| same(a, b))
    };
    if is_at_end
        && last >= from
        && let Some(at) = same.iter().find_map(|same| fits(last, *same).then_some(last))
    {
        return Some(at);
    }
    same.iter().find_map(|same| (from..=last).find(|at| fits(*at, *same)))
}

/// Replaces typographic punctuation by its ASCII form.
fn plain(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            '\u{2018}'..='\u{201b}' => '\'',
            '\u{201c}'..='\u{201f}' => '"',
            '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
            other => other,
        })
        .collect()
}

#[cfg(test)]
mod tests;
