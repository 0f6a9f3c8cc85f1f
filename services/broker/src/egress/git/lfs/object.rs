//! Reads the content of an object where the server of its repository says that it is. The place is foreign content: it may be at any host of the public
//! internet, and gets the credential of the settings only if it is below the same prefix as the repository.

use super::{
    batch::{LfsQuestion, busy},
    place::ObjectPlace,
};
use crate::egress::git::{link::Link, refusal::GitRefusal, rules::GitAccess, servers::GitServers};
use domain::egress::lfs::batch::LfsPlace;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, LOCATION};
use reqwest::{Response, StatusCode};

/// Redirects of one object: from a server to its store, and from there to another region. Beyond it: `git_lfs_link_refused`.
const REDIRECTS_MAX: usize = 3;

/// An object that a server gives.
#[derive(Debug)]
pub(super) struct ObjectRead<'a> {
    /// How the server was asked, for this object alone.
    pub(super) question: &'a LfsQuestion<'a>,
    pub(super) access: &'a GitAccess,
    pub(super) place: LfsPlace,
}

impl ObjectRead<'_> {
    /// Begins to read the object. Returns the answer of the host that has it, with the name of this host.
    ///
    /// # Errors
    /// `LfsLink`, `LfsMissing`, `LfsLogin`, `LfsObject`, `RateLimited`, `Busy`, `Failed`, `Unreachable`, those of the look-up.
    pub(super) async fn open(&self, servers: &GitServers) -> Result<(String, Response), GitRefusal> {
        let own = self.question.repository.authority();
        let refused = |reason| GitRefusal::LfsLink { host: own.clone(), reason };
        let ObjectPlace { mut link, headers: mut given, needs_credential } =
            ObjectPlace::parse(&self.place).map_err(refused)?;
        for _ in 0..=REDIRECTS_MAX {
            let mut headers = given.clone();
            let login = self.question.login.filter(|_| needs_credential && self.is_own(&link));
            headers.extend(login.map(|login| (AUTHORIZATION, login.authorization.clone())));
            let response = servers.get(self.question.tenant, &link, headers).await?;
            if !response.status().is_redirection() {
                self.judge(&link, &response)?;
                return Ok((link.host().to_string(), response));
            }
            let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            let next = link.join(location.ok_or_else(|| refused("it redirects to nowhere"))?);
            let next = next.map_err(refused)?;
            if !next.is_at_host_of(&link) {
                // They are for the host that the server named.
                given = HeaderMap::new();
            }
            link = next;
        }
        Err(refused("it redirects too often"))
    }

    /// Whether the place is opened by the same prefix and the same secret as the repository.
    fn is_own(&self, link: &Link) -> bool {
        let opens = self.access.find(self.question.repository);
        let address = link.address();
        let opens_link = address.as_ref().and_then(|address| self.access.find(address));
        opens.is_some() && opens == opens_link
    }

    fn judge(&self, link: &Link, response: &Response) -> Result<(), GitRefusal> {
        let host = link.authority();
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(GitRefusal::LfsMissing(host)),
            StatusCode::TOO_MANY_REQUESTS => return Err(busy(host, response)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if self.question.login.is_none() => {
                return Err(GitRefusal::LfsLogin(host));
            }
            status => {
                let reason = format!("answered {} to a request for an object of Git LFS", status.as_u16());
                return Err(GitRefusal::Failed { host, reason });
            }
        }
        let size = self.question.pointers.first().map(|pointer| pointer.size());
        let length: Option<u64> =
            response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        match (length, size) {
            (Some(length), Some(size)) if length != size => {
                let reason = format!("has {length} bytes, and its pointer names {size}");
                Err(GitRefusal::LfsObject { host, reason })
            }
            _ => Ok(()),
        }
    }
}
