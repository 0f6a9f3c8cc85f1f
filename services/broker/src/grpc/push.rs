//! The call that pushes.

use super::ids::{project, tenant};
use crate::{
    error::Error,
    push::{
        error::PushError,
        pusher::{Pushes, Receipt},
        request::{ObjectId, PushRequest, PushRule},
    },
};
use domain::egress::push::paths::{DENIED_PATTERNS_MAX, DeniedPaths, is_pattern};
use futures::{Stream, stream};
use rpc::v1::{self, push_request::Part};
use tonic::Streaming;

/// Reads the first message.
///
/// # Errors
/// `ArgumentInvalid`.
pub(super) async fn header(messages: &mut Streaming<v1::PushRequest>) -> Result<v1::PushHeader, Error> {
    match messages.message().await.ok().flatten().and_then(|message| message.part) {
        Some(Part::Header(header)) => Ok(header),
        Some(Part::Data(_)) | None => Err(Error::ArgumentInvalid("the first message is no header")),
    }
}

/// Pushes what the other messages bring.
pub(super) async fn push(
    pushes: &Pushes,
    header: v1::PushHeader,
    messages: Streaming<v1::PushRequest>,
) -> Result<v1::PushResponse, Error> {
    let pusher = pushes.as_ref().map_err(|reason| PushError::Unavailable(reason.clone()))?;
    let request = parse(header)?;
    let Receipt { url, branch, commit, commits, files, message } =
        pusher.push(request, Box::pin(pieces(messages))).await?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(v1::PushResponse {
        url,
        branch,
        commit: commit.to_string(),
        commits: count(commits),
        files: count(files),
        remote_message: message,
    })
}

fn parse(header: v1::PushHeader) -> Result<PushRequest, Error> {
    let v1::PushHeader { tenant_id, project_id, session_id, url, rule, branch, commit, base_commit } = header;
    let v1::PushRule { url_prefix, secret, branch_prefix, denied_paths } = rule.unwrap_or_default();
    let session = session_id.parse().map_err(|_| Error::ArgumentInvalid("the session's id is malformed"))?;
    let rule = PushRule { url_prefix: &url_prefix, branch_prefix: &branch_prefix };
    let repository =
        rule.repository(&url).ok_or(Error::ArgumentInvalid("the rule does not cover the URL"))?;
    if denied_paths.len() > DENIED_PATTERNS_MAX || !denied_paths.iter().all(|pattern| is_pattern(pattern)) {
        return Err(Error::ArgumentInvalid("a pattern of denied paths is none, or there are too many"));
    }
    let branch = rule.branch(&branch, &session)?;
    let id =
        |text: &str| ObjectId::parse(text).ok_or(Error::ArgumentInvalid("a commit is no name of an object"));
    let (commit, base) = (id(&commit)?, id(&base_commit)?);
    if commit.format() != base.format() {
        return Err(Error::ArgumentInvalid("the commits have different formats"));
    }
    if commit == base {
        return Err(PushError::Nothing.into());
    }
    Ok(PushRequest {
        tenant: tenant(&tenant_id)?,
        project: project(&project_id)?,
        session,
        repository,
        secret: secret.parse()?,
        denied: DeniedPaths::with(denied_paths),
        branch,
        commit,
        base,
    })
}

/// The bytes of the bundle. `None`: they end too early.
fn pieces(messages: Streaming<v1::PushRequest>) -> impl Stream<Item = Option<Vec<u8>>> + Send + 'static {
    stream::unfold(Some(messages), |messages| async {
        let mut messages = messages?;
        match messages.message().await {
            Ok(None) => None,
            Ok(Some(v1::PushRequest { part: Some(Part::Data(data)) })) => Some((Some(data), Some(messages))),
            Ok(Some(_)) | Err(_) => Some((None, None)),
        }
    })
}
