//! The address that a call comes from: that of its peer, or the one that a trusted proxy names.

use axum::{
    extract::Request,
    http::{Extensions, HeaderMap, HeaderName},
};
use chassis::{network::Network, port::Peer};
use std::net::IpAddr;
use tower::util::MapRequestLayer;

/// Each proxy appends the address that it got the request from.
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of a client: an extension of each request.
#[derive(Debug, Clone, Copy)]
struct Client(IpAddr);

/// The address that a call comes from, if the layer determined it.
pub(crate) fn of(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Client>().map(|client| client.0)
}

/// Determines the address that each call comes from. Proxies in the `trusted` networks are believed.
pub(crate) fn layer(
    trusted: Vec<Network>,
) -> MapRequestLayer<impl Fn(Request) -> Request + Clone + Send + Sync + 'static> {
    let trusted: std::sync::Arc<[Network]> = trusted.into();
    MapRequestLayer::new(move |mut request: Request| {
        if let Some(Peer(peer)) = request.extensions().get().copied() {
            let client = Client(behind(peer, request.headers(), &trusted));
            request.extensions_mut().insert(client);
        }
        request
    })
}

/// The right-most address that is not a trusted proxy. Addresses to its left are client-supplied and cannot be trusted.
fn behind(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted =
        |address: IpAddr| trusted.iter().any(|network| network.contains(&address.to_canonical()));
    let mut client = peer;
    let forwarded = headers.get_all(FORWARDED).iter().filter_map(|value| value.to_str().ok());
    let forwarded: Vec<&str> = forwarded.flat_map(|value| value.split(',')).collect();
    for before in forwarded.into_iter().rev() {
        let Some(before) = before.trim().parse().ok().filter(|_| is_trusted(client)) else { break };
        client = before;
    }
    client
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted: [Network; 1] = ["10.0.0.0/8".parse().unwrap()];
        for (peer, forwarded, want) in [
            ("203.0.113.7", &[][..], "203.0.113.7"),
            ("203.0.113.7", &["198.51.100.1"], "203.0.113.7"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.2.3.4, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.2.3.4", "198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
        ] {
            let headers = forwarded.iter().map(|value| (FORWARDED, value.parse().unwrap())).collect();
            let client = behind(peer.parse().unwrap(), &headers, &trusted);
            assert_eq!(client, want.parse::<IpAddr>().unwrap(), "{peer} {forwarded:?}");
        }
    }
}
