//! Which hosts the broker connects to for an image. A tenant writes the reference, and a registry says where its tokens and blobs are: both could
//! name hosts inside the operator's network.

use crate::outside::proxy::UpstreamProxy;
use chassis::network::{Network, is_public};
use domain::egress::host::HostName;
use reqwest::{
    Certificate, Url,
    dns::{Name, Resolve, Resolving},
};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

/// A registry that speaks http without TLS: `registry.local:5000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaintextHost {
    host: String,
    port: u16,
}

/// The text names no host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a host and a port, such as registry.local:5000")]
pub struct PlaintextHostError;

/// The rules of a deployment.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// The only hosts that are reached without TLS. They may be private.
    pub plaintext: Vec<PlaintextHost>,
    /// Networks outside the public internet that hosts with TLS may be in.
    pub networks: Vec<Network>,
    /// Authorities that the broker trusts in addition to those of this machine.
    pub authorities: Vec<Certificate>,
    /// The proxy on the way to all hosts but its exceptions. It resolves their names.
    pub upstream: Option<Arc<UpstreamProxy>>,
}

/// How a URL is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// With TLS, and only at public or opened addresses.
    Tls,
    /// Without, as the operator said.
    Plaintext,
}

/// Why a URL is not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostError {
    #[error(
        "it is not on the public internet; the operator can open its network with FLOTILLA_BROKER_NETWORKS"
    )]
    Private,
    #[error("it is named without TLS; the operator can allow that with FLOTILLA_BROKER_REGISTRY_PLAINTEXT")]
    Plaintext,
    #[error(
        "it is not a name of the internet, so the upstream proxy does not look it up; the operator can name it in FLOTILLA_BROKER_UPSTREAM_PROXY_EXCEPT"
    )]
    Local,
    #[error("its URL has a user name")]
    UserName,
    #[error("its name cannot be resolved")]
    Unresolved,
}

impl FromStr for PlaintextHost {
    type Err = PlaintextHostError;

    fn from_str(text: &str) -> Result<Self, PlaintextHostError> {
        let port = text.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).ok_or(PlaintextHostError)?;
        let url = Url::parse(&format!("http://{text}")).map_err(|_| PlaintextHostError)?;
        let host = url.host_str().ok_or(PlaintextHostError)?.to_owned();
        let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let is_anonymous = url.username().is_empty() && url.password().is_none();
        if is_bare && is_anonymous { Ok(Self { host, port }) } else { Err(PlaintextHostError) }
    }
}

impl fmt::Display for PlaintextHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Hosts {
    /// The root of a registry. `None`: its name is none of a host.
    pub(crate) fn root(&self, registry: &str) -> Option<Url> {
        let plain = Url::parse(&format!("http://{registry}/v2/")).ok()?;
        if self.is_plaintext(&plain) {
            Some(plain)
        } else {
            Url::parse(&format!("https://{registry}/v2/")).ok()
        }
    }

    /// How a URL is reached. The addresses of a name are checked when they are known, by [`Hosts::resolve`].
    ///
    /// # Errors
    /// `HostError`.
    pub(crate) fn route(&self, url: &Url) -> Result<Route, HostError> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(HostError::UserName);
        }
        match url.scheme() {
            "https" => {}
            "http" if self.is_plaintext(url) => return Ok(Route::Plaintext),
            _ => return Err(HostError::Plaintext),
        }
        let host = url.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            // A host that is an address has no look-up that could check it.
            Ok(address) if self.is_allowed(address) => Ok(Route::Tls),
            Ok(_) => Err(HostError::Private),
            // The proxy would resolve a name such as `localhost` to a host of its own network.
            Err(_) if self.upstream_to(url).is_some() && HostName::parse(host).is_err() => {
                Err(HostError::Local)
            }
            Err(_) => Ok(Route::Tls),
        }
    }

    /// The proxy on the way to a URL, if there is one.
    pub(crate) fn upstream_to(&self, url: &Url) -> Option<&UpstreamProxy> {
        self.upstream.as_deref().filter(|proxy| url.host_str().is_some_and(|host| proxy.covers(host)))
    }

    fn is_plaintext(&self, url: &Url) -> bool {
        let (host, port) = (url.host_str(), url.port_or_known_default());
        self.plaintext.iter().any(|known| Some(known.host.as_str()) == host && Some(known.port) == port)
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        is_public(address) || self.networks.iter().any(|network| network.contains(&address))
    }

    /// The addresses of a name, all of them public or opened. The connection goes to exactly these.
    async fn addresses(&self, name: &str) -> Result<Vec<SocketAddr>, HostError> {
        let found = tokio::net::lookup_host((name, 0)).await.map_err(|_| HostError::Unresolved)?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err(HostError::Unresolved);
        }
        let is_allowed = found.iter().all(|address| self.is_allowed(address.ip()));
        if is_allowed { Ok(found) } else { Err(HostError::Private) }
    }
}

