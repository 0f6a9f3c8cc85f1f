//! The levels of settings.

use serde::{Deserialize, Serialize};

/// The author of settings. A later level wins, but can only narrow what an earlier one permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Platform,
    Tenant,
    /// An environment that a repository proposes and an admin has allowed.
    Environment,
    /// The people who manage the project.
    Project,
    /// The people who may push to the repository: untrusted.
    Repository,
}

impl Level {
    /// Every level, the one whose permissions bind most first.
    pub const ALL: [Self; 5] =
        [Self::Platform, Self::Tenant, Self::Environment, Self::Project, Self::Repository];

    /// Its name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Tenant => "tenant",
            Self::Environment => "environment",
            Self::Project => "project",
            Self::Repository => "repository",
        }
    }
}
