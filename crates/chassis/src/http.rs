//! Builds HTTP clients with time limits that suit streams.

use crate::error::Error;
use std::time::Duration;

/// Longest wait for a TCP and TLS connection: a provider that needs longer is down.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence in the middle of an answer. The whole answer has no limit: a model may stream for many minutes.
pub const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// Idle time after which the client closes a connection. It is below the usual 60 s of load balancers, so that the
/// client closes first.
pub const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// The User-Agent header of our clients.
pub const USER_AGENT: &str = concat!("flotilla/", env!("CARGO_PKG_VERSION"));

/// Returns a builder with these limits. The caller may change it before building.
pub fn builder() -> reqwest::ClientBuilder {
    upload_builder().read_timeout(READ_TIMEOUT)
}

/// The same without a limit on silence: that of reqwest begins with the request and goes on while the client sends the body, so it would end long uploads. The caller
/// bounds their silence.
pub fn upload_builder() -> reqwest::ClientBuilder {
    crate::install_crypto();
    reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .tcp_nodelay(true)
        // Our callers sign or authenticate requests for one host and must not follow a redirect to another.
        .redirect(reqwest::redirect::Policy::none())
}

/// Returns a client with these limits. Clones share its connections.
///
/// # Errors
/// `HttpClient` if the system's root certificates cannot be used.
pub fn client() -> Result<reqwest::Client, Error> {
    builder().build().map_err(Error::HttpClient)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_client_for_uploads_has_no_limit_that_begins_with_the_request() {
        let has_limit = |builder: reqwest::ClientBuilder| {
            format!("{:?}", builder.build().unwrap()).contains("read_timeout")
        };
        assert!(has_limit(builder()) && !has_limit(upload_builder()));
    }
}
