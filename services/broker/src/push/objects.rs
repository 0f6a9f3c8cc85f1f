//! Objects of git as text: commits, and what `git cat-file --batch` prints.

use super::{error::PushError, request::ObjectId};
use domain::egress::push::{AGENT_EMAIL, SESSION_TRAILER};
use domain::ids::SessionId;

/// An object with its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Object<'a> {
    pub(super) id: ObjectId,
    pub(super) content: &'a [u8],
}

/// A commit, as far as a push needs it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commit<'a> {
    pub(super) tree: &'a str,
    author: &'a str,
    committer: &'a str,
    message: &'a str,
}

/// Reads what `git cat-file --batch` printed: a line with name, kind and length, the content, and a line break.
///
/// # Errors
/// `ContentInvalid`: an object is missing.
pub(super) fn parse_batch(mut output: &[u8]) -> Result<Vec<Object<'_>>, PushError> {
    let mut objects = vec![];
    while !output.is_empty() {
        let (object, rest) = next(output).ok_or_else(missing)?;
        objects.push(object);
        output = rest;
    }
    Ok(objects)
}

fn next(output: &[u8]) -> Option<(Object<'_>, &[u8])> {
    let end = output.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&output[..end]).ok()?;
    let [id, _, length] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let (content, rest) = output[end + 1..].split_at_checked(length.parse().ok()?)?;
    Some((Object { id: ObjectId::parse(id)?, content }, rest.strip_prefix(b"\n")?))
}

pub(super) fn missing() -> PushError {
    PushError::ContentInvalid("an object is missing".to_owned())
}

impl<'a> Commit<'a> {
    /// Reads the text of a commit. `None`: it is not one that git writes for sessions.
    pub(super) fn parse(content: &'a [u8]) -> Option<Self> {
        let (head, message) = std::str::from_utf8(content).ok()?.split_once("\n\n")?;
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Self { tree: field("tree")?, author: field("author")?, committer: field("committer")?, message })
    }

    /// Whether it was made for a session: by Flotilla, with the session's id in the last line. A person who changes it becomes its committer.
    pub(super) fn is_of(&self, session: &SessionId) -> bool {
        let last = self.message.trim_end().lines().next_back().unwrap_or_default();
        self.committer.contains(&format!("<{AGENT_EMAIL}>"))
            && last.strip_prefix(SESSION_TRAILER) == Some(session.as_str())
    }

    /// The same commit with other files.
    pub(super) fn with_tree(self, tree: &'a str) -> Self {
        Self { tree, ..self }
    }

    /// The text of the same commit on top of another one.
    pub(super) fn on_top_of(&self, parent: &ObjectId) -> String {
        let Self { tree, author, committer, message } = self;
        format!("tree {tree}\nparent {parent}\nauthor {author}\ncommitter {committer}\n\n{message}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const TEXT: &str = "tree 1\nparent 2\nauthor A <a@b> 1 +0000\ncommitter F <agent@flotilla.invalid> 2 +0000\n\nTitle\n\nFlotilla-Session: ses_a\n";

    #[test]
    fn a_commit_belongs_to_a_session() {
        let (own, other) = ("ses_a".parse().unwrap(), "ses_b".parse().unwrap());
        let is_of = |text: &str, session| Commit::parse(text.as_bytes()).unwrap().is_of(session);
        assert!(is_of(TEXT, &own));
        assert!(!is_of(TEXT, &other));
        assert!(!is_of(&TEXT.replace("agent@", "ann@"), &own), "a person amended it");
        assert!(!is_of(&format!("{TEXT}more\n"), &own));
        let parent = ObjectId::parse(&"3".repeat(40)).unwrap();
        let moved = Commit::parse(TEXT.as_bytes()).unwrap().on_top_of(&parent);
        assert_eq!(moved, TEXT.replace("parent 2", &format!("parent {parent}")));
        let other = Commit::parse(TEXT.as_bytes()).unwrap().with_tree("4").on_top_of(&parent);
        assert_eq!(other, moved.replace("tree 1", "tree 4"));
    }

    #[test]
    fn a_batch_is_read_whole_or_not() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let text = format!("{one} blob 3\na\nb\n{two} commit 0\n\n");
        let objects = parse_batch(text.as_bytes()).unwrap();
        assert_eq!(objects.iter().map(|object| object.content).collect::<Vec<_>>(), [&b"a\nb"[..], b""]);
        for broken in [format!("{one} missing\n"), format!("{one} blob 9\na\n"), "x blob 0\n\n".to_owned()] {
            assert!(parse_batch(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
