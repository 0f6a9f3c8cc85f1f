//! The servers of git, over TLS and at addresses that were checked.

use super::{
    credential::GitCredentials,
    link::Link,
    refusal::GitRefusal,
    request::Action,
    upload_body::{SendFailure, UploadBody},
};
use crate::{
    cause::innermost,
    egress::refusal::Refusal,
    outside::{
        client::OutsideClient,
        names::{AllowedAddresses, CheckedNames, Names},
        proxy::UpstreamProxy,
        route::Route,
    },
};
use domain::{egress::git::GitAddress, ids::TenantId, secret::SecretName};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, HeaderValue, LOCATION, TRANSFER_ENCODING, USER_AGENT,
};
use reqwest::{Body, Certificate, ClientBuilder, RequestBuilder, Response, StatusCode, Url};
use std::sync::Arc;

/// What of a request reaches the server. Everything else is between git and this door.
const FORWARDED: [HeaderName; 7] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    USER_AGENT,
    HeaderName::from_static("git-protocol"),
];
/// Characters of another URL that a refusal shows.
const SHOWN_CHARS_MAX: usize = 300;

/// The clients of all servers.
#[derive(Debug)]
pub struct GitServers {
    pub(crate) credentials: GitCredentials,
    names: Arc<Names>,
    http: OutsideClient,
    /// The same without a limit on silence; [`UploadBody`] has one.
    uploads: OutsideClient,
}

/// The body of a request to a server of git.
#[derive(Debug)]
pub(crate) enum GitBody {
    Message(Body),
    Upload(UploadBody),
}

