//! The upstream proxy: through it alone, the operator's network lets programs out. It resolves the names of hosts.

use super::error::UpstreamError;
use crate::{
    cause::{causes, innermost},
    credential,
};
use chassis::network::{proxy_address::ProxyAddress, proxy_exception::ProxyException};
use domain::text::percent_decode;
use reqwest::{ClientBuilder, Proxy, Response, StatusCode, Url, header::HeaderValue};
use zeroize::Zeroizing;

/// The beginning of the texts of the HTTP client about a tunnel. Its error has no public type.
const TUNNEL: &str = "tunnel error: ";

/// The proxy, and the hosts that the broker reaches without it.
#[derive(Debug, Clone)]
pub struct UpstreamProxy {
    pub(super) address: ProxyAddress,
    /// It does not print.
    pub(super) login: Option<HeaderValue>,
    exceptions: Vec<ProxyException>,
}

/// Why a text is not the URL of a proxy. It does not repeat the text, which may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; write http://host:port or http://user:password@host:port, and characters such as @ in the login as %40"
)]
pub struct UpstreamProxyError(&'static str);

impl UpstreamProxy {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, exceptions: Vec<ProxyException>) -> Result<Self, UpstreamProxyError> {
        let url = Url::parse(text).map_err(|_| UpstreamProxyError("this is not a URL"))?;
        let address = ProxyAddress::of(&url).map_err(|error| UpstreamProxyError(error.reason))?;
        Ok(Self { address, login: login(&url)?, exceptions })
    }

    /// Its host and port, for errors.
    pub(super) fn name(&self) -> String {
        self.address.to_string()
    }

    /// Whether the broker reaches the host of a URL through it.
    pub(crate) fn covers(&self, host: &str) -> bool {
        !self.exceptions.iter().any(|exception| exception.covers(host))
    }

    /// Leads all requests of a client through it.
    pub(super) fn lead(&self, builder: ClientBuilder) -> Result<ClientBuilder, reqwest::Error> {
        let proxy = Proxy::all(format!("http://{}", self.address))?;
        let proxy = match &self.login {
            Some(login) => proxy.custom_http_auth(login.clone()),
            None => proxy,
        };
        Ok(builder.proxy(proxy))
    }

    /// What the proxy has to do with the error of a client. `None`: nothing, the host failed.
    pub(crate) fn explain(&self, error: &reqwest::Error) -> Option<UpstreamError> {
        if error.is_connect() && error.is_timeout() {
            return Some(UpstreamError::Silent { proxy: self.name() });
        }
        let is_plain = error.url().is_some_and(|url| url.scheme() == "http");
        let tunnel =
            causes(error).find_map(|cause| cause.to_string().strip_prefix(TUNNEL).map(str::to_owned));
        match tunnel.as_deref() {
            Some("proxy authorization required") => Some(UpstreamError::Login { proxy: self.name() }),
            Some("failed to create underlying connection") => Some(self.unreachable(innermost(error))),
            Some("unsuccessful") => Some(self.refused("it refuses")),
            Some(_) => Some(self.refused("it does not answer as a proxy")),
            None if is_plain && error.is_connect() => Some(self.unreachable(innermost(error))),
            None => None,
        }
    }

    /// The refusal in an answer. Without TLS, the proxy itself answers in place of the host.
    pub(crate) fn find_refusal(&self, response: &Response) -> Option<UpstreamError> {
        let is_its_own = response.url().scheme() == "http"
            && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        is_its_own.then(|| UpstreamError::Login { proxy: self.name() })
    }

    pub(super) fn unreachable(&self, reason: String) -> UpstreamError {
        UpstreamError::Unreachable { proxy: self.name(), reason }
    }

    pub(super) fn refused(&self, reason: &str) -> UpstreamError {
        UpstreamError::Refused { proxy: self.name(), reason: reason.to_owned() }
    }
}

/// The header with the login of a URL, if it has one.
fn login(url: &Url) -> Result<Option<HeaderValue>, UpstreamProxyError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let part =
        |text| percent_decode(text).and_then(|bytes| String::from_utf8(bytes).ok()).map(Zeroizing::new);
    let parts = (part(url.username()), part(url.password().unwrap_or_default()));
    let (Some(user), Some(password)) = parts else {
        return Err(UpstreamProxyError("the login in the URL is not valid text"));
    };
    if user.contains(':') {
        return Err(UpstreamProxyError("the name of the user has a colon"));
    }
    Ok(credential::basic(&user, &password))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_url_has_a_host_and_perhaps_a_login_that_nothing_prints() {
        let proxy = UpstreamProxy::parse("http://ann:hunter%402@Proxy.acme.dev:3128", vec![]).unwrap();
        assert_eq!(proxy.name(), "proxy.acme.dev:3128");
        assert_eq!(proxy.login.as_ref().unwrap().as_bytes(), b"Basic YW5uOmh1bnRlckAy");
        let client = proxy.lead(chassis::http::builder()).unwrap().build().unwrap();
        for shown in [format!("{proxy:?}"), format!("{client:?}")] {
            assert!(!shown.contains("hunter") && !shown.contains("YW5u"), "{shown}");
        }
        let bare = UpstreamProxy::parse("http://[fd00::1]/", vec![]).unwrap();
        assert_eq!((bare.name().as_str(), bare.login), ("[fd00::1]:80", None));
        for wrong in [
            "",
            "10.0.0.1:3128",
            "proxy.acme.dev:3128",
            "https://proxy.acme.dev:3128",
            "socks5://proxy.acme.dev",
            "http://ann:hunter2@proxy.acme.dev:99999",
            "http://ann:hunter2@proxy.acme.dev/path",
            "http://ann:hunter2@proxy.acme.dev/?a=b",
            "http://ann%3a:hunter2@proxy.acme.dev",
            "http://ann:hunter2%ff@proxy.acme.dev",
        ] {
            let error = UpstreamProxy::parse(wrong, vec![]).unwrap_err().to_string();
            assert!(!error.contains("hunter2") && error.contains("write http://host:port"), "{error}");
        }
    }

    #[test]
    fn every_host_is_covered_but_the_exceptions() {
        let exceptions = [".acme.dev", "10.0.0.0/8"].map(|text| text.parse().unwrap());
        let proxy = UpstreamProxy::parse("http://proxy.acme.dev:3128", exceptions.to_vec()).unwrap();
        for (host, want) in
            [("pypi.org", true), ("1.1.1.1", true), ("git.acme.dev", false), ("10.1.2.3", false)]
        {
            assert_eq!(proxy.covers(host), want, "{host}");
        }
    }
}
