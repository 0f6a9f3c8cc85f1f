//! The web pages that may change something. A browser sends the password that a person once typed along with the
//! requests of any page, so a request of an unknown page is not the person's.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use domain::egress::host::is_this_machine;
use std::{net::IpAddr, sync::Arc};

/// Browsers send it with requests of any kind, also with those that carry no origin.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The pages that may call, in addition to those of this gateway.
#[derive(Debug, Clone)]
pub(crate) struct Origins {
    /// Named by the operator.
    named: Arc<[String]>,
    /// Whether only this machine reaches the gateway, so that the pages of this machine are those of its user.
    is_local: bool,
}

impl Origins {
    /// The pages that the operator names of a gateway that listens at `listen`, and the apps on the user's machine. Pages of servers on that machine only if the
    /// gateway is on it: a browser that has the password of a gateway elsewhere may also show what any program serves on its own machine.
    pub(crate) fn new(named: &[String], listen: IpAddr) -> Self {
        Self { named: named.into(), is_local: listen.is_loopback() }
    }

    /// Whether a page of this origin may call from a browser.
    pub(crate) fn knows(&self, origin: &HeaderValue) -> bool {
        let Ok(text) = origin.to_str() else { return false };
        is_of_app(text)
            || self.is_local && is_of_local_server(text)
            || self.named.iter().any(|named| named == text)
    }

    /// Whether a browser sent the request for a page of another site.
    pub(crate) fn is_foreign(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        match headers.get(header::ORIGIN) {
            Some(origin) => !self.knows(origin) && !is_own(origin, uri, headers),
            // A picture or a link of a page has no origin.
            None => headers.get(FETCH_SITE).is_some_and(|site| site == "cross-site" || site == "same-site"),
        }
    }
}

/// Whether a browser sent the request for a page.
pub(crate) fn is_of_page(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key(FETCH_SITE)
}

/// Whether the page is that of an app of OpenCode on the user's machine, whose scheme no server has.
fn is_of_app(origin: &str) -> bool {
    let Some((scheme, host)) = scheme_and_host(origin) else { return false };
    match scheme.as_str() {
        "tauri" => host == "localhost",
        "oc" => host == "renderer",
        _ => false,
    }
}

/// Whether a server on the user's machine serves the page. An app of OpenCode for Windows looks like one.
fn is_of_local_server(origin: &str) -> bool {
    let Some((scheme, host)) = scheme_and_host(origin) else { return false };
    matches!(scheme.as_str(), "http" | "https") && (host == "tauri.localhost" || is_this_machine(&host))
}

fn scheme_and_host(origin: &str) -> Option<(String, String)> {
    let uri: Uri = origin.parse().ok()?;
    Some((uri.scheme_str()?.to_owned(), uri.host()?.to_owned()))
}

/// Whether the gateway itself served the page. A proxy may have ended TLS, so the scheme does not count.
fn is_own(origin: &HeaderValue, uri: &Uri, headers: &HeaderMap) -> bool {
    let page =
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let called = uri.authority().map(|authority| authority.as_str()).or(host);
    page.is_some() && page == called
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn is_foreign(headers: &[(&str, &str)]) -> bool {
        is_foreign_at("127.0.0.1", headers)
    }

    fn is_foreign_at(listen: &str, headers: &[(&str, &str)]) -> bool {
        let origins = Origins::new(&["https://console.example.com".to_owned()], listen.parse().unwrap());
        let named = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        origins.is_foreign(&"/pty".parse().unwrap(), &named.collect())
    }

    #[test]
    fn pages_of_other_sites_are_foreign() {
        for (origin, want) in [
            ("https://evil.example", true),
            ("null", true),
            ("", true),
            ("file://", true),
            ("https://console.example.com.evil.example", true),
            ("https://console.example.com:8443", true),
            ("http://localhost.evil.example", true),
            ("http://localhost@evil.example", true),
            ("http://127.0.0.1.evil.example", true),
            ("http://10.0.0.1", true),
            ("tauri://evil", true),
            ("http://gate.example:81", true),
            ("https://console.example.com", false),
            ("http://localhost:3000", false),
            ("https://127.0.0.2", false),
            ("http://[::1]:4096", false),
            ("tauri://localhost", false),
            ("oc://renderer", false),
            ("http://gate.example:80", false),
            ("https://gate.example:80", false),
        ] {
            assert_eq!(is_foreign(&[("host", "gate.example:80"), ("origin", origin)]), want, "{origin:?}");
        }
    }

    #[test]
    fn local_servers_are_known_only_to_a_gateway_that_only_this_machine_reaches() {
        for origin in
            ["http://localhost:9999", "https://127.0.0.2", "http://[::1]:80", "http://tauri.localhost"]
        {
            for (listen, want) in
                [("127.0.0.1", false), ("::1", false), ("0.0.0.0", true), ("10.0.0.1", true), ("::", true)]
            {
                let headers = [("host", "gate.example"), ("origin", origin)];
                assert_eq!(is_foreign_at(listen, &headers), want, "{listen} {origin}");
            }
        }
        for (host, origin) in [
            ("gate.example", "tauri://localhost"),
            ("gate.example", "https://console.example.com"),
            // Its own pages, through a tunnel.
            ("localhost:8080", "http://localhost:8080"),
        ] {
            assert!(!is_foreign_at("0.0.0.0", &[("host", host), ("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn a_request_without_an_origin_is_foreign_if_the_browser_says_so() {
        for (site, want) in
            [("cross-site", true), ("same-site", true), ("same-origin", false), ("none", false)]
        {
            assert_eq!(is_foreign(&[("sec-fetch-site", site)]), want, "{site}");
        }
        assert!(!is_foreign(&[]), "programs send neither");
    }

    #[test]
    fn over_http2_the_authority_is_the_host() {
        let headers = HeaderMap::from_iter([(header::ORIGIN, "https://gate.example".parse().unwrap())]);
        let origins = Origins::new(&[], "0.0.0.0".parse().unwrap());
        assert!(!origins.is_foreign(&"http://gate.example/pty".parse().unwrap(), &headers));
        assert!(origins.is_foreign(&"http://other.example/pty".parse().unwrap(), &headers));
    }
}
