//! `ForgeService`: calls of the App at its forge.

use super::{call::Call, ids::tenant};
use crate::{
    error::Error,
    forge::{
        github::{FoundRepository, Github, NewApp},
        repository::{CheckState, CommentPlace, Repository, WantedCheck, WantedComment, WantedPullRequest},
    },
};
use chassis::secret::SecretBytes;
use domain::pull_request::missed::Attempt;
use rpc::v1::{self, forge_service_server::ForgeService};
use std::sync::Arc;
use store::broker::forge::ForgeApp;
use tonic::{Request, Response, Status};

/// Bytes of a comment: somewhat less than GitHub takes.
const COMMENT_BYTES_MAX: usize = 60 * 1024;
/// Bytes of the name of a repository: an owner has 39 characters, and a name 100.
const NAME_BYTES_MAX: usize = 200;

/// The calls.
#[derive(Debug)]
pub(crate) struct ForgeServer(pub(crate) Arc<Github>);

/// The methods that only translate: each has a function of the same name below.
macro_rules! calls {
    ($($method:ident $name:literal $request:ident $response:ident;)*) => {
        #[tonic::async_trait]
        impl ForgeService for ForgeServer {$(
            async fn $method(
                &self,
                request: Request<v1::$request>,
            ) -> Result<Response<v1::$response>, Status> {
                let call = Call::new($name, &request, "");
                let (metadata, _, request) = request.into_parts();
                // Boxed because the futures are large, and a call waits for the forge.
                call.run(&metadata, Box::pin($method(&self.0, request))).await
            }
        )*}
    };
}

calls! {
    put_forge_app "PutForgeApp" PutForgeAppRequest PutForgeAppResponse;
    get_forge_app "GetForgeApp" GetForgeAppRequest GetForgeAppResponse;
    check_delivery "CheckDelivery" CheckDeliveryRequest CheckDeliveryResponse;
    list_delivery_attempts "ListDeliveryAttempts" ListDeliveryAttemptsRequest ListDeliveryAttemptsResponse;
    repeat_delivery_attempt "RepeatDeliveryAttempt" RepeatDeliveryAttemptRequest RepeatDeliveryAttemptResponse;
    get_forge_installation "GetForgeInstallation" GetForgeInstallationRequest GetForgeInstallationResponse;
    get_forge_permission "GetForgePermission" GetForgePermissionRequest GetForgePermissionResponse;
    get_forge_repository "GetForgeRepository" GetForgeRepositoryRequest GetForgeRepositoryResponse;
    acknowledge_comment "AcknowledgeComment" AcknowledgeCommentRequest AcknowledgeCommentResponse;
    put_forge_comment "PutForgeComment" PutForgeCommentRequest PutForgeCommentResponse;
    put_forge_check "PutForgeCheck" PutForgeCheckRequest PutForgeCheckResponse;
    open_forge_pull_request "OpenForgePullRequest" OpenForgePullRequestRequest OpenForgePullRequestResponse;
}

async fn put_forge_app(
    github: &Github,
    mut request: v1::PutForgeAppRequest,
) -> Result<v1::PutForgeAppResponse, Error> {
    let take = |bytes: &mut Vec<u8>| SecretBytes::of(std::mem::take(bytes));
    let (private_key, webhook_secret) = (take(&mut request.private_key), take(&mut request.webhook_secret));
    if webhook_secret.expose().trim_ascii().is_empty() {
        return Err(Error::ArgumentInvalid("the secret of the webhook is missing"));
    }
    let new = NewApp {
        app_id: request.app_id,
        api_url: url(&request.api_url),
        web_url: url(&request.web_url),
        private_key,
        webhook_secret,
        actor: std::mem::take(&mut request.actor),
    };
    Ok(v1::PutForgeAppResponse { app: Some(app(github.put_app(new).await?)) })
}

async fn get_forge_app(github: &Github, _: v1::GetForgeAppRequest) -> Result<v1::GetForgeAppResponse, Error> {
    Ok(v1::GetForgeAppResponse { app: Some(app(github.facts().await?)) })
}

async fn check_delivery(
    github: &Github,
    request: v1::CheckDeliveryRequest,
) -> Result<v1::CheckDeliveryResponse, Error> {
    github.check_delivery(&request.body, &request.signature).await?;
    Ok(v1::CheckDeliveryResponse {})
}

async fn list_delivery_attempts(
    github: &Github,
    request: v1::ListDeliveryAttemptsRequest,
) -> Result<v1::ListDeliveryAttemptsResponse, Error> {
    let (attempts, next) = github.list_attempts(&request.cursor).await?;
    let attempt = |Attempt { id, guid, at }| v1::DeliveryAttempt {
        id,
        guid,
        delivered_at_ms: u64::try_from(at.0).unwrap_or_default(),
    };
    Ok(v1::ListDeliveryAttemptsResponse {
        attempts: attempts.into_iter().map(attempt).collect(),
        next_cursor: next.unwrap_or_default(),
    })
}

async fn repeat_delivery_attempt(
    github: &Github,
    request: v1::RepeatDeliveryAttemptRequest,
) -> Result<v1::RepeatDeliveryAttemptResponse, Error> {
    github.repeat_attempt(request.attempt_id).await?;
    Ok(v1::RepeatDeliveryAttemptResponse {})
}

async fn get_forge_installation(
    github: &Github,
    request: v1::GetForgeInstallationRequest,
) -> Result<v1::GetForgeInstallationResponse, Error> {
    let found = github.get_installation(request.installation_id).await?;
    Ok(v1::GetForgeInstallationResponse { account: found.account, is_suspended: found.is_suspended })
}

