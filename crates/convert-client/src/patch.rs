//! Reads the patch format that some models write instead of single edits, in linear time. `flotilla-convert` finds the position
//! of each hunk in its file.

use serde::{Deserialize, Serialize};

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Add {
        path: String,
        content: String,
    },
    Delete {
        path: String,
    },
    /// Changes a file, and moves it if `to` is set.
    Update {
        path: String,
        to: Option<String>,
        /// In the order of the file.
        hunks: Vec<Hunk>,
    },
}

/// A part of a file and its replacement.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hunk {
    /// Lines that occur before the part, in order: a class, a function.
    pub after: Vec<String>,
    pub old: Vec<String>,
    pub new: Vec<String>,
    /// Whether the part is at the end of the file.
    pub is_at_end: bool,
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
pub fn parse(text: &str) -> Result<Vec<Change>, String> {
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

#[cfg(test)]
mod tests;
