//! Builds channels to our gRPC servers: lazy channels that detect a dead peer.

mod authorities;
pub mod backend;
mod certificate;
mod file_content;
pub mod internal_port;
mod pem;
pub mod tls;
pub mod tokens;

use crate::error::Error;
pub use certificate::PortCertificate;
use std::time::Duration;
pub use tls::ServerCheck;
use tonic::transport::{Channel, Endpoint};

/// Longest wait for a connection: peers are in the same network.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between HTTP/2 pings, also without a call: an idle stream detects a vanished peer as well.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// A ping that stays unanswered for this long ends the connection.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Flow-control window of one stream, bytes. The default of 64 KiB stalls fast streams at every round trip.
pub const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// Flow-control window of the connection, bytes. One stalled stream must not stall the others: a gateway makes 16 heavy requests at the same time, and exports
/// among them wait for clients.
pub const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Where connections between our machines may travel in plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Plaintext {
    /// On a network that others cannot read.
    Network,
}

/// The bytes that may wait for the readers of a channel's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    pub stream_bytes: u32,
    /// Those of all streams together. When so many wait, all streams of the connection stall.
    pub connection_bytes: u32,
}

impl Windows {
    /// For answers that our own programs read.
    pub const CALLS: Self =
        Self { stream_bytes: STREAM_WINDOW_BYTES, connection_bytes: CONNECTION_WINDOW_BYTES };
    /// For streams that clients read, at any pace or never. Only 16,384 silent readers stall the others: as many as a port has connections.
    pub const CLIENT_STREAMS: Self = Self { stream_bytes: 64 * 1024, connection_bytes: 1024 * 1024 * 1024 };
}

/// Returns a channel to `url` (`http://`, or `https://` with a certificate from a CA of the system); see [`channel_with`].
///
/// # Errors
/// `Address` if `url` is invalid.
pub fn channel(url: &str) -> Result<Channel, Error> {
    channel_with(url, &ServerCheck::default())
}

/// Returns a channel to `url` with the windows of calls; see [`channel_with_windows`].
///
/// # Errors
/// Those of [`channel_with_windows`].
pub fn channel_with(url: &str, check: &ServerCheck) -> Result<Channel, Error> {
    channel_with_windows(url, check, Windows::CALLS)
}

/// Returns a channel to `url`; over `https://` it makes this check of the server. It connects at the first call and reconnects after a loss.
/// Calls made meanwhile wait for the connection or fail as UNAVAILABLE. Call it inside a runtime.
///
/// # Errors
/// `Address` if `url` is invalid, `NoTls` if it is not `https://` and there is a check; those of the file of the CAs.
pub fn channel_with_windows(url: &str, check: &ServerCheck, windows: Windows) -> Result<Channel, Error> {
    crate::install_crypto();
    let bad = |source| Error::Address { url: url.to_owned(), source };
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(bad)?
        .user_agent(crate::http::USER_AGENT)
        .map_err(bad)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(windows.stream_bytes)
        .initial_connection_window_size(windows.connection_bytes)
        .tcp_nodelay(true);
    if url.starts_with("https://") {
        endpoint = check.apply(endpoint, url)?;
    } else if !check.is_empty() {
        return Err(Error::NoTls { url: url.to_owned() });
    }
    Ok(endpoint.connect_lazy())
}
