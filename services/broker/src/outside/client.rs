//! HTTP clients for hosts of the outside.

use super::proxy::UpstreamProxy;
use reqwest::{Client, ClientBuilder};

/// Two clients with the same settings: one connects to checked addresses, and one goes through the upstream proxy.
#[derive(Debug)]
pub(crate) struct OutsideClient {
    direct: Client,
    upstream: Option<Client>,
}

impl OutsideClient {
    /// Builds both. `check` gives the direct one the look-ups that check addresses. A proxy that the environment names is not used.
    ///
    /// # Errors
    /// The certificates of this system cannot be used.
    pub(crate) fn new(
        upstream: Option<&UpstreamProxy>,
        build: impl Fn() -> ClientBuilder,
        check: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Self, reqwest::Error> {
        let direct = check(build().no_proxy()).build()?;
        let upstream = upstream.map(|proxy| proxy.lead(build())?.build()).transpose()?;
        Ok(Self { direct, upstream })
    }

    /// The client for a host that is reached through this proxy, or directly.
    pub(crate) fn by(&self, upstream: Option<&UpstreamProxy>) -> &Client {
        upstream.and(self.upstream.as_ref()).unwrap_or(&self.direct)
    }
}
