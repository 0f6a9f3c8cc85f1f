//! What the inspection of a push finds: a bounded number of problems, with the commit and the path of each, and how many there are.

use rpc::v1::ErrorCode;
use std::fmt;

/// Problems that a refusal lists. It counts the others.
const LISTED_PROBLEMS: usize = 20;
/// Bytes of that list, because headers carry errors. The first problem always has room.
const LIST_BYTES: usize = 2_000;

/// A change that no push may bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The commit that makes the change.
    pub commit: String,
    /// The path of the file.
    pub path: String,
    /// What is wrong with it.
    pub kind: ProblemKind,
}

/// What is wrong with a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemKind {
    /// No push may touch the path.
    PathRefused { reason: String },
    FileTooLarge {
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// A file of Git LFS has its content, in a push of several commits.
    LfsContent,
    /// The server takes no objects of Git LFS.
    LfsUnsupported { host: String },
    /// The server does not take the content of a file of Git LFS.
    LfsRefused {
        /// Which server, and what it says.
        reason: String,
    },
    /// The server does not have the object of a pointer.
    LfsMissing { host: String },
}

impl Problem {
    fn code(&self) -> ErrorCode {
        match self.kind {
            ProblemKind::PathRefused { .. } => ErrorCode::PushPathRefused,
            ProblemKind::FileTooLarge { .. } => ErrorCode::PushFileTooLarge,
            ProblemKind::LfsContent | ProblemKind::LfsUnsupported { .. } => ErrorCode::PushLfsContent,
            ProblemKind::LfsRefused { .. } => ErrorCode::PushLfsRefused,
            ProblemKind::LfsMissing { .. } => ErrorCode::PushLfsObjectMissing,
        }
    }

    /// What a person does about it.
    fn remedy(&self) -> &'static str {
        match self.kind {
            ProblemKind::PathRefused { .. } => {
                "remove this change from the session, or bring it into the repository yourself with `flotilla checkout`"
            }
            ProblemKind::FileTooLarge { .. } => "remove the file, or have git ignore it",
            ProblemKind::LfsContent
            | ProblemKind::LfsUnsupported { .. }
            | ProblemKind::LfsRefused { .. }
            | ProblemKind::LfsMissing { .. } => "use `flotilla checkout`, and push from there with git-lfs",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commit, path, kind } = self;
        match kind {
            ProblemKind::PathRefused { reason } => write!(f, "the commit {commit} touches {path}: {reason}"),
            ProblemKind::FileTooLarge { bytes, bytes_max } => write!(
                f,
                "the commit {commit} has the file {path} of {bytes} bytes, the limit is {bytes_max} bytes"
            ),
            ProblemKind::LfsContent => write!(
                f,
                "the commit {commit} changes the content of {path}, which is a file of Git LFS, and a push of several commits brings no \
                 objects of Git LFS"
            ),
            ProblemKind::LfsUnsupported { host } => write!(
                f,
                "the commit {commit} changes the content of {path}, which is a file of Git LFS, and {host} has no Git LFS for this repository"
            ),
            ProblemKind::LfsRefused { reason } => write!(
                f,
                "the commit {commit} changes the content of {path}, which is a file of Git LFS, and the server does not take it: {reason}"
            ),
            ProblemKind::LfsMissing { host } => write!(
                f,
                "the commit {commit} has a pointer of Git LFS at {path}, and {host} does not have its object"
            ),
        }
    }
}

/// All problems of a push, in the order in which the inspection found them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems {
    listed: Vec<Problem>,
    count: usize,
}

impl Problems {
    /// Adds a problem. One that a refusal would not list only counts.
    pub(super) fn add(&mut self, problem: Problem) {
        self.count += 1;
        if self.listed.len() < LISTED_PROBLEMS {
            self.listed.push(problem);
        }
    }

    /// Whether the inspection found nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The stable code: that of the first problem.
    pub(super) fn code(&self) -> ErrorCode {
        self.listed.first().map_or(ErrorCode::PushContentInvalid, Problem::code)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([problem], 1) = (&self.listed[..], self.count) {
            return write!(f, "{problem}; {}", problem.remedy());
        }
        let (mut list, mut listed) = (String::new(), 0);
        for problem in &self.listed {
            let line = format!("\n- {problem}");
            if listed > 0 && list.len() + line.len() > LIST_BYTES {
                break;
            }
            list.push_str(&line);
            listed += 1;
        }
        write!(f, "the push has {} problems:{list}", self.count)?;
        if self.count > listed {
            write!(f, "\nand {} more", self.count - listed)?;
        }
        f.write_str(
            "\nremove these changes from the session, or bring them into the repository yourself with `flotilla checkout`",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(count: usize, path: &str) -> Problems {
        let mut problems = Problems::default();
        for number in 0..count {
            let reason = "pushes must not touch what the pattern x/** covers".to_owned();
            problems.add(Problem {
                commit: "c0ffee".to_owned(),
                path: format!("{path}{number}"),
                kind: ProblemKind::PathRefused { reason },
            });
        }
        problems
    }

    #[test]
    fn a_refusal_names_the_only_problem_with_its_remedy_and_lists_several() {
        assert_eq!(
            problems(1, "x/").to_string(),
            "the commit c0ffee touches x/0: pushes must not touch what the pattern x/** covers; remove this change from the session, \
             or bring it into the repository yourself with `flotilla checkout`"
        );
        let mut several = problems(1, "x/");
        let kind = ProblemKind::FileTooLarge { bytes: 9, bytes_max: 8 };
        several.add(Problem { commit: "c0ffee".to_owned(), path: "large".to_owned(), kind });
        assert_eq!(several.code().as_str(), "push_path_refused");
        assert_eq!(
            several.to_string(),
            "the push has 2 problems:\n\
             - the commit c0ffee touches x/0: pushes must not touch what the pattern x/** covers\n\
             - the commit c0ffee has the file large of 9 bytes, the limit is 8 bytes\n\
             remove these changes from the session, or bring them into the repository yourself with `flotilla checkout`"
        );
    }

    #[test]
    fn a_refusal_is_bounded_and_counts_what_it_does_not_list() {
        let lines = |text: &str| text.lines().filter(|line| line.starts_with("- ")).count();
        let text = problems(25, "x/").to_string();
        assert!(text.starts_with("the push has 25 problems:\n"), "{text}");
        assert_eq!(lines(&text), LISTED_PROBLEMS);
        assert!(text.contains("\nand 5 more\n"), "{text}");
        let text = problems(1_000, &"x".repeat(900)).to_string();
        assert!(text.len() < LIST_BYTES + 300 && text.contains("\nand 998 more\n"), "{text}");
        // The list has room for one long problem.
        let text = problems(2, &"x".repeat(LIST_BYTES)).to_string();
        assert_eq!((lines(&text), text.contains("\nand 1 more\n")), (1, true));
    }
}
