//! Loads a page of the public web for untrusted text: a model chose the address, perhaps because of something it read.
//! Only public addresses are reached. Each host, also after a redirect, is resolved once, and the connection uses the
//! checked addresses.

use futures::StreamExt as _;
use reqwest::{StatusCode, Url, header};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// Maximum redirects. With more, the page is not read.
const REDIRECTS_MAX: usize = 5;
/// Ports of the public web. Other services than web servers listen on other ports.
const PORTS: [u16; 2] = [80, 443];

/// A range of addresses: `10.1.2.0/24`.
pub type Network = ipnet::IpNet;

/// A client for the public web.
#[derive(Debug, Clone, Default)]
pub struct Web {
    /// Additional networks that the operator allows, such as an intranet with documentation.
    opened: Vec<Network>,
}

/// A loaded page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its URL after all redirects.
    pub url: String,
    /// Its media type, in lower case and without parameters; empty if the server did not send one.
    pub media_type: String,
    /// The whole body, decoded.
    pub body: Vec<u8>,
}

/// Why the page could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a web address.
    #[error(
        "{0:?} is not a web address; it must begin with http:// or https:// and must not contain a user name"
    )]
    Address(String),
    /// A port that web servers do not use.
    #[error("port {0} is not allowed; only 80 and 443 are")]
    Port(u16),
    /// Not on the public web.
    #[error("{0} is not on the public web")]
    Private(String),
    /// The host name does not resolve.
    #[error("cannot resolve the host {0}")]
    Unknown(String),
    /// Too many redirects.
    #[error("there are more than {REDIRECTS_MAX} redirects")]
    Redirects,
    /// The server answered with an error.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The page is too long.
    #[error("the page is longer than {0} bytes")]
    TooLarge(usize),
    /// The page took too long.
    #[error("the page did not arrive within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The connection failed.
    #[error("cannot load the page: {0}")]
    Transport(String),
}

impl Web {
    /// Creates a client for the public web and the given networks.
    pub fn new(opened: Vec<Network>) -> Self {
        Self { opened }
    }

    /// Loads the page at `url`, of at most `bytes_max` bytes. Dropping the future closes the connection.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, url: &str, bytes_max: usize, timeout: Duration) -> Result<Page, Error> {
        let got = tokio::time::timeout(timeout, self.follow(url, bytes_max)).await;
        got.unwrap_or(Err(Error::Timeout(timeout)))
    }

    async fn follow(&self, url: &str, bytes_max: usize) -> Result<Page, Error> {
        let mut url = Url::parse(url).map_err(|_| Error::Address(url.to_owned()))?;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.ask(&url).await?;
            let status = response.status();
            let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
            if let Some(to) = to.filter(|_| status.is_redirection()) {
                url = url.join(to).map_err(|_| Error::Address(to.to_owned()))?;
                continue;
            }
            if !status.is_success() {
                return Err(Error::Status(status));
            }
            return read(response, &url, bytes_max).await;
        }
        Err(Error::Redirects)
    }

    async fn ask(&self, url: &Url) -> Result<reqwest::Response, Error> {
        let (host, addresses) = self.find(url).await?;
        // A separate client: it shares no connection, cookie or proxy and does not resolve the host again.
        let client = crate::http::builder().no_proxy().resolve_to_addrs(&host, &addresses).build();
        let client = client.map_err(|error| Error::Transport(error.to_string()))?;
        let accept = "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5";
        let response = client.get(url.clone()).header(header::ACCEPT, accept).send().await;
        response.map_err(|error| Error::Transport(error.without_url().to_string()))
    }

    /// Resolves the host of a URL. Every one of its addresses must be allowed.
    async fn find(&self, url: &Url) -> Result<(String, Vec<SocketAddr>), Error> {
        let is_web =
            matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
        let (Some(host), Some(port), true) = (url.host_str(), url.port_or_known_default(), is_web) else {
            return Err(Error::Address(url.to_string()));
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found: Vec<SocketAddr> = match bare.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => tokio::net::lookup_host((bare, port))
                .await
                .map_err(|_| Error::Unknown(host.to_owned()))?
                .collect(),
        };
        if found.is_empty() {
            return Err(Error::Unknown(host.to_owned()));
        }
        for address in &found {
            let is_opened = self.opened.iter().any(|network| network.contains(&address.ip()));
            if !is_opened && !is_public(address.ip()) {
                return Err(Error::Private(host.to_owned()));
            }
            if !is_opened && !PORTS.contains(&port) {
                return Err(Error::Port(port));
            }
        }
        Ok((bare.to_owned(), found))
    }
}

async fn read(response: reqwest::Response, url: &Url, bytes_max: usize) -> Result<Page, Error> {
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|text| text.to_str().ok());
    let media_type =
        media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Error::Transport(error.without_url().to_string()))?;
        if body.len() + piece.len() > bytes_max {
            return Err(Error::TooLarge(bytes_max));
        }
        body.extend_from_slice(&piece);
    }
    Ok(Page { url: url.to_string(), media_type, body })
}

/// Whether an address belongs to the public internet, and not to a host, a private network, a cloud's own services or
/// an unassigned range.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(address) => is_public_v4(address),
            // Global unicast is 2000::/3, without documentation ranges, 6to4 with private addresses and the like.
            None => {
                let segments = address.segments();
                segments[0] & 0xe000 == 0x2000
                    && !(segments[0] == 0x2001 && (segments[1] < 0x200 || segments[1] == 0xdb8))
                    && segments[0] != 0x3fff
            }
        },
    }
}

/// The IPv4 address inside an IPv6 address: mapped, translated (64:ff9b::/96) or 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match a {
        0 | 10 | 127 => true,
        100 => (64..128).contains(&b),
        // The hosts of a cloud provider answer there, without a login.
        168 => address == Ipv4Addr::new(168, 63, 129, 16),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168 || b == 0 && (c == 0 || c == 2) || b == 88 && c == 99,
        198 => b == 18 || b == 19 || b == 51 && c == 100,
        203 => b == 0 && c == 113,
        224.. => true,
        _ => false,
    };
    !is_special
}

#[cfg(test)]
mod tests;