async fn get_forge_permission(
    github: &Github,
    request: v1::GetForgePermissionRequest,
) -> Result<v1::GetForgePermissionResponse, Error> {
    let permission = github.get_permission(&repository(request.repository)?, &request.login).await?;
    Ok(v1::GetForgePermissionResponse { permission: permission.as_str().to_owned() })
}

async fn get_forge_repository(
    github: &Github,
    request: v1::GetForgeRepositoryRequest,
) -> Result<v1::GetForgeRepositoryResponse, Error> {
    let pull_request = Some(request.pull_request).filter(|number| *number != 0);
    let found = github.get_repository(&repository(request.repository)?, pull_request).await?;
    let FoundRepository { name, default_branch, clone_url, is_private, pull_request } = found;
    let pull_request = pull_request.map(|found| v1::ForgePullRequest {
        number: found.number,
        state: found.state,
        head_branch: found.head_branch,
        head_commit: found.head_commit,
        head_repository_id: found.head_repository.unwrap_or_default(),
        base_branch: found.base_branch,
    });
    Ok(v1::GetForgeRepositoryResponse { name, default_branch, clone_url, is_private, pull_request })
}

async fn acknowledge_comment(
    github: &Github,
    request: v1::AcknowledgeCommentRequest,
) -> Result<v1::AcknowledgeCommentResponse, Error> {
    let comment = request.comment.unwrap_or_default();
    let place = match comment.kind() {
        v1::ForgeCommentKind::Body => CommentPlace::Body(comment.id),
        v1::ForgeCommentKind::Comment => CommentPlace::Comment(comment.id),
        v1::ForgeCommentKind::Line => CommentPlace::Line(comment.id),
        v1::ForgeCommentKind::Unspecified => {
            return Err(Error::ArgumentInvalid("the kind of the comment is missing"));
        }
    };
    github.acknowledge(&repository(request.repository)?, place).await?;
    Ok(v1::AcknowledgeCommentResponse {})
}

async fn put_forge_comment(
    github: &Github,
    request: v1::PutForgeCommentRequest,
) -> Result<v1::PutForgeCommentResponse, Error> {
    let v1::PutForgeCommentRequest { number, comment_id, mark, text, .. } = &request;
    if text.len() > COMMENT_BYTES_MAX || mark.is_empty() || !text.contains(mark) {
        return Err(Error::ArgumentInvalid("the comment is too long, or its mark is not in it"));
    }
    let id = Some(*comment_id).filter(|id| *id != 0);
    let wanted = WantedComment { number: *number, id, mark, text };
    let comment_id = github.put_comment(&repository(request.repository.clone())?, wanted).await?;
    Ok(v1::PutForgeCommentResponse { comment_id })
}

async fn put_forge_check(
    github: &Github,
    request: v1::PutForgeCheckRequest,
) -> Result<v1::PutForgeCheckResponse, Error> {
    let state = match request.state() {
        v1::ForgeCheckState::InProgress => CheckState::InProgress,
        v1::ForgeCheckState::Success => CheckState::Success,
        v1::ForgeCheckState::Failure => CheckState::Failure,
        v1::ForgeCheckState::Neutral => CheckState::Neutral,
        v1::ForgeCheckState::ActionRequired => CheckState::ActionRequired,
        v1::ForgeCheckState::Unspecified => {
            return Err(Error::ArgumentInvalid("the state of the check is missing"));
        }
    };
    let v1::PutForgeCheckRequest { repository: place, check_id, name, commit, title, external_id, .. } =
        request;
    if !domain::text::is_object_id(&commit) {
        return Err(Error::ArgumentInvalid("the commit is no name of an object"));
    }
    let id = Some(check_id).filter(|id| *id != 0);
    let wanted =
        WantedCheck { id, name: &name, commit: &commit, state, title: &title, external_id: &external_id };
    let check_id = github.put_check(&repository(place)?, wanted).await?;
    Ok(v1::PutForgeCheckResponse { check_id })
}

async fn open_forge_pull_request(
    github: &Github,
    request: v1::OpenForgePullRequestRequest,
) -> Result<v1::OpenForgePullRequestResponse, Error> {
    let v1::OpenForgePullRequestRequest { repository: place, head, base, title, body, is_draft } = request;
    let wanted = WantedPullRequest { head: &head, base: &base, title: &title, body: &body, is_draft };
    let number = github.open_pull_request(&repository(place)?, wanted).await?;
    Ok(v1::OpenForgePullRequestResponse { number })
}

fn repository(repository: Option<v1::ForgeRepository>) -> Result<Repository, Error> {
    let v1::ForgeRepository { tenant_id, installation_id, repository_id, name } =
        repository.unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_plain);
    let is_name = name.len() <= NAME_BYTES_MAX
        && name.split_once('/').is_some_and(|(owner, name)| is_part(owner) && is_part(name));
    if !is_name {
        return Err(Error::ArgumentInvalid("the repository has no such name"));
    }
    Ok(Repository { tenant: tenant(&tenant_id)?, installation: installation_id, id: repository_id, name })
}

fn app(app: ForgeApp) -> v1::ForgeApp {
    let ForgeApp { app_id, slug, api_url, web_url } = app;
    v1::ForgeApp { app_id, slug, api_url, web_url }
}

/// A URL without a slash at its end.
fn url(text: &str) -> String {
    text.trim().trim_end_matches('/').to_owned()
}
