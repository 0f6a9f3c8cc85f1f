//! What a session has made, at the forge.

use serde::{Deserialize, Serialize};

/// A branch of the platform with the work, and its pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub branch: String,
    pub commit: String,
    /// Its number; `None`: not opened yet.
    pub pull_request: Option<u64>,
}
