//! What GitHub answers, as far as it matters here. GitHub adds fields, and its older servers lack some.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct AppAnswer {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) slug: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct AttemptAnswer {
    pub(super) id: u64,
    pub(super) guid: String,
    /// As in RFC 3339.
    pub(super) delivered_at: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct InstallationAnswer {
    pub(super) account: Account,
    #[serde(default)]
    pub(super) suspended_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Account {
    pub(super) login: String,
}

#[derive(Deserialize)]
pub(super) struct TokenAnswer {
    pub(super) token: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct PermissionAnswer {
    #[serde(default)]
    pub(super) permission: String,
    /// Knows more roles than `permission`.
    #[serde(default)]
    pub(super) role_name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct RepositoryAnswer {
    pub(super) id: u64,
    pub(super) full_name: String,
    pub(super) default_branch: String,
    pub(super) clone_url: String,
    #[serde(default)]
    pub(super) private: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct PullRequestAnswer {
    pub(super) number: u64,
    pub(super) state: String,
    pub(super) head: BranchAnswer,
    pub(super) base: BranchAnswer,
}

#[derive(Debug, Deserialize)]
pub(super) struct BranchAnswer {
    #[serde(rename = "ref")]
    pub(super) name: String,
    pub(super) sha: String,
    /// `None`: it was deleted.
    #[serde(default)]
    pub(super) repo: Option<RepositoryId>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RepositoryId {
    pub(super) id: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommentAnswer {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) body: Option<String>,
    #[serde(default)]
    pub(super) user: Option<Account>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChecksAnswer {
    #[serde(default)]
    pub(super) check_runs: Vec<CheckAnswer>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CheckAnswer {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) app: Option<AppId>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AppId {
    pub(super) id: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct NumberAnswer {
    pub(super) number: u64,
}

/// Why GitHub refuses a call.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RefusalAnswer {
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) errors: serde_json::Value,
}
