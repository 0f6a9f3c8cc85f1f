//! The hosts that a service reaches without the proxy of the operator's network, in the part of the syntax of `NO_PROXY` that all programs read alike.

use super::Network;
use std::{net::IpAddr, str::FromStr};

/// A host, all hosts below a name, or a network: `git.acme.dev`, `.acme.dev`, `10.0.0.0/8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyException {
    /// This host alone, in small letters.
    Host(String),
    /// The hosts below this name, and not the name itself.
    Below(String),
    /// The hosts that are addresses in this network. A name is not looked up for it.
    Network(Network),
}

/// The text is no exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "write a host, a name with a dot before it, or a network, such as git.acme.dev, .acme.dev or 10.0.0.0/8"
)]
pub struct ProxyExceptionError;

impl FromStr for ProxyException {
    type Err = ProxyExceptionError;

    fn from_str(text: &str) -> Result<Self, ProxyExceptionError> {
        let text = text.trim();
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(Network::from(address)));
        }
        if text.contains('/') {
            return text.parse().map(Self::Network).map_err(|_| ProxyExceptionError);
        }
        let name = text.strip_prefix('.').unwrap_or(text);
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_name || name.split('.').any(str::is_empty) {
            return Err(ProxyExceptionError);
        }
        let make = if text.starts_with('.') { Self::Below } else { Self::Host };
        Ok(make(name.to_ascii_lowercase()))
    }
}

impl ProxyException {
    /// Whether it covers the host of a URL.
    pub fn covers(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        match self {
            Self::Network(network) => address.is_ok_and(|address| network.contains(&address)),
            Self::Host(known) => name == *known,
            Self::Below(parent) => name.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_exception_covers_what_it_says_and_nothing_more() {
        for (exception, covered, others) in [
            ("Git.acme.dev", "git.acme.dev", ["a.git.acme.dev", "acme.dev", "xgit.acme.dev"]),
            ("vault", "vault", ["vault.acme.dev", "avault", "10.0.0.1"]),
            (".acme.dev", "a.git.acme.dev.", ["acme.dev", "evilacme.dev", "acme.dev.evil.com"]),
            (" 10.1.0.0/16", "10.1.2.3", ["10.2.2.3", "a.10.1.2.3", "[::1]"]),
            ("10.1.2.3", "10.1.2.3", ["10.1.2.4", "110.1.2.3", "git.acme.dev"]),
            ("fd00::/8", "[fd00::1]", ["[fe80::1]", "fd00.acme.dev", "10.1.2.3"]),
        ] {
            let exception: ProxyException = exception.parse().unwrap();
            assert!(exception.covers(covered), "{exception:?} {covered}");
            assert!(!others.iter().any(|other| exception.covers(other)), "{exception:?}");
        }
        for wrong in
            ["", ".", "*", "*.acme.dev", "a..b", "a.", "10.0.0.0/33", "a/8", "http://a.b", "a:80", "a b"]
        {
            assert_eq!(wrong.parse::<ProxyException>(), Err(ProxyExceptionError), "{wrong:?}");
        }
    }
}
