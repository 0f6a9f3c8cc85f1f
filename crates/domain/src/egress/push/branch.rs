//! The branches that a push may reach: those below a prefix, and none that belongs to another session.

use crate::ids::SessionId;
use std::{fmt, str::FromStr};

/// Bytes of the name of a branch. Beyond it: `push_branch_invalid`, `settings_invalid` or `config_invalid`.
pub const BRANCH_BYTES_MAX: usize = 200;
/// The beginning of the ids of sessions.
const SESSION: &str = "ses_";

/// The name of a branch as git takes it, without `refs/heads/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchName(Box<str>);

/// The beginning of the names of branches: a name and a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchPrefix(Box<str>);

/// Why a text is no branch for a push.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BranchError {
    /// Git takes no such name.
    #[error("git takes no branch of this name")]
    Name,
    /// A prefix ends with a slash.
    #[error("a prefix of branches is a name and a slash, such as \"agent/\"")]
    Prefix,
    /// It is not below the prefix.
    #[error("only branches below {0} may be pushed, as `branches` in environment.git.push says")]
    Outside(BranchPrefix),
    /// It is the branch of another session.
    #[error("branches whose name begins with the id of a session belong to that session")]
    OtherSession,
}

impl Default for BranchPrefix {
    fn default() -> Self {
        Self("agent/".into())
    }
}

impl BranchPrefix {
    /// The branch of a session that names none.
    pub fn branch_of(&self, session: &SessionId) -> BranchName {
        BranchName(format!("{self}{session}").into())
    }

    /// Reads the name of a branch to which a session may push.
    ///
    /// # Errors
    /// `Name`, `Outside`, `OtherSession`.
    pub fn branch(&self, name: &str, session: &SessionId) -> Result<BranchName, BranchError> {
        let branch: BranchName = name.parse()?;
        let own = name.strip_prefix(&*self.0).ok_or_else(|| BranchError::Outside(self.clone()))?;
        // A branch below the name of another session's branch would keep that one from being created.
        if own.starts_with(SESSION) && own != session.as_str() {
            return Err(BranchError::OtherSession);
        }
        Ok(branch)
    }
}

impl BranchName {
    /// The whole name of the reference.
    pub fn reference(&self) -> String {
        format!("refs/heads/{self}")
    }
}

impl FromStr for BranchName {
    type Err = BranchError;

    /// The rules of `git check-ref-format --branch`, without its short forms.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_odd =
            |letter: char| letter.is_control() || letter.is_whitespace() || "~^:?*[\\".contains(letter);
        let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
        let is_name = text.len() <= BRANCH_BYTES_MAX
            && !text.contains(is_odd)
            && !text.contains("..")
            && !text.contains("@{")
            && !text.starts_with('-')
            && !text.ends_with('.')
            && !["@", "HEAD"].contains(&text)
            && text.split('/').all(is_part);
        if is_name { Ok(Self(text.into())) } else { Err(BranchError::Name) }
    }
}

impl FromStr for BranchPrefix {
    type Err = BranchError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.strip_suffix('/').ok_or(BranchError::Prefix)?;
        // Git would read a branch below it as a reference of another kind.
        if name.parse::<BranchName>().is_err() || name.split('/').next() == Some("refs") {
            return Err(BranchError::Prefix);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BranchPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_branch_is_what_git_takes() {
        for name in ["agent/fix", "a", "agent/späte-arbeit", "a/b@c"] {
            assert_eq!(name.parse::<BranchName>().unwrap().reference(), format!("refs/heads/{name}"));
        }
        let long = "a".repeat(BRANCH_BYTES_MAX + 1);
        for name in [
            "", "/a", "a/", "a//b", "a b", "a\nb", "a..b", "a.", "a/.b", "a.lock", "a.lock/b", "a~1", "a^",
            "a:b", "a?", "a*", "a[", "a\\b", "a@{1}", "@", "HEAD", "-a", "a\u{7f}", &long,
        ] {
            assert_eq!(name.parse::<BranchName>(), Err(BranchError::Name), "{name:?}");
        }
        for prefix in ["agent", "/", "", "refs/", "refs/heads/", "a b/", "-a/", "../"] {
            assert_eq!(prefix.parse::<BranchPrefix>(), Err(BranchError::Prefix), "{prefix:?}");
        }
    }

    #[test]
    fn a_session_reaches_branches_below_the_prefix_that_are_not_another_sessions() {
        let (prefix, session) = (BranchPrefix::default(), "ses_a".parse().unwrap());
        let read = |name: &str| prefix.branch(name, &session).map(|branch| branch.to_string());
        assert_eq!(prefix.branch_of(&session).to_string(), "agent/ses_a");
        for name in ["agent/ses_a", "agent/fix", "agent/fix/ses_b"] {
            assert_eq!(read(name).as_deref(), Ok(name));
        }
        for name in ["main", "agents/fix", "Agent/fix", "refs/heads/agent/fix", "feature/agent/fix"] {
            assert_eq!(read(name), Err(BranchError::Outside(prefix.clone())), "{name}");
        }
        for name in ["agent/ses_b", "agent/ses_b/x", "agent/ses_a/x", "agent/ses_"] {
            assert_eq!(read(name), Err(BranchError::OtherSession), "{name}");
        }
    }
}
