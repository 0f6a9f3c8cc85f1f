//! What a commit changes against a parent, as `git diff-tree --stdin -m --raw -z` prints it.

use crate::push::{
    problem::{Problem, ProblemKind},
    request::ObjectId,
};

/// Characters of a path that an error shows.
const SHOWN_CHARS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::push) struct Change {
    pub(in crate::push) commit: ObjectId,
    pub(in crate::push) kind: Kind,
    /// What the file is now.
    pub(in crate::push) object: ObjectId,
    /// As git has it, perhaps no UTF-8.
    pub(in crate::push) path: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::push) enum Kind {
    Removed,
    File,
    /// A file that can be executed.
    Program,
    Link,
    /// A submodule, or a kind of entry that git does not have yet.
    Other,
}

impl Change {
    pub(super) fn problem(&self, kind: ProblemKind) -> Problem {
        Problem { commit: self.commit.short(), path: self.shown_path(), kind }
    }

    /// Whether there is a file or a link after it.
    pub(super) fn is_stored(&self) -> bool {
        match self.kind {
            Kind::File | Kind::Program | Kind::Link => true,
            Kind::Removed | Kind::Other => false,
        }
    }

    /// The path for people.
    pub(in crate::push) fn shown_path(&self) -> String {
        shown(&self.path, SHOWN_CHARS)
    }
}

/// A path for people: nothing in it changes a terminal.
pub(super) fn shown(path: &[u8], chars_max: usize) -> String {
    let text = String::from_utf8_lossy(path);
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).take(chars_max).collect()
}

/// Reads all changes. `None`: this is not what git prints.
pub(in crate::push) fn parse(output: &[u8]) -> Option<Vec<Change>> {
    let (mut changes, mut commit) = (vec![], None);
    let mut fields = output.split(|byte| *byte == 0);
    while let Some(field) = fields.next() {
        if field.is_empty() {
            continue;
        }
        let text = std::str::from_utf8(field).ok()?;
        let Some(record) = text.strip_prefix(':') else {
            commit = Some(ObjectId::parse(text)?);
            continue;
        };
        let [_, mode, _, object, status] = record.split(' ').collect::<Vec<_>>()[..] else { return None };
        let kind = match (status, mode) {
            ("D", _) => Kind::Removed,
            (_, "100644") => Kind::File,
            (_, "100755") => Kind::Program,
            (_, "120000") => Kind::Link,
            (_, _) => Kind::Other,
        };
        let path = fields.next().filter(|path| !path.is_empty())?.to_vec();
        changes.push(Change { commit: commit.clone()?, kind, object: ObjectId::parse(object)?, path });
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn every_difference_has_its_commit() {
        let (none, one, two) = ("0".repeat(40), "1".repeat(40), "2".repeat(40));
        let text = format!(
            "{one}\0:000000 100644 {none} {two} A\0a b\0:100644 000000 {two} {none} D\0:odd\0{two}\0:100644 120000 {one} {two} T\0l\0\
             {two}\0:000000 160000 {none} {one} A\0m\0\
             :100644 100755 {one} {two} M\0run\0"
        );
        let read = parse(text.as_bytes()).unwrap();
        let read: Vec<_> =
            read.iter().map(|change| (change.commit.as_str(), change.kind, change.path.as_slice())).collect();
        assert_eq!(
            read,
            [
                (&*one, Kind::File, &b"a b"[..]),
                (&*one, Kind::Removed, b":odd"),
                (&*two, Kind::Link, b"l"),
                (&*two, Kind::Other, b"m"),
                (&*two, Kind::Program, b"run")
            ]
        );
        assert_eq!(parse(b""), Some(vec![]));
        for broken in [&b":000000 100644 1 2 A\0a\0"[..], b"x\0", b":1\0"] {
            assert_eq!(parse(broken), None);
        }
    }
}
