//! Sends the content of an object where the server of its repository says, and tells the server that the content was sent. Only pushes do so: the door of a
//! session only reads. The place may be at any host of the public internet, and gets the credential only if it is below the repository.

use super::{
    batch::{LfsQuestion, busy},
    place::ObjectPlace,
};
use crate::egress::git::{
    file_pieces::pieces,
    link::Link,
    refusal::GitRefusal,
    servers::{GitServers, Message},
    upload_body::UploadBody,
};
use domain::egress::{
    git::GitPrefix,
    lfs::{
        batch::{LFS_TYPE, LfsPlace, LfsUpload, verification},
        pointer::LfsPointer,
    },
};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use std::path::Path;
use tokio::fs::File;

/// An object that a push sends.
#[derive(Debug)]
pub(crate) struct ObjectUpload<'a> {
    /// How the server was asked.
    pub(crate) question: &'a LfsQuestion<'a>,
    pub(crate) pointer: &'a LfsPointer,
    /// The file with the content that the pointer names.
    pub(crate) content: &'a Path,
}

/// Why an object was not sent.
#[derive(Debug)]
pub(crate) enum UploadFailure {
    /// The server does not take it; the same upload would be refused again. The text says why.
    Refused(String),
    /// The server cannot be reached, or does not answer as one of Git LFS.
    Refusal(GitRefusal),
    /// The content cannot be read.
    Io(std::io::Error),
}

impl From<GitRefusal> for UploadFailure {
    fn from(refusal: GitRefusal) -> Self {
        Self::Refusal(refusal)
    }
}

impl ObjectUpload<'_> {
    /// Sends the object.
    ///
    /// Dropped midway: the server has the whole object or nothing of it.
    pub(crate) async fn run(&self, servers: &GitServers, upload: &LfsUpload) -> Result<(), UploadFailure> {
        self.send(servers, &upload.content).await?;
        match &upload.verification {
            Some(place) => self.verify(servers, place).await,
            None => Ok(()),
        }
    }

    async fn send(&self, servers: &GitServers, place: &LfsPlace) -> Result<(), UploadFailure> {
        let (link, mut headers) = self.open(place)?;
        if !headers.contains_key(CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        }
        headers.insert(CONTENT_LENGTH, HeaderValue::from(self.pointer.size()));
        let file = File::open(self.content).await.map_err(UploadFailure::Io)?;
        let body = UploadBody::new(pieces(file));
        let response = servers.put(self.question.tenant, &link, headers, body).await?;
        judge(&link, &response)
    }

    async fn verify(&self, servers: &GitServers, place: &LfsPlace) -> Result<(), UploadFailure> {
        let (link, mut headers) = self.open(place)?;
        headers.insert(ACCEPT, HeaderValue::from_static(LFS_TYPE));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(LFS_TYPE));
        let message = Message { headers, body: verification(self.pointer) };
        let response = servers.post_to(self.question.tenant, &link, message).await?;
        judge(&link, &response)
    }

    /// Where a place is, and the headers that open it.
    fn open(&self, place: &LfsPlace) -> Result<(Link, HeaderMap), UploadFailure> {
        let LfsQuestion { repository, login, .. } = *self.question;
        let refused = |reason| GitRefusal::LfsLink { host: repository.authority(), reason };
        let ObjectPlace { link, mut headers, needs_credential } =
            ObjectPlace::parse(place).map_err(refused)?;
        let prefix = GitPrefix::parse(&format!("{repository}/")).ok();
        let is_own = prefix.zip(link.address()).is_some_and(|(prefix, address)| prefix.covers(&address));
        let login = login.filter(|_| needs_credential && is_own);
        headers.extend(login.map(|login| (AUTHORIZATION, login.authorization.clone())));
        Ok((link, headers))
    }
}

fn judge(link: &Link, response: &Response) -> Result<(), UploadFailure> {
    let host = link.authority();
    let status = response.status();
    match status {
        _ if status.is_success() => Ok(()),
        StatusCode::TOO_MANY_REQUESTS => Err(busy(host, response).into()),
        _ if status.is_server_error() => {
            let reason = format!("answered {} to an object of Git LFS", status.as_u16());
            Err(GitRefusal::Failed { host, reason }.into())
        }
        _ => Err(UploadFailure::Refused(format!("{host} answered {}", status.as_u16()))),
    }
}
