//! The registries of packages that a machine reaches.

use std::{net::IpAddr, time::Duration};
use tokio::net::{TcpStream, lookup_host};

/// Longest wait for a connection to a registry.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// The network of a registry whose address is private here. `None`: this machine does not reach the registry.
pub async fn network(host: &str) -> Option<Option<String>> {
    let address = lookup_host((host, 443)).await.ok()?.next()?;
    tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(address)).await.ok()?.ok()?;
    let bits = if matches!(address.ip(), IpAddr::V4(_)) { 32 } else { 128 };
    Some((!chassis::network::is_public(address.ip())).then(|| format!("{}/{bits}", address.ip())))
}