impl Resolve for Hosts {
    fn resolve(&self, name: Name) -> Resolving {
        let hosts = self.clone();
        Box::pin(async move {
            let addresses = hosts.addresses(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter()) as Box<_>)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hosts() -> Hosts {
        let plaintext = ["registry.local:5000", "Plain.local:80"].map(|host| host.parse().unwrap());
        Hosts {
            plaintext: plaintext.to_vec(),
            networks: vec!["10.1.0.0/16".parse().unwrap()],
            authorities: vec![],
            upstream: None,
        }
    }

    #[test]
    fn a_host_without_tls_is_one_that_the_operator_names() {
        for (registry, root) in [
            ("registry.local:5000", "http://registry.local:5000/v2/"),
            ("plain.local", "http://plain.local/v2/"),
            ("registry.local", "https://registry.local/v2/"),
            ("registry.local:5001", "https://registry.local:5001/v2/"),
            ("sub.registry.local:5000", "https://sub.registry.local:5000/v2/"),
        ] {
            assert_eq!(hosts().root(registry).unwrap().as_str(), root);
        }
        for text in
            ["registry.local", "registry.local:", "a:99999", "a:1/x", "http://a:1", "u@a:1", ":1", "a:1?x"]
        {
            assert!(text.parse::<PlaintextHost>().is_err(), "{text}");
        }
    }

    #[test]
    fn routes_lead_out_or_where_the_operator_says() {
        for (url, route) in [
            ("https://ghcr.io/v2/", Ok(Route::Tls)),
            ("https://1.1.1.1/", Ok(Route::Tls)),
            ("https://10.1.2.3:5000/", Ok(Route::Tls)),
            ("http://registry.local:5000/x", Ok(Route::Plaintext)),
            ("http://ghcr.io/", Err(HostError::Plaintext)),
            ("http://registry.local:5001/", Err(HostError::Plaintext)),
            ("ftp://registry.local:5000/", Err(HostError::Plaintext)),
            ("file:///etc/passwd", Err(HostError::Plaintext)),
            ("https://10.2.2.3/", Err(HostError::Private)),
            ("https://127.0.0.1/", Err(HostError::Private)),
            ("https://0x7f.1/", Err(HostError::Private)),
            ("https://2130706433/", Err(HostError::Private)),
            ("https://[::1]/", Err(HostError::Private)),
            ("https://[::ffff:10.2.0.1]/", Err(HostError::Private)),
            ("https://169.254.169.254/latest", Err(HostError::Private)),
            ("https://ann:x@ghcr.io/", Err(HostError::UserName)),
        ] {
            assert_eq!(hosts().route(&Url::parse(url).unwrap()), route, "{url}");
        }
    }

    #[test]
    fn a_proxy_gets_names_of_the_internet_and_no_private_address() {
        let exceptions = ["cache", ".acme.dev"].map(|text| text.parse().unwrap());
        let proxy = UpstreamProxy::parse("http://proxy.acme.dev:3128", exceptions.to_vec()).unwrap();
        let hosts = Hosts { upstream: Some(Arc::new(proxy)), ..hosts() };
        for (url, route, is_upstream) in [
            ("https://ghcr.io/v2/", Ok(Route::Tls), true),
            ("https://10.1.2.3:5000/", Ok(Route::Tls), true),
            ("http://registry.local:5000/x", Ok(Route::Plaintext), true),
            ("https://registry.acme.dev/v2/", Ok(Route::Tls), false),
            ("https://cache/v2/", Ok(Route::Tls), false),
            ("https://localhost/", Err(HostError::Local), true),
            ("https://localhost./", Err(HostError::Local), true),
            ("https://127.0.0.1/", Err(HostError::Private), true),
            ("https://0x7f.1/", Err(HostError::Private), true),
            ("https://[::1]/", Err(HostError::Private), true),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!((hosts.route(&url), hosts.upstream_to(&url).is_some()), (route, is_upstream), "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_with_a_private_address_leads_nowhere_unless_it_is_opened() {
        assert_eq!(hosts().addresses("localhost").await, Err(HostError::Private));
        let networks = ["127.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
        let opened = Hosts { networks: networks.to_vec(), ..hosts() };
        assert!(!opened.addresses("localhost").await.unwrap().is_empty());
    }
}
