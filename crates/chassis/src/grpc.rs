//! Builds channels to our gRPC servers: lazy channels that detect a dead peer.

mod authorities;
pub mod certificate;
mod file_content;
pub mod internal_port;
mod pem;
pub mod tls;
pub mod tokens;

use crate::error::Error;
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
/// Flow-control window of the connection, bytes. One stalled stream must not stall the others.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// Returns a channel to `url` (`http://`, or `https://` with a certificate from a CA of the system); see [`channel_with`].
///
/// # Errors
/// `Address` if `url` is invalid.
pub fn channel(url: &str) -> Result<Channel, Error> {
    channel_with(url, &ServerCheck::default())
}

/// Returns a channel to `url`; over `https://` it makes this check of the server. It connects at the first call and reconnects after a loss.
/// Calls made meanwhile wait for the connection or fail as UNAVAILABLE. Call it inside a runtime.
///
/// # Errors
/// `Address` if `url` is invalid, `NoTls` if it is not `https://` and there is a check; those of the file of the CAs.
pub fn channel_with(url: &str, check: &ServerCheck) -> Result<Channel, Error> {
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
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .tcp_nodelay(true);
    if url.starts_with("https://") {
        endpoint = check.apply(endpoint, url)?;
    } else if !check.is_empty() {
        return Err(Error::NoTls { url: url.to_owned() });
    }
    Ok(endpoint.connect_lazy())
}
