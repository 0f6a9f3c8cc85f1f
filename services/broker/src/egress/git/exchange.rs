//! One request of git and its answer, as they pass through the door.

use super::{
    credential::{GitCredential, RepositoryUse},
    refusal::GitRefusal,
    request::{self, GitRequest},
    rules::GitAccess,
    servers::{GitBody, GitQuestion, GitServers},
};
use crate::{
    egress::{
        journal::{CredentialUse, Journal, JournalRecord},
        key::DoorKey,
        relay::Relay,
    },
    forge::github::GitUse,
};
use bytes::Bytes;
use domain::{egress::git::GitAddress, secret::SecretName};
use futures::stream;
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
    header::{
        CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPIRES, HeaderName, HeaderValue,
        PRAGMA,
    },
};
use reqwest::Body;
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
};

/// Bytes of a request: what git has and wants of a repository with some hundred thousand branches. Beyond it: `git_request_too_large`.
const REQUEST_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The setting that names the secrets.
const SETTING: &str = "environment.git.credentials";
/// What of an answer git gets. Without its length: a transfer is complete when its last piece has come.
const RETURNED: [HeaderName; 5] = [CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, EXPIRES, PRAGMA];

pub(super) struct ExchangeContext {
    pub(super) key: DoorKey,
    pub(super) access: Arc<GitAccess>,
    pub(super) servers: Arc<GitServers>,
    pub(super) relay: Arc<Relay>,
    pub(super) journal: Arc<Journal>,
}

/// What opens a repository for one request.
pub(super) struct OpenedRepository {
    pub(super) secret: SecretName,
    /// It does not print.
    pub(super) authorization: HeaderValue,
}

impl ExchangeContext {
    /// Opens the secret that the settings name for a repository, and notes its use.
    ///
    /// # Errors
    /// `NoPrefix`, `Quota`, `Secret`.
    pub(super) async fn open(
        &self,
        repository: &GitAddress,
        record: &mut JournalRecord,
    ) -> Result<OpenedRepository, GitRefusal> {
        self.note_host(repository, record);
        let Self { key, access, servers, .. } = self;
        let found = access.find(repository).ok_or_else(|| GitRefusal::NoPrefix(repository.to_string()));
        let (prefix, secret) = found?;
        self.check_quota()?;
        let at = RepositoryUse { setting: SETTING, repository, git_use: GitUse::Read };
        let opened = servers.credentials.open(key.tenant, access.project(), secret, at).await;
        let GitCredential { version, authorization } = opened?;
        let secret = secret.clone();
        record.credential =
            Some(CredentialUse { prefix: prefix.to_string(), secret: secret.clone(), version });
        Ok(OpenedRepository { secret, authorization })
    }

    /// The same for the objects of Git LFS of a repository. `None`: it is the public one, which needs no secret.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub(super) async fn open_lfs(
        &self,
        repository: &GitAddress,
        record: &mut JournalRecord,
    ) -> Result<Option<OpenedRepository>, GitRefusal> {
        if !self.access.is_public(repository) {
            return self.open(repository, record).await.map(Some);
        }
        self.note_host(repository, record);
        self.check_quota().map(|()| None)
    }

    fn note_host(&self, repository: &GitAddress, record: &mut JournalRecord) {
        repository.host().as_str().clone_into(&mut record.host);
    }

    fn check_quota(&self) -> Result<(), GitRefusal> {
        if self.relay.is_used_up() { Err(GitRefusal::Quota) } else { Ok(()) }
    }
}

/// Answers one request. The rest of a long answer follows while git reads it.
pub(super) async fn answer(context: ExchangeContext, request: Request<Incoming>) -> Response<Body> {
    let ExchangeContext { key, relay, journal, .. } = &context;
    let mut record = JournalRecord::begin(key, journal, relay, GitRefusal::Interrupted.code());
    match forward(&context, request, &mut record).await {
        Ok(answer) => {
            let mut response = Response::new(Body::default());
            for name in RETURNED {
                response.headers_mut().extend(answer.headers().get(&name).map(|value| (name, value.clone())));
            }
            *response.body_mut() = download(answer, record);
            response
        }
        Err(refusal) => {
            record.code = Some(refusal.code());
            refusal.to_response()
        }
    }
}

