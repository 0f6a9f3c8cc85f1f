//! The one way to build an HTTP client: with time limits that fit streams.

use crate::Error;
use std::time::Duration;

/// Longest wait for a TCP and TLS connection: a provider that needs longer is down.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence inside an answer. No limit on the whole: a model may stream for many minutes.
pub const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// An idle connection is closed after this: below the usual 60 s of load balancers, so that we close first.
pub const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// How we name ourselves.
pub const USER_AGENT: &str = concat!("flotilla/", env!("CARGO_PKG_VERSION"));

/// Gives a builder with these limits, to be changed or built by the caller.
pub fn builder() -> reqwest::ClientBuilder {
    crate::install_crypto();
    reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .tcp_nodelay(true)
        // Our callers sign or authenticate requests for one host; a redirect elsewhere is an answer, not an order.
        .redirect(reqwest::redirect::Policy::none())
}

/// Gives a client with these limits. Clones share its connections.
///
/// # Errors
/// `HttpClient` when the system's root certificates cannot be used.
pub fn client() -> Result<reqwest::Client, Error> {
    builder().build().map_err(Error::HttpClient)
}
