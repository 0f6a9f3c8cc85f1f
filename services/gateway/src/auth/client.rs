//! From where a call comes: from the other end of its connection, or from whom a trusted balancer names.

use axum::{
    extract::Request,
    http::{Extensions, HeaderMap, HeaderName},
};
use chassis::{port::Peer, web::Network};
use std::net::IpAddr;
use tower::util::MapRequestLayer;

/// Where balancers write down from whom they have a request; each adds to its end.
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of a client: an extension of each request.
#[derive(Debug, Clone, Copy)]
struct Client(IpAddr);

/// The address that a request comes from.
pub(crate) fn of(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Client>().map(|client| client.0)
}

/// Finds out from where each request comes; balancers in the `trusted` networks are believed.
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

/// The last one in the chain of senders whom nobody trusted; whatever stands before it, it may have made up.
fn behind(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted =
        |address: IpAddr| trusted.iter().any(|network| network.contains(&address.to_canonical()));
    let mut client = peer;
    let told = headers.get_all(FORWARDED).iter().filter_map(|value| value.to_str().ok());
    let told: Vec<&str> = told.flat_map(|value| value.split(',')).collect();
    for before in told.into_iter().rev() {
        let Some(before) = before.trim().parse().ok().filter(|_| is_trusted(client)) else { break };
        client = before;
    }
    client
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn only_trusted_balancers_are_believed() {
        let trusted: [Network; 1] = ["10.0.0.0/8".parse().unwrap()];
        for (peer, told, want) in [
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
            let headers = told.iter().map(|value| (FORWARDED, value.parse().unwrap())).collect();
            let client = behind(peer.parse().unwrap(), &headers, &trusted);
            assert_eq!(client, want.parse::<IpAddr>().unwrap(), "{peer} {told:?}");
        }
    }
}
