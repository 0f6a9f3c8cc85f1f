//! What is pushed, and whereto: the first message of a call, checked, and those that follow.

use super::error::PushError;
use domain::{
    egress::{
        git::{GitAddress, GitPrefix, find_address},
        push::{branch::BranchName, paths::DeniedPaths},
    },
    ids::{ProjectId, SessionId, TenantId},
    secret::SecretName,
    text::is_object_id,
};
use std::fmt;

/// A push that a gateway asks for.
#[derive(Debug)]
pub(crate) struct PushRequest {
    pub(crate) tenant: TenantId,
    /// The project whose secrets come before those of the tenant.
    pub(crate) project: Option<ProjectId>,
    pub(crate) session: SessionId,
    /// Below the prefix of the rule.
    pub(crate) repository: GitAddress,
    pub(crate) secret: SecretName,
    pub(crate) denied: DeniedPaths,
    pub(crate) branch: BranchName,
    pub(crate) base: ObjectId,
    /// Whether a person only wants to see what would be pushed.
    pub(crate) is_preview: bool,
}

/// What follows the request: the newest commit, and then the bundle.
#[derive(Debug)]
pub(crate) enum PushPart {
    /// The name, not checked.
    Commit(String),
    /// The next bytes.
    Data(Vec<u8>),
    /// The export of the session failed, and the caller says why.
    Failed,
}

impl PushRequest {
    /// The error of a branch that is at a commit which this session did not push.
    pub(super) fn moved(&self, tip: &ObjectId) -> PushError {
        PushError::BranchMoved { branch: self.branch.to_string(), tip: tip.short() }
    }
}

/// What settings say of pushes to repositories below a prefix.
#[derive(Debug)]
pub(crate) struct PushRule<'a> {
    pub(crate) url_prefix: &'a str,
    pub(crate) branch_prefix: &'a str,
}

impl PushRule<'_> {
    /// The repository that a URL means, if the rule covers it.
    pub(crate) fn repository(&self, url: &str) -> Option<GitAddress> {
        let prefix = GitPrefix::parse(self.url_prefix).ok()?;
        find_address([&prefix], url)
    }

    /// The branch of this name, if the session may push to it.
    ///
    /// # Errors
    /// `Branch`.
    pub(crate) fn branch(&self, name: &str, session: &SessionId) -> Result<BranchName, PushError> {
        let prefix = self
            .branch_prefix
            .parse()
            .and_then(|prefix: domain::egress::push::branch::BranchPrefix| prefix.branch(name, session));
        prefix.map_err(|error| PushError::Branch { name: name.chars().take(SHOWN_CHARS).collect(), error })
    }
}

/// Characters of a name that an error shows.
const SHOWN_CHARS: usize = 100;

/// The name of an object of git: 40 or 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId(Box<str>);

impl ObjectId {
    /// Reads a name. `None`: it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        is_object_id(text).then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The format of the repository that has it.
    pub(crate) fn format(&self) -> &'static str {
        if self.0.len() == 40 { "sha1" } else { "sha256" }
    }

    /// What stands in place of a name where there is no object.
    pub(crate) fn nothing(&self) -> String {
        "0".repeat(self.0.len())
    }

    /// The beginning, for people.
    pub(crate) fn short(&self) -> String {
        self.0.chars().take(10).collect()
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
