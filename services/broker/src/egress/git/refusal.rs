//! Why a request of git is refused. Git shows the text to people, line by line after `remote:`, and the sandbox service finds the code at its end.

use super::credential::SecretRefusal;
use crate::egress::refusal::Refusal;
use domain::{egress::git::GitAddressError, secret::SecretName};
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use reqwest::Body;
use rpc::v1::ErrorCode;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GitRefusal {
    /// It is no request with which git reads a repository.
    #[error(
        "this door lets only git pass that reads a repository over its smart protocol, with git 1.6.6 or newer"
    )]
    Request,
    /// It would change a repository.
    #[error(
        "sessions cannot push by themselves: the door of a session to git only reads; leave the commits in the workspace, and export its changes from outside"
    )]
    Push,
    #[error("this is not the address of a repository: {0}")]
    Address(#[from] GitAddressError),
    /// No prefix covers the address.
    #[error(
        "{0} is below no URL of environment.git.credentials in the settings of the project; public repositories need their host in environment.network.allow"
    )]
    NoPrefix(String),
    /// The secret opens no repository.
    #[error(transparent)]
    Secret(#[from] SecretRefusal),
    /// The server refuses the credential.
    #[error(
        "{host} refuses the secret {secret} for this repository: it may have expired, or lack the right to read; set a new value with `flotilla secret set {secret}`"
    )]
    Unauthorized { host: String, secret: SecretName },
    /// The server knows no such repository, or does not show it to this credential.
    #[error("{host} has no such repository, or the secret {secret} may not read it")]
    NotFound { host: String, secret: SecretName },
    /// The server wants fewer requests.
    #[error("{0} answers that there are too many requests (429); try again later")]
    Busy(String),
    /// The same, and the server says after how many seconds it takes the next one.
    #[error("{host} answers that there are too many requests (429); try again in {seconds} s")]
    RateLimited { host: String, seconds: u64 },
    /// The broker looks up too many names to look this one up.
    #[error("{0} cannot be looked up now, because too many other names are; try again")]
    LookupsBusy(String),
    #[error("{host} redirects to {to}; use that URL, and name it in environment.git.credentials")]
    Redirected { host: String, to: String },
    /// The server does something else.
    #[error("{host} {reason}")]
    Failed { host: String, reason: String },
    /// No address of the host answers.
    #[error("{host} cannot be reached: {reason}")]
    Unreachable { host: String, reason: String },
    /// The host leads into a private network.
    #[error(
        "{0} leads to an address that is not on the public internet; the operator can open its network with FLOTILLA_BROKER_NETWORKS"
    )]
    Private(String),
    /// The server gives nothing of Git LFS without a credential, and no prefix covers the repository.
    #[error(
        "{0} gives the objects of Git LFS of this repository only with a credential; name a secret for its URL in environment.git.credentials of the settings"
    )]
    LfsLogin(String),
    /// The server does not know the batch API of Git LFS.
    #[error("{0} has no Git LFS for this repository")]
    LfsUnsupported(String),
    /// The server does not have an object of Git LFS.
    #[error("{0} does not have this object of Git LFS")]
    LfsMissing(String),
    /// The server leads to a place that no object is read from or sent to.
    #[error(
        "{host} leads to a place from which no object of Git LFS is read, and to which none is sent: {reason}"
    )]
    LfsLink { host: String, reason: &'static str },
    /// What the server sends is not what the pointer names.
    #[error("{host} sends an object of Git LFS that {reason}")]
    LfsObject { host: String, reason: String },
    /// The request is too long.
    #[error("the request has more than {0} bytes")]
    TooLarge(u64),
    /// The session has transferred all that it may.
    #[error("this session has transferred all the bytes that it may")]
    Quota,
    /// The transfer broke off: a side left, the broker stopped, or nothing was transferred for long.
    #[error("the transfer broke off")]
    Interrupted,
}

