//! Who made a file of settings.

use serde::{Deserialize, Serialize};

/// Who made a file of settings. A later level wins, and may only narrow what an earlier one permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Whoever runs Flotilla.
    Platform,
    /// Whoever pays.
    Tenant,
    /// Whoever manages the project.
    Project,
    /// Whoever may push to the repository: untrusted.
    Repository,
}

impl Level {
    /// Every level, the one with the last word on permissions first.
    pub const ALL: [Self; 4] = [Self::Platform, Self::Tenant, Self::Project, Self::Repository];

    /// Its name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Tenant => "tenant",
            Self::Project => "project",
            Self::Repository => "repository",
        }
    }
}