async fn forward(
    context: &ExchangeContext,
    request: Request<Incoming>,
    record: &mut JournalRecord,
) -> Result<reqwest::Response, GitRefusal> {
    let (head, body) = request.into_parts();
    let GitRequest { repository, action } = request::parse(&head.method, &head.uri)?;
    repository.host().as_str().clone_into(&mut record.host);
    let ExchangeContext { key, servers, relay, .. } = context;
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > REQUEST_BYTES_MAX) {
        return Err(GitRefusal::TooLarge(REQUEST_BYTES_MAX));
    }
    let OpenedRepository { secret, authorization } = context.open(&repository, record).await?;
    let cause = Arc::new(OnceLock::new());
    let body = upload(body, Arc::clone(relay), Arc::clone(&cause));
    let question = GitQuestion { repository: &repository, action, headers: &head.headers, secret: &secret };
    let asked = servers.ask(key.tenant, &question, authorization, GitBody::Message(body)).await;
    // The server only saw a request that ended early.
    asked.map_err(|refusal| cause.get().cloned().unwrap_or(refusal))
}

/// The body of a request. If it ends early, `cause` says why.
fn upload(body: Incoming, relay: Arc<Relay>, cause: Arc<OnceLock<GitRefusal>>) -> Body {
    let state = (body, relay, cause, REQUEST_BYTES_MAX);
    Body::wrap_stream(stream::unfold(state, |(mut body, relay, cause, left)| async move {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await?;
        let piece = frame.map(|frame| frame.into_data().unwrap_or_default());
        let counted = match piece {
            Ok(piece) if piece.len() as u64 > left => Err(GitRefusal::TooLarge(REQUEST_BYTES_MAX)),
            Ok(piece) => relay.note(piece.len() as u64).map(|()| piece).map_err(|_| GitRefusal::Quota),
            Err(_) => Err(GitRefusal::Interrupted),
        };
        let left = left - counted.as_ref().map_or(0, |piece| piece.len() as u64);
        let piece = counted.map_err(|refusal| {
            let error = io::Error::other(refusal.to_string());
            let _ = cause.set(refusal);
            error
        });
        Some((piece, (body, relay, cause, left)))
    }))
}

/// The body of an answer. A piece beyond the quota, and an answer that breaks off, break the connection: git must not take the part for the whole.
pub(super) fn download(answer: reqwest::Response, record: JournalRecord) -> Body {
    Body::wrap_stream(stream::unfold(Some((answer, record)), |state| async move {
        let (mut answer, mut record) = state?;
        let piece: Result<Bytes, GitRefusal> = match answer.chunk().await {
            Ok(Some(piece)) => {
                record.relay.note(piece.len() as u64).map(|()| piece).map_err(|_| GitRefusal::Quota)
            }
            Ok(None) => {
                record.code = None;
                return None;
            }
            Err(_) => Err(GitRefusal::Interrupted),
        };
        match piece {
            Ok(piece) => Some((Ok(piece), Some((answer, record)))),
            Err(refusal) => {
                record.code = Some(refusal.code());
                Some((Err(io::Error::other(refusal.to_string())), None))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::egress::relay::Quota;

    /// The bytes of an answer of two pieces that git gets, and the code of the record.
    async fn transfer(quota: u64) -> (Vec<u8>, bool, String) {
        let relay = Arc::new(Relay::new(Arc::new(Quota::new(quota))));
        let tenant = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let journal = Arc::new(Journal::default());
        let key = DoorKey { tenant, session: "ses_a".parse().unwrap() };
        let record = JournalRecord::begin(&key, &journal, &relay, GitRefusal::Interrupted.code());
        let pieces = stream::iter([Ok::<_, io::Error>("01234"), Ok("56789")]);
        let answer = hyper::Response::new(Body::wrap_stream(pieces));
        let mut body = download(answer.into(), record);
        let (mut bytes, mut is_whole) = (vec![], true);
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame {
                Ok(frame) => bytes.extend(frame.into_data().unwrap()),
                Err(_) => is_whole = false,
            }
        }
        drop(body);
        (bytes, is_whole, journal.codes().concat())
    }

    #[tokio::test]
    async fn an_answer_beyond_the_quota_is_broken_and_never_looks_whole() {
        assert_eq!(transfer(100).await, (b"0123456789".to_vec(), true, String::new()));
        assert_eq!(transfer(9).await, (b"01234".to_vec(), false, "egress_quota_used_up".to_owned()));
    }
}
