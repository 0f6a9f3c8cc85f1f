//! What the App shows. Each write may be repeated: it first looks for what an earlier one may have made.

use super::{
    answers::{CheckAnswer, ChecksAnswer, CommentAnswer, NumberAnswer},
    client::{Github, RepositoryCall},
    tokens::Purpose,
};
use crate::forge::{
    error::ForgeError,
    repository::{CheckState, CommentPlace, Repository, WantedCheck, WantedComment, WantedPullRequest},
};
use reqwest::Method;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

/// Entries of a page of a list: as many as GitHub gives.
const PAGE: usize = 100;
/// Pages in which a comment is looked for. It stands near the beginning, where the App first wrote.
const COMMENT_PAGES_MAX: usize = 10;

impl Github {
    /// Shows the author of a comment that it was read. GitHub keeps one such reaction.
    ///
    /// # Errors
    /// Those of [`Github::call`]; `Busy`.
    pub(crate) async fn acknowledge(
        &self,
        repository: &Repository,
        place: CommentPlace,
    ) -> Result<(), ForgeError> {
        let path = match place {
            CommentPlace::Body(number) => format!("/issues/{number}/reactions"),
            CommentPlace::Comment(id) => format!("/issues/comments/{id}/reactions"),
            CommentPlace::Line(id) => format!("/pulls/comments/{id}/reactions"),
        };
        self.write::<IgnoredAny>(repository, &Method::POST, &path, &json!({"content": "eyes"})).await?;
        Ok(())
    }

    /// Writes a comment, or a new text for it. Returns its id.
    ///
    /// # Errors
    /// `NotFound`: the comment or the issue is gone; those of [`Github::call`]; `Busy`.
    pub(crate) async fn put_comment(
        &self,
        repository: &Repository,
        wanted: WantedComment<'_>,
    ) -> Result<u64, ForgeError> {
        let WantedComment { number, id, mark, text } = wanted;
        let body = json!({"body": text});
        let id = match id {
            Some(id) => Some(id),
            None => self.find_comment(repository, number, mark).await?,
        };
        let written: CommentAnswer = match id {
            Some(id) => {
                self.write(repository, &Method::PATCH, &format!("/issues/comments/{id}"), &body).await?
            }
            None => {
                self.write(repository, &Method::POST, &format!("/issues/{number}/comments"), &body).await?
            }
        };
        Ok(written.id)
    }

    /// Finds the comment of the App with a mark. Others may copy the mark, but not the author.
    async fn find_comment(
        &self,
        repository: &Repository,
        number: u64,
        mark: &str,
    ) -> Result<Option<u64>, ForgeError> {
        let author = format!("{}[bot]", self.facts().await?.slug);
        for page in 1..=COMMENT_PAGES_MAX {
            let path = format!("/issues/{number}/comments?per_page={PAGE}&page={page}");
            let comments: Vec<CommentAnswer> = self.look(repository, &path).await?;
            let is_own = |comment: &&CommentAnswer| {
                comment.user.as_ref().is_some_and(|user| user.login == author)
                    && comment.body.as_ref().is_some_and(|body| body.contains(mark))
            };
            if let Some(found) = comments.iter().find(is_own) {
                return Ok(Some(found.id));
            }
            if comments.len() < PAGE {
                break;
            }
        }
        Ok(None)
    }

    /// Shows a check at a commit. Returns its id.
    ///
    /// # Errors
    /// Those of [`Github::call`]; `Busy`.
    pub(crate) async fn put_check(
        &self,
        repository: &Repository,
        wanted: WantedCheck<'_>,
    ) -> Result<u64, ForgeError> {
        let WantedCheck { id, name, commit, state, title, external_id } = wanted;
        let id = match id {
            Some(id) => Some(id),
            None => self.find_check(repository, name, commit).await?,
        };
        let mut body =
            json!({"name": name, "external_id": external_id, "output": {"title": title, "summary": title}});
        match conclusion(state) {
            Some(conclusion) => {
                body["status"] = json!("completed");
                body["conclusion"] = json!(conclusion);
            }
            None => body["status"] = json!("in_progress"),
        }
        let written: CheckAnswer = match id {
            Some(id) => self.write(repository, &Method::PATCH, &format!("/check-runs/{id}"), &body).await?,
            None => {
                body["head_sha"] = json!(commit);
                self.write(repository, &Method::POST, "/check-runs", &body).await?
            }
        };
        Ok(written.id)
    }

