//! The port of the gateway: the same at each start of a data directory, so that contexts and attached clients keep their address.

use crate::terminal::output;
use anyhow::Result;
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
};

const FILE: &str = "gateway-port";

/// The address to listen on: the wanted one; if it has any port, the last one of this data directory, unless somebody else has that port now.
pub(super) fn choose(data: &Path, wanted: SocketAddr) -> SocketAddr {
    choose_if(data, wanted, |address| TcpListener::bind(address).is_ok())
}

fn choose_if(data: &Path, wanted: SocketAddr, is_free: impl Fn(SocketAddr) -> bool) -> SocketAddr {
    let kept = fs::read_to_string(data.join(FILE)).ok().and_then(|port| port.trim().parse().ok());
    let Some(port) = kept.filter(|_| wanted.port() == 0) else { return wanted };
    let address = SocketAddr::new(wanted.ip(), port);
    if is_free(address) {
        return address;
    }
    output::note(&format!("port {port}, which the gateway had before, is taken; it gets another one"));
    wanted
}

/// Keeps the port of an address for the next start.
pub(super) fn keep(data: &Path, url: &str) -> Result<()> {
    let port = url.rsplit(':').next().unwrap_or_default().trim_end_matches('/');
    crate::stack::private::write(&data.join(FILE), port)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_last_port_is_used_again_if_it_is_free_and_none_is_wanted() {
        let data = tempfile::tempdir().unwrap();
        let choose =
            |wanted: &str, is_free| choose_if(data.path(), wanted.parse().unwrap(), |_| is_free).to_string();
        assert_eq!(choose("127.0.0.1:0", true), "127.0.0.1:0", "the first start");
        keep(data.path(), "http://127.0.0.1:4711").unwrap();
        assert_eq!(choose("127.0.0.1:0", true), "127.0.0.1:4711");
        assert_eq!(choose("0.0.0.0:0", true), "0.0.0.0:4711");
        assert_eq!(choose("127.0.0.1:0", false), "127.0.0.1:0", "somebody has it");
        assert_eq!(choose("127.0.0.1:4096", true), "127.0.0.1:4096");
    }
}
