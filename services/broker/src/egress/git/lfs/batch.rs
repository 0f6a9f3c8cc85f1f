//! Asks the server of a repository which objects of Git LFS it gives or takes, and where.

use crate::{
    body::{self, BodyError},
    egress::git::{
        refusal::GitRefusal,
        servers::{GitServers, Message},
    },
};
use domain::{
    egress::{
        git::GitAddress,
        lfs::{
            batch::{
                LFS_BATCH, LFS_OBJECTS_PATH, LFS_TYPE, LfsBatch, LfsBatchAnswer, LfsResult, LfsUploadResult,
            },
            pointer::LfsPointer,
        },
    },
    ids::TenantId,
    secret::SecretName,
};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};

/// Bytes of an answer: a hundred objects, each with a URL that is signed and with headers. Beyond it: `git_failed`.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// What a host does that answers something else.
const NO_SERVER: &str = "does not answer as a server of Git LFS";

/// What is asked, and with which credential.
#[derive(Debug)]
pub(crate) struct LfsQuestion<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) repository: &'a GitAddress,
    /// What opens it; `None`: it is public.
    pub(crate) login: Option<LfsLogin<'a>>,
    /// At most [`domain::egress::lfs::batch::LFS_BATCH_OBJECTS_MAX`].
    pub(crate) pointers: &'a [LfsPointer],
}

/// What opens a repository.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LfsLogin<'a> {
    pub(crate) secret: &'a SecretName,
    /// It does not print.
    pub(crate) authorization: &'a HeaderValue,
}

impl LfsQuestion<'_> {
    /// Asks the server where it gives the objects, and returns what it says about each of them, in their order.
    ///
    /// # Errors
    /// `LfsUnsupported`, `LfsLogin`, `Unauthorized`, `RateLimited`, `Busy`, `Failed`, `Unreachable`, those of the look-up.
    pub(crate) async fn ask(&self, servers: &GitServers) -> Result<Vec<LfsResult>, GitRefusal> {
        let answer = self.send(servers, &LfsBatch::download(self.pointers)).await?;
        answer.results(self.pointers).ok_or_else(|| self.no_server())
    }

    /// Asks the server where it takes the objects. Those that it has need no upload.
    ///
    /// # Errors
    /// Those of [`Self::ask`].
    pub(crate) async fn ask_upload(&self, servers: &GitServers) -> Result<Vec<LfsUploadResult>, GitRefusal> {
        let answer = self.send(servers, &LfsBatch::upload(self.pointers)).await?;
        answer.upload_results(self.pointers).ok_or_else(|| self.no_server())
    }

    async fn send(&self, servers: &GitServers, batch: &LfsBatch) -> Result<LfsBatchAnswer, GitRefusal> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(LFS_TYPE));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(LFS_TYPE));
        headers.extend(self.login.map(|login| (AUTHORIZATION, login.authorization.clone())));
        let target = format!("{LFS_OBJECTS_PATH}{LFS_BATCH}");
        let message = Message { headers, body: batch.to_text() };
        let response = servers.post(self.tenant, self.repository, &target, message).await?;
        self.judge(&response)?;
        let mut text = vec![];
        body::read(response, ANSWER_BYTES_MAX, &mut text).await.map_err(|error| match error {
            BodyError::TooLong => self.failed("answers more about Git LFS than is read"),
            BodyError::Broken(_) => self.failed("broke off an answer about Git LFS"),
        })?;
        LfsBatchAnswer::parse(&text).ok_or_else(|| self.no_server())
    }

    /// The refusal of a host that does not speak Git LFS. That of a public repository need not: its files then stay pointers.
    fn no_server(&self) -> GitRefusal {
        match self.login {
            Some(_) => self.failed(NO_SERVER),
            None => GitRefusal::LfsUnsupported(self.repository.authority()),
        }
    }

    fn failed(&self, reason: &str) -> GitRefusal {
        GitRefusal::Failed { host: self.repository.authority(), reason: reason.to_owned() }
    }

    fn judge(&self, response: &Response) -> Result<(), GitRefusal> {
        let host = self.repository.authority();
        match response.status() {
            StatusCode::OK => Ok(()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(match self.login {
                Some(login) => GitRefusal::Unauthorized { host, secret: login.secret.clone() },
                None => GitRefusal::LfsLogin(host),
            }),
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::GONE
            | StatusCode::NOT_IMPLEMENTED => Err(GitRefusal::LfsUnsupported(host)),
            StatusCode::TOO_MANY_REQUESTS => Err(busy(host, response)),
            status if self.login.is_none() && !status.is_server_error() => {
                Err(GitRefusal::LfsUnsupported(host))
            }
            status if status.is_redirection() => {
                let reason = "redirects requests of Git LFS to another place".to_owned();
                Err(GitRefusal::Failed { host, reason })
            }
            status => {
                let reason = format!("answered {} to a request of Git LFS", status.as_u16());
                Err(GitRefusal::Failed { host, reason })
            }
        }
    }
}

/// The refusal of a host that wants fewer requests.
pub(super) fn busy(host: String, response: &Response) -> GitRefusal {
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    match seconds {
        Some(seconds) => GitRefusal::RateLimited { host, seconds },
        None => GitRefusal::Busy(host),
    }
}
