//! What the work is about.

use serde::{Deserialize, Serialize};

/// An issue or a pull request of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub installation_id: u64,
    pub repository_id: u64,
    /// "acme/app".
    pub repository: String,
    /// Of the issue or the pull request.
    pub number: u64,
    pub is_pull_request: bool,
    pub title: String,
    /// The branch that a pull request of ours asks to change.
    pub base_branch: String,
}

#[cfg(test)]
impl Subject {
    /// An issue.
    pub(super) fn sample() -> Self {
        Self {
            installation_id: 1,
            repository_id: 2,
            repository: "acme/app".to_owned(),
            number: 7,
            is_pull_request: false,
            title: "The flaky test fails!".to_owned(),
            base_branch: "main".to_owned(),
        }
    }
}
