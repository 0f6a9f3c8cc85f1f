//! Why a connection is refused. The text tells people in the sandbox what to do.

use crate::outside::error::{NameError, UpstreamError};
use domain::egress::host::{HostName, HostNameError};
use rpc::v1::ErrorCode;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is no request of a proxy, or too long.
    #[error("this is not a valid request for a proxy: {0}")]
    Head(&'static str),
    /// A method that changes something, without TLS.
    #[error("{0} is refused: over plain http only GET and HEAD are possible; use https")]
    Method(String),
    /// The host is no name.
    #[error(transparent)]
    Host(#[from] HostNameError),
    /// Another port than the web's.
    #[error("port {0} is refused: only 443, and 80 for plain http, are possible")]
    Port(u16),
    /// A setting does not list the host.
    #[error("{host} is not allowed: {setting} does not list it; add it, or a preset that contains it")]
    NotAllowed {
        host: HostName,
        /// The name of the setting.
        setting: String,
    },
    /// No setting lists any host.
    #[error(
        "{0} is not allowed: environment.network.allow is not set in any settings; add the host to those of the project"
    )]
    NothingAllowed(HostName),
    /// The host needs the permission of a person, and has none.
    #[error("{0} needs a person's permission, for which the agent asks with its tool network")]
    NeedsPermission(HostName),
    /// No server of names knows the host.
    #[error("{0} cannot be resolved")]
    Unresolved(HostName),
    /// Too many names are looked up to look this one up.
    #[error("{0} cannot be looked up now, because too many other names are; try again")]
    Busy(HostName),
    /// The host leads into a private network.
    #[error("{0} leads to an address that is not on the public internet")]
    Private(HostName),
    /// No address of the host answers.
    #[error("{0} cannot be reached")]
    Unreachable(HostName),
    /// The upstream proxy opens no connection to the host.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The connection does not begin as TLS for this host.
    #[error("the connection to {host} is cut: {reason}")]
    Tls {
        /// The host of the request.
        host: HostName,
        reason: &'static str,
    },
    /// The session has transferred all that it may.
    #[error("this session has transferred {0} bytes, which is all that it may")]
    Quota(u64),
    /// The door is being closed: the broker stops, or the session is gone.
    #[error("the door of this session to the network is being closed")]
    Closed,
    /// Nothing was transferred for a while.
    #[error("nothing was transferred for {} s", .0.as_secs())]
    Idle(Duration),
}

impl Refusal {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Head(_) => ErrorCode::EgressRequestInvalid,
            Self::Method(_) => ErrorCode::EgressMethodRefused,
            Self::Host(_) => ErrorCode::EgressHostInvalid,
            Self::Port(_) => ErrorCode::EgressPortRefused,
            Self::NotAllowed { .. } | Self::NothingAllowed(_) => ErrorCode::EgressHostNotAllowed,
            Self::NeedsPermission(_) => ErrorCode::EgressPermissionNeeded,
            Self::Unresolved(_) => ErrorCode::EgressHostUnknown,
            Self::Busy(_) => ErrorCode::EgressBusy,
            Self::Private(_) => ErrorCode::EgressAddressPrivate,
            Self::Unreachable(_) => ErrorCode::EgressUnreachable,
            Self::Upstream(_) => ErrorCode::EgressUpstreamFailed,
            Self::Tls { .. } => ErrorCode::EgressTlsInvalid,
            Self::Quota(_) => ErrorCode::EgressQuotaUsedUp,
            Self::Closed => ErrorCode::EgressClosed,
            Self::Idle(_) => ErrorCode::EgressIdle,
        }
    }

    /// The status that HTTP has for it.
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::Head(_) | Self::Host(_) => "400 Bad Request",
            Self::Method(_) => "405 Method Not Allowed",
            Self::Port(_)
            | Self::NotAllowed { .. }
            | Self::NothingAllowed(_)
            | Self::NeedsPermission(_)
            | Self::Private(_)
            | Self::Tls { .. } => "403 Forbidden",
            Self::Unresolved(_) | Self::Unreachable(_) | Self::Upstream(_) => "502 Bad Gateway",
            // Programs repeat 429; nothing would become better.
            Self::Quota(_) => "403 Forbidden",
            Self::Closed | Self::Busy(_) => "503 Service Unavailable",
            Self::Idle(_) => "504 Gateway Timeout",
        }
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Unresolved(host) => Self::Unresolved(host),
            NameError::Busy(host) => Self::Busy(host),
            NameError::Private(host) => Self::Private(host),
        }
    }
}
