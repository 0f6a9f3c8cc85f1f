//! The App of the deployment at its forge, behind the broker.

use crate::process::deps::Deps;
use domain::{
    ids::TenantId,
    pull_request::{
        request::{CommentId, CommentKind},
        shown::{CheckState, ShownCheck},
        subject::Subject,
    },
};
use rpc::v1;
use std::time::Duration;
use tonic::{Request, Status};

/// Longest wait for an answer: the broker waits for its turn and for the forge, and repeats a call whose token is too new.
const CALL: Duration = Duration::from_secs(60);

/// A repository at the forge, for one job.
pub(super) struct Forge<'a> {
    pub(super) deps: &'a Deps,
    pub(super) tenant: TenantId,
    pub(super) subject: &'a Subject,
    /// The session, which the marks of comments and checks name.
    pub(super) session: &'a str,
}

impl Forge<'_> {
    fn repository(&self) -> Option<v1::ForgeRepository> {
        let Subject { installation_id, repository_id, repository, .. } = self.subject;
        Some(v1::ForgeRepository {
            tenant_id: self.tenant.to_string(),
            installation_id: *installation_id,
            repository_id: *repository_id,
            name: repository.clone(),
        })
    }

    /// Shows the author of a comment that it was read. May be repeated, as all calls here.
    pub(super) async fn acknowledge(&self, comment: CommentId) -> Result<(), Status> {
        let kind = match comment.kind {
            CommentKind::Body => v1::ForgeCommentKind::Body,
            CommentKind::Comment => v1::ForgeCommentKind::Comment,
            CommentKind::Line => v1::ForgeCommentKind::Line,
        };
        let comment = Some(v1::ForgeComment { kind: kind.into(), id: comment.id });
        let request = request(v1::AcknowledgeCommentRequest { repository: self.repository(), comment });
        self.deps.forge()?.acknowledge_comment(request).await.map(drop)
    }

    /// Writes the comment with the state. Returns its id.
    pub(super) async fn show_state(
        &self,
        comment: Option<u64>,
        mark: &str,
        text: &str,
    ) -> Result<u64, Status> {
        let request = request(v1::PutForgeCommentRequest {
            repository: self.repository(),
            number: self.subject.number,
            comment_id: comment.unwrap_or_default(),
            mark: mark.to_owned(),
            text: text.to_owned(),
        });
        Ok(self.deps.forge()?.put_forge_comment(request).await?.into_inner().comment_id)
    }

    /// Opens a pull request, or finds the open one of the branch. Returns its number.
    pub(super) async fn open_pull_request(
        &self,
        head: &str,
        base: &str,
        title: &str,
        body: &str,
    ) -> Result<u64, Status> {
        let request = request(v1::OpenForgePullRequestRequest {
            repository: self.repository(),
            head: head.to_owned(),
            base: base.to_owned(),
            title: title.to_owned(),
            body: body.to_owned(),
            is_draft: false,
        });
        Ok(self.deps.forge()?.open_forge_pull_request(request).await?.into_inner().number)
    }

    /// Shows a check. Returns its id.
    pub(super) async fn show_check(&self, check: &ShownCheck) -> Result<u64, Status> {
        let state = match check.state {
            CheckState::InProgress => v1::ForgeCheckState::InProgress,
            CheckState::Success => v1::ForgeCheckState::Success,
            CheckState::Failure => v1::ForgeCheckState::Failure,
            CheckState::Neutral => v1::ForgeCheckState::Neutral,
            CheckState::ActionRequired => v1::ForgeCheckState::ActionRequired,
        };
        let request = request(v1::PutForgeCheckRequest {
            repository: self.repository(),
            check_id: check.id.unwrap_or_default(),
            name: check.name.clone(),
            commit: check.commit.clone(),
            state: state.into(),
            title: check.title.clone(),
            external_id: self.session.to_owned(),
        });
        Ok(self.deps.forge()?.put_forge_check(request).await?.into_inner().check_id)
    }
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL);
    request
}
