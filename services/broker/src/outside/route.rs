//! The way to one host: here the broker opens the connections that no HTTP client makes.

use super::{error::UpstreamError, proxy::UpstreamProxy};
use domain::egress::host::HostName;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpStream, time::timeout};

/// Time in which an address of a host must answer.
const DIAL: Duration = Duration::from_secs(10);
/// Addresses of a host that are tried. Further ones are left out.
const ADDRESSES_MAX: usize = 4;

/// The way to a host.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// To these addresses alone, which were checked.
    Direct(Vec<SocketAddr>),
    /// Through the proxy, which resolves the name.
    Upstream(Arc<UpstreamProxy>),
}

impl Route {
    /// The proxy, if it leads through one.
    pub(crate) fn upstream(&self) -> Option<&UpstreamProxy> {
        match self {
            Self::Direct(_) => None,
            Self::Upstream(proxy) => Some(proxy),
        }
    }

    /// Opens a connection for TLS with the host. `None`: no address of the host answers.
    ///
    /// # Errors
    /// Those of the upstream proxy.
    pub(crate) async fn open_tunnel(
        &self,
        host: &HostName,
        port: u16,
    ) -> Result<Option<TcpStream>, UpstreamError> {
        match self {
            Self::Direct(addresses) => Ok(dial(addresses).await),
            Self::Upstream(proxy) => proxy.open_tunnel(host, port).await.map(Some),
        }
    }

    /// Opens a connection for one request without TLS. `None`: no address of the host answers.
    ///
    /// # Errors
    /// `Unreachable`: the upstream proxy is.
    pub(crate) async fn open_plain(&self) -> Result<Option<TcpStream>, UpstreamError> {
        match self {
            Self::Direct(addresses) => Ok(dial(addresses).await),
            Self::Upstream(proxy) => proxy.dial().await.map(Some),
        }
    }

    /// The head that goes over such a connection. That of the host has a path in its first line.
    pub(crate) fn plain_head(&self, host: &HostName, head: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Direct(_) => head,
            Self::Upstream(proxy) => proxy.head(host, &head),
        }
    }

    /// The beginning of the answer that comes over such a connection, as far as it must be read to know that the host has answered.
    ///
    /// # Errors
    /// `Login`: the upstream proxy has answered, and refuses the login.
    pub(crate) async fn begin_plain_answer(&self, stream: &mut TcpStream) -> Result<Vec<u8>, UpstreamError> {
        match self {
            Self::Direct(_) => Ok(vec![]),
            Self::Upstream(proxy) => proxy.begin_answer(stream).await,
        }
    }
}

/// Connects to the first address that answers.
async fn dial(addresses: &[SocketAddr]) -> Option<TcpStream> {
    for address in addresses.iter().take(ADDRESSES_MAX) {
        if let Ok(Ok(stream)) = timeout(DIAL, TcpStream::connect(address)).await {
            // Small messages of TLS must not wait for each other.
            let _ = stream.set_nodelay(true);
            return Some(stream);
        }
    }
    None
}
