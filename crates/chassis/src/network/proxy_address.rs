//! Where an HTTP proxy is.

use reqwest::Url;
use std::{fmt, str::FromStr};

/// The host and the port of an HTTP proxy. It prints as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    /// A name or an address, an IPv6 one in brackets.
    pub host: String,
    pub port: u16,
}

/// Why a text is not the URL of a proxy. It does not repeat the text, which may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ProxyAddressError {
    /// A sentence about the URL.
    pub reason: &'static str,
}

impl ProxyAddress {
    /// Reads the host and the port of a URL that may have a login.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(url: &Url) -> Result<Self, ProxyAddressError> {
        if url.scheme() != "http" {
            return Err(ProxyAddressError { reason: "the URL does not begin with http://" });
        }
        let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let (Some(host), Some(port), true) = (url.host_str(), url.port_or_known_default(), is_bare) else {
            return Err(ProxyAddressError { reason: "the URL has more than a login, a host and a port" });
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Reads a URL without a login.
impl FromStr for ProxyAddress {
    type Err = ProxyAddressError;

    fn from_str(text: &str) -> Result<Self, ProxyAddressError> {
        let url = Url::parse(text).map_err(|_| ProxyAddressError { reason: "this is not a URL" })?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ProxyAddressError { reason: "the URL has a login" });
        }
        Self::of(&url)
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_url_without_a_login_has_a_host_and_a_port() {
        for (text, want) in [
            ("http://Proxy.acme.dev:3128", "proxy.acme.dev:3128"),
            ("http://proxy.acme.dev/", "proxy.acme.dev:80"),
            ("http://[fd00::1]:3128", "[fd00::1]:3128"),
        ] {
            assert_eq!(text.parse::<ProxyAddress>().unwrap().to_string(), want);
        }
        for (text, want) in [
            ("", "not a URL"),
            ("10.0.0.1:3128", "not a URL"),
            ("proxy.acme.dev:3128", "does not begin with http://"),
            ("https://proxy.acme.dev:3128", "does not begin with http://"),
            ("http://ann:hunter2@proxy.acme.dev:3128", "has a login"),
            ("http://hunter2@proxy.acme.dev:3128", "has a login"),
            ("http://proxy.acme.dev:3128/path", "more than a login, a host and a port"),
            ("http://proxy.acme.dev:3128?a=b", "more than a login, a host and a port"),
        ] {
            let error = text.parse::<ProxyAddress>().unwrap_err().to_string();
            assert!(error.contains(want) && !error.contains("hunter2"), "{text}: {error}");
        }
    }
}
