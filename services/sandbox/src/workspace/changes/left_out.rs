//! What the result of a session lacks, for people.

use crate::workspace::large::{self, LargeFile};
use std::fmt;

/// Something that a diff or an export does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LeftOut {
    /// A file that is too large.
    Large(LargeFile),
    /// A file or directory that its owner cannot read.
    Unreadable(String),
    /// The files of a repository that came from elsewhere.
    Foreign(String),
    /// The commits of a branch that is not checked out.
    Branch { name: String, commits: u64 },
    /// Branches that could not be read.
    Branches,
    /// What was put on the stash.
    Stash { entries: u64 },
    /// The commits of the session as commits; their changes are in the result.
    Commits { count: u64, reason: String },
}

/// The sentences for the first records of `count`.
pub(super) fn texts(records: &[u8], count: usize) -> Vec<String> {
    let mut left_out: Vec<LeftOut> = large::parse(records).into_iter().map(LeftOut::Large).collect();
    left_out.extend(records.split(|byte| *byte == 0).filter_map(parse));
    let mut texts: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    if count > texts.len() {
        texts.push(format!("and {} more", count - texts.len()));
    }
    texts
}

/// Parses a record that is not about a large file.
fn parse(record: &[u8]) -> Option<LeftOut> {
    let text = String::from_utf8_lossy(record);
    let (kind, rest) = text.split_once(' ').unwrap_or((&text, ""));
    Some(match kind {
        "unreadable" => LeftOut::Unreadable(rest.to_owned()),
        "foreign" => LeftOut::Foreign(rest.to_owned()),
        "branch" => {
            let (commits, name) = rest.split_once(' ')?;
            LeftOut::Branch { name: name.to_owned(), commits: commits.parse().ok()? }
        }
        "branches" => LeftOut::Branches,
        "stash" => LeftOut::Stash { entries: rest.trim().parse().ok()? },
        "commits" => {
            let (count, reason) = rest.split_once(' ')?;
            LeftOut::Commits { count: count.parse().ok()?, reason: reason.to_owned() }
        }
        _ => return None,
    })
}

impl fmt::Display for LeftOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &'static str, many: &'static str| if count == 1 { one } else { many };
        match self {
            Self::Large(file) => file.fmt(formatter),
            Self::Unreadable(path) => write!(formatter, "{path}, which cannot be read"),
            Self::Foreign(path) => write!(formatter, "{path}, a repository from elsewhere"),
            Self::Branch { name, commits } => {
                write!(formatter, "branch {name}, {commits} {}", plural(*commits, "commit", "commits"))
            }
            Self::Branches => formatter.write_str("branches, of which there are too many to look at"),
            Self::Stash { entries } => {
                write!(formatter, "the stash, {entries} {}", plural(*entries, "entry", "entries"))
            }
            Self::Commits { count, reason } => {
                let commits = plural(*count, "commit", "commits");
                write!(
                    formatter,
                    "{count} {commits} of the session as {commits}, because {}",
                    because(reason)
                )
            }
        }
    }
}

/// Why the commits of a session became one.
fn because(reason: &str) -> &'static str {
    match reason {
        "rewritten" => "they do not descend from the commit that it began with",
        "many" => "there are too many",
        "large" => "their files are too large",
        "merge" => "there is a merge among them",
        "lfs" => "the repository has files of Git LFS",
        _ => "git cannot read them",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_result_lacks_is_told_in_words() {
        let records = b"67108865 big.bin\0unreadable a b\0foreign lib/\0branch 1 fix/x\0branch 2 y\0stash 1\0commits 3 merge\0branches\0nonsense\0";
        let texts = texts(records, 12);
        let want = [
            "big.bin, 64.0 MiB",
            "a b, which cannot be read",
            "lib/, a repository from elsewhere",
            "branch fix/x, 1 commit",
            "branch y, 2 commits",
            "the stash, 1 entry",
            "3 commits of the session as commits, because there is a merge among them",
            "branches, of which there are too many to look at",
            "and 4 more",
        ];
        assert_eq!(texts, want);
    }
}