impl GitRefusal {
    /// The stable code.
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::Request => ErrorCode::GitRequestRefused,
            Self::Push => ErrorCode::GitPushRefused,
            Self::Address(_) => ErrorCode::GitAddressInvalid,
            Self::NoPrefix(_) => ErrorCode::GitPrefixMissing,
            Self::Secret(SecretRefusal::Missing { .. } | SecretRefusal::NotInstalled { .. }) => {
                ErrorCode::GitSecretMissing
            }
            Self::Secret(SecretRefusal::Invalid(_)) => ErrorCode::GitSecretInvalid,
            Self::Secret(SecretRefusal::NotFor(_)) => ErrorCode::GitSecretNotForServer,
            Self::Secret(SecretRefusal::Unavailable(_)) => ErrorCode::GitSecretUnavailable,
            Self::Unauthorized { .. } => ErrorCode::GitUnauthorized,
            Self::NotFound { .. } => ErrorCode::GitNotFound,
            Self::Busy(_) | Self::RateLimited { .. } | Self::LookupsBusy(_) => ErrorCode::GitBusy,
            Self::Redirected { .. } => ErrorCode::GitRedirected,
            Self::Failed { .. } => ErrorCode::GitFailed,
            Self::Unreachable { .. } => ErrorCode::GitUnreachable,
            Self::Private(_) => ErrorCode::GitAddressPrivate,
            Self::LfsLogin(_) => ErrorCode::GitLfsLoginRequired,
            Self::LfsUnsupported(_) => ErrorCode::GitLfsUnsupported,
            Self::LfsMissing(_) => ErrorCode::GitLfsMissing,
            Self::LfsLink { .. } => ErrorCode::GitLfsLinkRefused,
            Self::LfsObject { .. } => ErrorCode::GitLfsObjectInvalid,
            Self::TooLarge(_) => ErrorCode::GitRequestTooLarge,
            Self::Quota => ErrorCode::EgressQuotaUsedUp,
            Self::Interrupted => ErrorCode::GitInterrupted,
        }
    }

    /// The status. Never 401: git would ask a person for a password.
    fn status(&self) -> StatusCode {
        match self {
            Self::Address(_) => StatusCode::BAD_REQUEST,
            Self::NotFound { .. } | Self::LfsUnsupported(_) | Self::LfsMissing(_) => StatusCode::NOT_FOUND,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy(_)
            | Self::RateLimited { .. }
            | Self::LookupsBusy(_)
            | Self::Secret(SecretRefusal::Unavailable(_))
            | Self::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed { .. }
            | Self::Unreachable { .. }
            | Self::LfsLink { .. }
            | Self::LfsObject { .. } => StatusCode::BAD_GATEWAY,
            Self::Request
            | Self::Push
            | Self::NoPrefix(_)
            | Self::Secret(
                SecretRefusal::Missing { .. }
                | SecretRefusal::NotInstalled { .. }
                | SecretRefusal::Invalid(_)
                | SecretRefusal::NotFor(_),
            )
            | Self::Unauthorized { .. }
            | Self::LfsLogin(_)
            | Self::Redirected { .. }
            | Self::Private(_)
            | Self::Quota => StatusCode::FORBIDDEN,
        }
    }

    /// The answer that git shows.
    pub(super) fn to_response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(format!("{self} ({})\n", self.code().as_str())));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert("x-flotilla-code", HeaderValue::from_static(self.code().as_str()));
        if let Self::RateLimited { seconds, .. } = self {
            headers.insert(RETRY_AFTER, HeaderValue::from(*seconds));
        }
        response
    }
}

/// The refusals of a look-up.
impl From<Refusal> for GitRefusal {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Private(host) => Self::Private(host.to_string()),
            Refusal::Unresolved(host) => {
                Self::Unreachable { host: host.to_string(), reason: "its name cannot be resolved".to_owned() }
            }
            Refusal::Busy(host) => Self::LookupsBusy(host.to_string()),
            other => Self::Failed { host: "the server".to_owned(), reason: format!("was refused: {other}") },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::egress::host::HostName;

    #[test]
    fn a_host_without_an_open_address_is_told_with_what_helps() {
        let host = HostName::parse("git.acme.dev").unwrap();
        let private = GitRefusal::from(Refusal::Private(host.clone()));
        assert_eq!(private.code().as_str(), "git_address_private");
        assert!(
            private.to_string().contains("git.acme.dev")
                && private.to_string().contains("FLOTILLA_BROKER_NETWORKS")
        );
        for (refusal, want) in [
            (Refusal::Unresolved(host.clone()), ("git_unreachable", StatusCode::BAD_GATEWAY)),
            (Refusal::Busy(host), ("git_busy", StatusCode::SERVICE_UNAVAILABLE)),
        ] {
            let refusal = GitRefusal::from(refusal);
            assert_eq!((refusal.code().as_str(), refusal.status()), want);
        }
    }
}
