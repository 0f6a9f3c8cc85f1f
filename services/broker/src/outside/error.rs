//! Why there is no way to a host, or the upstream proxy opens no connection. The texts name the proxy, and never its login.

use domain::egress::host::HostName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// There is no connection to the proxy itself.
    #[error(
        "the upstream proxy {proxy} cannot be reached: {reason}; the operator names it with FLOTILLA_BROKER_UPSTREAM_PROXY"
    )]
    Unreachable { proxy: String, reason: String },
    /// The proxy does not take the login, or wants one.
    #[error(
        "the upstream proxy {proxy} refuses the login of the broker (407); the operator sets it in FLOTILLA_BROKER_UPSTREAM_PROXY_FILE or FLOTILLA_BROKER_UPSTREAM_PROXY"
    )]
    Login { proxy: String },
    /// The proxy does not connect to the host.
    #[error("the upstream proxy {proxy} does not connect to this host: {reason}")]
    Refused { proxy: String, reason: String },
    /// Neither the proxy nor the host answers.
    #[error("the upstream proxy {proxy} opens no connection to this host in time")]
    Silent { proxy: String },
}

/// Why there is no way to a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No server of names knows the host.
    #[error("{0} cannot be resolved")]
    Unresolved(HostName),
    /// Too many names are looked up to look this one up.
    #[error("{0} cannot be looked up now, because too many other names are; try again")]
    Busy(HostName),
    /// The host leads into a private network.
    #[error("{0} leads to an address that is not on the public internet")]
    Private(HostName),
}