    async fn find_check(
        &self,
        repository: &Repository,
        name: &str,
        commit: &str,
    ) -> Result<Option<u64>, ForgeError> {
        let app = self.facts().await?.app_id;
        let path = format!("/commits/{commit}/check-runs?check_name={name}&per_page={PAGE}");
        let checks: ChecksAnswer = self.look(repository, &path).await?;
        // One of another App cannot be changed.
        let is_own =
            |check: &&CheckAnswer| check.name == name && check.app.as_ref().is_some_and(|it| it.id == app);
        Ok(checks.check_runs.iter().find(is_own).map(|check| check.id))
    }

    /// Opens a pull request, or finds the open one of the branch. Returns its number.
    ///
    /// # Errors
    /// `Refused`: for example because the branch has no changes; those of [`Github::call`]; `Busy`.
    pub(crate) async fn open_pull_request(
        &self,
        repository: &Repository,
        wanted: WantedPullRequest<'_>,
    ) -> Result<u64, ForgeError> {
        let WantedPullRequest { head, base, title, body, is_draft } = wanted;
        if let Some(number) = self.find_pull_request(repository, head).await? {
            return Ok(number);
        }
        let request = json!({"head": head, "base": base, "title": title, "body": body, "draft": is_draft});
        match self.write::<NumberAnswer>(repository, &Method::POST, "/pulls", &request).await {
            Ok(opened) => Ok(opened.number),
            // Another broker may have opened it since.
            Err(refused @ ForgeError::Refused(_)) => {
                self.find_pull_request(repository, head).await?.ok_or(refused)
            }
            Err(error) => Err(error),
        }
    }

    async fn find_pull_request(
        &self,
        repository: &Repository,
        head: &str,
    ) -> Result<Option<u64>, ForgeError> {
        let owner = repository.name.split('/').next().unwrap_or_default();
        let path = format!("/pulls?state=open&head={owner}:{head}&per_page={PAGE}");
        let open: Vec<PullRequestHead> = self.look(repository, &path).await?;
        Ok(open.iter().find(|pull_request| pull_request.head.name == head).map(|it| it.number))
    }

    async fn look<T: DeserializeOwned>(&self, repository: &Repository, path: &str) -> Result<T, ForgeError> {
        let call =
            RepositoryCall { repository, purpose: Purpose::Show, method: &Method::GET, path, body: None };
        self.call(call).await
    }

    async fn write<T: DeserializeOwned>(
        &self,
        repository: &Repository,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> Result<T, ForgeError> {
        self.pace.wait(repository.installation).await?;
        let call = RepositoryCall { repository, purpose: Purpose::Show, method, path, body: Some(body) };
        self.call(call).await
    }
}

/// GitHub's word for an end; `None`: the check goes on.
fn conclusion(state: CheckState) -> Option<&'static str> {
    match state {
        CheckState::InProgress => None,
        CheckState::Success => Some("success"),
        CheckState::Failure => Some("failure"),
        CheckState::Neutral => Some("neutral"),
        CheckState::ActionRequired => Some("action_required"),
    }
}

/// An open pull request of a list.
#[derive(Debug, serde::Deserialize)]
struct PullRequestHead {
    number: u64,
    head: HeadName,
}

#[derive(Debug, serde::Deserialize)]
struct HeadName {
    #[serde(rename = "ref")]
    name: String,
}
