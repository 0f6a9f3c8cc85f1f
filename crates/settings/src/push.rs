//! Where the settings let a session be pushed.

use crate::GitPush;
use domain::{
    egress::{
        git::{GitPrefix, find_address, find_longest},
        push::branch::{BranchError, BranchName},
    },
    ids::SessionId,
};
use std::collections::BTreeMap;

/// A branch of a repository to which a session may be pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushDestination {
    /// The repository, without a user or a password.
    pub url: String,
    /// The prefix whose rule covers it.
    pub prefix: GitPrefix,
    pub rule: GitPush,
    pub branch: BranchName,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushDestinationError {
    #[error("no entry of environment.git.push covers the repository")]
    NotConfigured,
    #[error("cannot push to this branch: {0}")]
    Branch(BranchError),
}

impl PushDestination {
    /// Finds the rule that covers a URL, and reads the branch. An empty one is that of the session.
    ///
    /// # Errors
    /// `NotConfigured`, `Branch`.
    pub fn find(
        rules: &BTreeMap<GitPrefix, GitPush>,
        url: &str,
        branch: &str,
        session: &SessionId,
    ) -> Result<Self, PushDestinationError> {
        // A URL may have a password, so only an address is shown.
        let address = find_address(rules.keys(), url);
        let prefix = address.as_ref().and_then(|address| find_longest(rules.keys(), address));
        let found = address
            .as_ref()
            .zip(prefix)
            .and_then(|(address, prefix)| Some((address, prefix, rules.get(prefix)?)));
        let (address, prefix, rule) = found.ok_or(PushDestinationError::NotConfigured)?;
        let branches = &rule.branches;
        let branch = if branch.is_empty() {
            Ok(branches.branch_of(session))
        } else {
            branches.branch(branch, session)
        };
        Ok(Self {
            url: address.to_string(),
            prefix: prefix.clone(),
            rule: rule.clone(),
            branch: branch.map_err(PushDestinationError::Branch)?,
        })
    }
}
