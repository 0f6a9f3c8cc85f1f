//! The registries of packages that a machine reaches, and what a stack has to know of them.

use crate::settings::Outside;
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use testkit::left_out;
use tokio::net::{TcpStream, lookup_host};

/// Longest wait for a connection to a registry.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The certificates that a machine trusts: its network may sign for the registries.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Registries of packages, as this machine reaches them.
#[derive(Debug, Clone, Default)]
pub struct Registries {
    /// The hosts that it does not reach.
    pub unreachable: Vec<&'static str>,
    /// The networks of those whose addresses are private here. A broker opens them with `FLOTILLA_BROKER_NETWORKS`.
    pub networks: Vec<String>,
}

impl Registries {
    /// Looks for the registries at `hosts`.
    pub async fn find(hosts: &[&'static str]) -> Self {
        let mut found = Self::default();
        for &host in hosts {
            match network(host).await {
                Some(private) => found.networks.extend(private),
                None => found.unreachable.push(host),
            }
        }
        found.networks.sort();
        found.networks.dedup();
        found
    }
}

/// The network outside for a test that needs the registries at `hosts`. Where the machine does not reach all of them, the test is skipped.
pub async fn outside(hosts: &[&'static str]) -> Option<Outside> {
    let Registries { unreachable, networks } = Registries::find(hosts).await;
    if let Some(host) = unreachable.first() {
        left_out::skip(&format!("this machine does not reach {host}"));
        return None;
    }
    Some(Outside { networks, ca: certificates(), ..Outside::default() })
}

/// The file with the certificates that programs on this machine trust. `FLOTILLA_SANDBOX_EGRESS_CA` shows it to sandboxes.
pub fn certificates() -> Option<PathBuf> {
    Some(Path::new(CERTIFICATES).to_owned()).filter(|file| file.exists())
}

/// The network of a registry whose address is private here. `None`: this machine does not reach the registry.
async fn network(host: &str) -> Option<Option<String>> {
    let address = lookup_host((host, 443)).await.ok()?.next()?;
    tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(address)).await.ok()?.ok()?;
    let bits = if matches!(address.ip(), IpAddr::V4(_)) { 32 } else { 128 };
    Some((!chassis::network::is_public(address.ip())).then(|| format!("{}/{bits}", address.ip())))
}