/// A request that is to be sent.
#[derive(Debug)]
pub(crate) struct GitQuestion<'a> {
    pub(crate) repository: &'a GitAddress,
    pub(crate) action: Action,
    /// As the client sent them.
    pub(crate) headers: &'a HeaderMap,
    /// The secret that opens it.
    pub(crate) secret: &'a SecretName,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl GitServers {
    /// The clients, which trust these authorities in addition to those of this machine.
    ///
    /// # Errors
    /// The certificates of this system cannot be used.
    pub fn new(
        credentials: GitCredentials,
        names: Arc<Names>,
        authorities: &[Certificate],
    ) -> Result<Self, reqwest::Error> {
        // A pack must arrive as the server sends it. No connection is kept: one that was opened with the credential of one tenant must not serve another.
        let prepare = |builder: ClientBuilder| {
            let builder = builder.no_gzip().http1_only().https_only(true).pool_max_idle_per_host(0);
            builder.tls_certs_merge(authorities.iter().cloned())
        };
        let check = |builder: ClientBuilder| {
            builder.dns_resolver(Arc::new(CheckedNames::new(Arc::clone(&names), AllowedAddresses::Opened)))
        };
        let upstream = names.upstream();
        let http = OutsideClient::new(upstream, || prepare(chassis::http::builder()), check)?;
        let uploads = OutsideClient::new(upstream, || prepare(chassis::http::upload_builder()), check)?;
        Ok(Self { credentials, names, http, uploads })
    }

    /// Asks a server, and gives its answer if it is one of git.
    ///
    /// # Errors
    /// Those of the look-up and of the server.
    pub(crate) async fn ask(
        &self,
        tenant: TenantId,
        question: &GitQuestion<'_>,
        authorization: HeaderValue,
        body: GitBody,
    ) -> Result<Response, GitRefusal> {
        let GitQuestion { repository, action, headers, .. } = *question;
        // The client goes this way alone.
        let route =
            self.names.find(tenant, repository.host(), repository.port()).await.map_err(Refusal::from)?;
        let upstream = route.upstream();
        let (http, uploads) = (self.http.by(upstream), self.uploads.by(upstream));
        let url = self.url(repository, action.target())?;
        let mut sent: HeaderMap = HeaderMap::new();
        for name in FORWARDED {
            sent.extend(headers.get(&name).map(|value| (name, value.clone())));
        }
        match action {
            // Whatever a client sends with it is not for the server.
            Action::Refs | Action::PushRefs => {
                remove(&mut sent, &[CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE])
            }
            // The pieces say how long the body is. Two lengths could be read in two ways.
            Action::Pack | Action::Push if headers.contains_key(TRANSFER_ENCODING) => {
                remove(&mut sent, &[CONTENT_LENGTH])
            }
            Action::Pack | Action::Push => {}
        }
        let host = HeaderValue::from_str(&repository.authority());
        sent.extend(host.ok().map(|host| (HOST, host)));
        sent.insert(AUTHORIZATION, authorization);
        let answer = match (action, body) {
            (Action::Refs | Action::PushRefs, _) => {
                http.get(url).headers(sent).send().await.map_err(SendFailure::Http)
            }
            (Action::Pack | Action::Push, GitBody::Message(body)) => {
                http.post(url).headers(sent).body(body).send().await.map_err(SendFailure::Http)
            }
            (Action::Pack | Action::Push, GitBody::Upload(body)) => {
                body.send(uploads.post(url).headers(sent)).await
            }
        };
        let response = answer.map_err(|failure| unreachable(&repository.authority(), upstream, failure))?;
        judge(question, &response).map_or(Ok(response), Err)
    }

    /// Sends a message to the server of a repository, and gives whatever it answers. `target` stands behind the path of the repository.
    ///
    /// # Errors
    /// Those of the look-up, `Unreachable`.
    pub(super) async fn post(
        &self,
        tenant: TenantId,
        repository: &GitAddress,
        target: &str,
        message: Message,
    ) -> Result<Response, GitRefusal> {
        let route =
            self.names.find(tenant, repository.host(), repository.port()).await.map_err(Refusal::from)?;
        let url = self.url(repository, target)?;
        let host = repository.authority();
        let mut headers = message.headers;
        headers.extend(HeaderValue::from_str(&host).ok().map(|host| (HOST, host)));
        let http = self.http.by(route.upstream());
        let sent = http.post(url).headers(headers).body(message.body).send().await;
        sent.map_err(|error| unreachable(&host, route.upstream(), error))
    }

    /// Reads a URL, and gives whatever its host answers.
    ///
    /// # Errors
    /// Those of the look-up, `Unreachable`.
    pub(super) async fn get(
        &self,
        tenant: TenantId,
        link: &Link,
        headers: HeaderMap,
    ) -> Result<Response, GitRefusal> {
        let route = self.check(tenant, link).await?;
        let request = self.http.by(route.upstream()).get(self.place(link)).headers(headers);
        reach(link, &route, request).await
    }

    /// Sends a content to a URL, and gives whatever its host answers.
    ///
    /// # Errors
    /// Those of the look-up, `Unreachable`.
    pub(super) async fn put(
        &self,
        tenant: TenantId,
        link: &Link,
        headers: HeaderMap,
        content: UploadBody,
    ) -> Result<Response, GitRefusal> {
        let route = self.check(tenant, link).await?;
        let uploads = self.uploads.by(route.upstream());
        let request = uploads.put(self.place(link)).headers(headers).header(HOST, link.authority());
        let sent = content.send(request).await;
        sent.map_err(|failure| unreachable(&link.authority(), route.upstream(), failure))
    }

    /// Sends a message to a URL, and gives whatever its host answers.
    ///
    /// # Errors
    /// Those of the look-up, `Unreachable`.
    pub(super) async fn post_to(
        &self,
        tenant: TenantId,
        link: &Link,
        message: Message,
    ) -> Result<Response, GitRefusal> {
        let Message { headers, body } = message;
        let route = self.check(tenant, link).await?;
        let request = self.http.by(route.upstream()).post(self.place(link)).headers(headers).body(body);
        reach(link, &route, request).await
    }

    /// Looks up the host of a link. The client goes the way that this finds alone.
    async fn check(&self, tenant: TenantId, link: &Link) -> Result<Route, GitRefusal> {
        Ok(self.names.find(tenant, link.host(), link.port()).await.map_err(Refusal::from)?)
    }

    /// The URL of a link, without its port if the operator gives an address with a port to the host.
    fn place(&self, link: &Link) -> Url {
        let mut url = link.url().clone();
        if self.names.is_fixed(link.host()) {
            // An error means that a URL of this scheme has no port.
            let _ = url.set_port(None);
        }
        url
    }

    /// The URL as it was checked. The address that the operator gives to a host has a port of its own, which counts only without one in the URL.
    fn url(&self, repository: &GitAddress, target: &str) -> Result<Url, GitRefusal> {
        let (host, path) = (repository.host(), repository.path());
        let authority = if self.names.is_fixed(host) { host.to_string() } else { repository.authority() };
        let text = format!("https://{authority}{path}{target}");
        // Another spelling would be another repository than the one that was checked.
        let url = Url::parse(&text).ok().filter(|url| url.as_str() == text);
        url.ok_or_else(|| GitRefusal::Failed {
            host: repository.authority(),
            reason: "has no such URL".to_owned(),
        })
    }
}

