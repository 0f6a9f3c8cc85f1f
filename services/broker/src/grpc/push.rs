//! The call that pushes.

use super::ids::{project, tenant};
use crate::{
    error::Error,
    push::{
        commits::listing::ChangedFile,
        error::PushError,
        pusher::{Pushes, Receipt},
        request::{ObjectId, PushPart, PushRequest, PushRule},
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
        Some(Part::Commit(_) | Part::Data(_)) | None => {
            Err(Error::ArgumentInvalid("the first message is no header"))
        }
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
    let Receipt { url, branch, commit, commits, files, message, changes } =
        pusher.push(request, Box::pin(parts(messages))).await?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(v1::PushResponse {
        url,
        branch,
        commit: commit.to_string(),
        commits: count(commits),
        files: count(files),
        remote_message: message,
        changes: changes.into_iter().map(changed_file).collect(),
    })
}

fn changed_file(file: ChangedFile) -> v1::PushedFile {
    let ChangedFile { path, additions, deletions, is_binary, is_new, bytes } = file;
    v1::PushedFile { path, additions, deletions, is_binary, is_new, size_bytes: bytes }
}

fn parse(header: v1::PushHeader) -> Result<PushRequest, Error> {
    let v1::PushHeader { tenant_id, project_id, session_id, url, rule, branch, base_commit, is_preview } =
        header;
    let v1::PushRule { url_prefix, secret, branch_prefix, denied_paths } = rule.unwrap_or_default();
    let session = session_id.parse().map_err(|_| Error::ArgumentInvalid("the session's id is malformed"))?;
    let rule = PushRule { url_prefix: &url_prefix, branch_prefix: &branch_prefix };
    let repository =
        rule.repository(&url).ok_or(Error::ArgumentInvalid("the rule does not cover the URL"))?;
    if denied_paths.len() > DENIED_PATTERNS_MAX || !denied_paths.iter().all(|pattern| is_pattern(pattern)) {
        return Err(Error::ArgumentInvalid("a pattern of denied paths is none, or there are too many"));
    }
    let branch = rule.branch(&branch, &session)?;
    let base = ObjectId::parse(&base_commit);
    let base = base.ok_or(Error::ArgumentInvalid("the base commit is no name of an object"))?;
    Ok(PushRequest {
        tenant: tenant(&tenant_id)?,
        project: project(&project_id)?,
        session,
        repository,
        secret: secret.parse()?,
        denied: DeniedPaths::with(denied_paths),
        branch,
        base,
        is_preview,
    })
}

/// The commit and the bytes of the bundle. `None`: the caller left.
fn parts(messages: Streaming<v1::PushRequest>) -> impl Stream<Item = Option<PushPart>> + Send + 'static {
    stream::unfold(Some(messages), |messages| async {
        let mut messages = messages?;
        let part = match messages.message().await {
            Ok(None) => return None,
            Ok(Some(v1::PushRequest { part })) => part,
            Err(_) => return Some((None, None)),
        };
        Some(match part {
            Some(Part::Commit(commit)) => (Some(PushPart::Commit(commit)), Some(messages)),
            Some(Part::Data(data)) => (Some(PushPart::Data(data)), Some(messages)),
            Some(Part::Header(_)) | None => (Some(PushPart::Failed), None),
        })
    })
}
