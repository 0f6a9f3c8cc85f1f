//! What the App asks: who may do what, and what a repository and a pull request are.

use super::{
    answers::{InstallationAnswer, PermissionAnswer, PullRequestAnswer, RepositoryAnswer},
    client::{Github, RepositoryCall},
    tokens::Purpose,
};
use crate::forge::{error::ForgeError, repository::Repository};
use chassis::lock;
use domain::pull_request::permission::Permission;
use reqwest::Method;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which an answer about a person counts.
const PERMISSION_KEPT: Duration = Duration::from_secs(60);
/// Answers that are kept. Beyond it, all are forgotten.
const PERMISSIONS_MAX: usize = 10_000;

/// An installation as GitHub knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundInstallation {
    pub(crate) account: String,
    pub(crate) is_suspended: bool,
}

/// A repository as GitHub knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRepository {
    pub(crate) name: String,
    pub(crate) default_branch: String,
    pub(crate) clone_url: String,
    pub(crate) is_private: bool,
    pub(crate) pull_request: Option<FoundPullRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundPullRequest {
    pub(crate) number: u64,
    pub(crate) state: String,
    pub(crate) head_branch: String,
    pub(crate) head_commit: String,
    /// `None`: it was deleted.
    pub(crate) head_repository: Option<u64>,
    pub(crate) base_branch: String,
}

impl Github {
    /// Finds an installation, whoever has it here.
    ///
    /// # Errors
    /// Those of [`Github::call_as_app`].
    pub(crate) async fn get_installation(&self, id: u64) -> Result<FoundInstallation, ForgeError> {
        let path = format!("/app/installations/{id}");
        let (answer, _): (InstallationAnswer, _) = self.call_as_app(&Method::GET, &path).await?;
        Ok(FoundInstallation { account: answer.account.login, is_suspended: answer.suspended_at.is_some() })
    }

    /// What a person may do in a repository. Somebody whom the repository does not know may do nothing.
    ///
    /// # Errors
    /// Those of [`Github::call`].
    pub(crate) async fn get_permission(
        &self,
        repository: &Repository,
        login: &str,
    ) -> Result<Permission, ForgeError> {
        let key = (repository.installation, repository.id, login.to_ascii_lowercase());
        let kept = lock(&self.permissions).get(&key).copied();
        if let Some((_, permission)) = kept.filter(|(asked_at, _)| asked_at.elapsed() < PERMISSION_KEPT) {
            return Ok(permission);
        }
        let path = format!("/collaborators/{}/permission", encoded(login));
        let call = RepositoryCall {
            repository,
            purpose: Purpose::Look,
            method: &Method::GET,
            path: &path,
            body: None,
        };
        let permission = match self.call::<PermissionAnswer>(call).await {
            Ok(answer) => role(&answer),
            Err(ForgeError::NotFound) => Permission::None,
            Err(error) => return Err(error),
        };
        let mut permissions = lock(&self.permissions);
        if permissions.len() >= PERMISSIONS_MAX {
            permissions.clear();
        }
        permissions.insert(key, (Instant::now(), permission));
        Ok(permission)
    }

    /// Finds a repository, and one of its pull requests.
    ///
    /// # Errors
    /// `NotFound`: also if another repository has its name now; those of [`Github::call`].
    pub(crate) async fn get_repository(
        &self,
        repository: &Repository,
        pull_request: Option<u64>,
    ) -> Result<FoundRepository, ForgeError> {
        let call =
            RepositoryCall { repository, purpose: Purpose::Look, method: &Method::GET, path: "", body: None };
        let found: RepositoryAnswer = self.call(call).await?;
        if found.id != repository.id {
            return Err(ForgeError::NotFound);
        }
        let pull_request = match pull_request {
            Some(number) => {
                let path = format!("/pulls/{number}");
                Some(self.call::<PullRequestAnswer>(RepositoryCall { path: &path, ..call }).await?)
            }
            None => None,
        };
        Ok(FoundRepository {
            name: found.full_name,
            default_branch: found.default_branch,
            clone_url: found.clone_url,
            is_private: found.private,
            pull_request: pull_request.map(found_pull_request),
        })
    }
}

fn found_pull_request(answer: PullRequestAnswer) -> FoundPullRequest {
    let PullRequestAnswer { number, state, head, base } = answer;
    FoundPullRequest {
        number,
        state,
        head_branch: head.name,
        head_commit: head.sha,
        head_repository: head.repo.map(|repository| repository.id),
        base_branch: base.name,
    }
}

/// The role in an answer. Older servers do not tell all roles.
fn role(answer: &PermissionAnswer) -> Permission {
    match Permission::parse(&answer.role_name) {
        Permission::None => Permission::parse(&answer.permission),
        // A role of the organization's own extends the one in the older field.
        role => role,
    }
}

/// A text as a segment of a path.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let segment =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_field_tells_the_role() {
        for (permission, role_name, want) in [
            ("admin", "admin", Permission::Admin),
            ("write", "maintain", Permission::Maintain),
            ("read", "triage", Permission::Triage),
            ("write", "", Permission::Write),
            ("write", "release manager", Permission::Write),
            ("none", "", Permission::None),
            ("", "", Permission::None),
        ] {
            let answer =
                PermissionAnswer { permission: permission.to_owned(), role_name: role_name.to_owned() };
            assert_eq!(role(&answer), want, "{permission} {role_name}");
        }
    }

    #[test]
    fn a_login_cannot_lead_elsewhere() {
        assert_eq!(encoded("ann-1"), "ann-1");
        assert_eq!(encoded("../x?y"), "..%2Fx%3Fy");
        assert_eq!(encoded("bot[bot]"), "bot%5Bbot%5D");
    }
}
