//! A URL that a server names: where to read an object, or where to go on reading. The server chose it, so it is foreign content.

use domain::egress::{git::GitAddress, host::HostName};
use reqwest::Url;

/// Bytes of a URL: the signatures of large stores take some 2,000. Beyond it: `git_lfs_link_refused`.
const LINK_BYTES_MAX: usize = 8 * 1024;

/// The URL, whose host is a name. Only the addresses of the name say whether it may be reached.
#[derive(Debug, Clone)]
pub(super) struct Link {
    url: Url,
    host: HostName,
    port: u16,
}

impl Link {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it. The text may be a credential, so the error does not repeat it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > LINK_BYTES_MAX {
            return Err("its URL is too long");
        }
        Self::check(Url::parse(text).map_err(|_| "it is no URL")?)
    }

    /// Reads where an answer leads. A relative URL means a place at the same host.
    ///
    /// # Errors
    /// Those of [`Link::parse`].
    pub(super) fn join(&self, text: &str) -> Result<Self, &'static str> {
        if text.len() > LINK_BYTES_MAX {
            return Err("its URL is too long");
        }
        Self::check(self.url.join(text).map_err(|_| "it is no URL")?)
    }

    fn check(mut url: Url) -> Result<Self, &'static str> {
        if url.scheme() != "https" {
            return Err("it does not begin with https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it names a user");
        }
        url.set_fragment(None);
        let name = url.host_str().unwrap_or_default();
        let host = HostName::parse(name).ok().filter(|host| host.as_str() == name);
        let host = host.ok_or("its host is not a name of the internet")?;
        let port = url.port_or_known_default().filter(|port| *port > 0).ok_or("its port is no number")?;
        Ok(Self { url, host, port })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn host(&self) -> &HostName {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The host, and the port unless it is that of https.
    pub(super) fn authority(&self) -> String {
        match self.url.port() {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.to_string(),
        }
    }

    /// Whether both lead to the same host and port.
    pub(super) fn is_at_host_of(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// The place at a server of git. `None`: its path has another spelling than one of a repository, and no credential belongs to it.
    pub(super) fn address(&self) -> Option<GitAddress> {
        let address = GitAddress::parse(&self.authority(), self.url.path()).ok()?;
        (address.path() == self.url.path()).then_some(address)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn only_names_over_tls_are_links() {
        let link = Link::parse("https://Store.example.com:443/a/b?X-Signature=1#x").unwrap();
        assert_eq!(link.url().as_str(), "https://store.example.com/a/b?X-Signature=1");
        assert_eq!((link.authority().as_str(), link.port()), ("store.example.com", 443));
        assert_eq!(link.address().unwrap().to_string(), "https://store.example.com/a/b");
        let next = link.join("/c").unwrap();
        assert!(next.is_at_host_of(&link) && next.url().path() == "/c");
        assert!(!link.join("https://store.example.com:8443/").unwrap().is_at_host_of(&link));
        assert!(Link::parse("https://h.example.com/a//b").unwrap().address().is_none());
        let long = format!("https://h.example.com/{}", "a".repeat(LINK_BYTES_MAX));
        for wrong in [
            "http://h.example.com/",
            "file:///etc/passwd",
            "/relative",
            "https://u:p@h.example.com/",
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://[::1]/",
            "https://localhost/",
            "https://169.254.169.254/latest",
            "https://h.example.com:0/",
            "",
            &long,
        ] {
            assert!(Link::parse(wrong).is_err(), "{wrong}");
        }
        assert!(link.join("http://h.example.com/").is_err() && link.join("//10.0.0.1/").is_err());
    }
}