/// Sends a request to the host of a link, on the way that was found.
async fn reach(link: &Link, route: &Route, request: RequestBuilder) -> Result<Response, GitRefusal> {
    let sent = request.header(HOST, link.authority()).send().await;
    sent.map_err(|error| unreachable(&link.authority(), route.upstream(), error))
}

fn remove(headers: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}

/// Why an answer is none that git may see; `None`: it may.
fn judge(question: &GitQuestion<'_>, response: &Response) -> Option<GitRefusal> {
    let GitQuestion { repository, action, secret, .. } = question;
    let (host, secret) = (repository.authority(), (*secret).clone());
    match response.status() {
        StatusCode::OK => {
            let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            let is_git = content_type == Some(action.content_type().as_bytes());
            let reason = "does not answer as a server of git with the smart protocol".to_owned();
            (!is_git).then_some(GitRefusal::Failed { host, reason })
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(GitRefusal::Unauthorized { host, secret }),
        StatusCode::NOT_FOUND => Some(GitRefusal::NotFound { host, secret }),
        StatusCode::TOO_MANY_REQUESTS => Some(GitRefusal::Busy(host)),
        status if status.is_redirection() => Some(GitRefusal::Redirected { host, to: target(response) }),
        status => Some(GitRefusal::Failed { host, reason: format!("answered {}", status.as_u16()) }),
    }
}

/// Where a server redirects to: the URL of the repository, without what may be a signature.
fn target(response: &Response) -> String {
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let Some(mut url) = location.and_then(|location| response.url().join(location).ok()) else {
        return "another place".to_owned();
    };
    url.set_query(None);
    url.set_fragment(None);
    // An error means that such a URL has none.
    let _ = (url.set_username(""), url.set_password(None));
    let text = url.as_str();
    text.strip_suffix("/info/refs").unwrap_or(text).chars().take(SHOWN_CHARS_MAX).collect()
}

/// Why a server, or the upstream proxy on the way to it, gives no answer.
fn unreachable(host: &str, upstream: Option<&UpstreamProxy>, failure: impl Into<SendFailure>) -> GitRefusal {
    let late = || "it does not answer in time".to_owned();
    let reason = match failure.into() {
        SendFailure::Silence => late(),
        SendFailure::Http(error) => match upstream.and_then(|proxy| proxy.explain(&error)) {
            Some(cause) => cause.to_string(),
            None if error.is_timeout() => late(),
            None => with_certificate_advice(innermost(&error)),
        },
    };
    GitRefusal::Unreachable { host: host.to_owned(), reason }
}

/// The reason of a failed connection. If the certificate is what is wrong, it says what the operator can do.
fn with_certificate_advice(reason: String) -> String {
    let what = if reason.contains("CaUsedAsEndEntity") {
        "its certificate is that of a CA, and a server needs one of its own that the CA has signed"
    } else if reason.contains("UnknownIssuer") {
        "its certificate is signed by no CA that the broker knows"
    } else {
        return reason;
    };
    format!("{what}; the operator names the CA in FLOTILLA_BROKER_GIT_CA")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_certificate_says_what_the_operator_can_do() {
        let peer = |problem: &str| with_certificate_advice(format!("invalid peer certificate: {problem}"));
        for (problem, want) in [
            ("Other(OtherError(CaUsedAsEndEntity))", "that of a CA"),
            ("UnknownIssuer", "no CA that the broker knows"),
        ] {
            let told = peer(problem);
            assert!(told.contains(want) && told.contains("FLOTILLA_BROKER_GIT_CA"), "{told}");
            assert!(!told.contains("OtherError"), "{told}");
        }
        assert_eq!(peer("Expired"), "invalid peer certificate: Expired");
    }
}
