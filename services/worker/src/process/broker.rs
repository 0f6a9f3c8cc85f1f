//! The client of the broker.

use anyhow::Context as _;
use chassis::backends::BrokerConfig;
use rpc::{
    client::Bearer,
    v1::{self, broker_service_client::BrokerServiceClient},
};
use std::time::Duration;
use tonic::{Request, Status, service::interceptor::InterceptedService, transport::Channel};

/// Longest wait for the broker to open a door: it only writes a small file.
const OPEN: Duration = Duration::from_secs(5);

/// A handle to the broker; clones share its connection.
#[derive(Clone)]
pub(crate) struct Broker(BrokerServiceClient<InterceptedService<Channel, Bearer>>);

impl Broker {
    /// Prepares the connection. `None`: this deployment has no broker.
    pub(crate) fn connect(config: &BrokerConfig) -> anyhow::Result<Option<Self>> {
        let Some((channel, token)) = config.channel()? else { return Ok(None) };
        let token = Bearer::new(token).context("use the broker token")?;
        Ok(Some(Self(BrokerServiceClient::with_interceptor(channel, token))))
    }

    /// Opens the door of a workspace, or changes what it allows. May be repeated.
    pub(crate) async fn open_egress(&self, door: v1::OpenEgressRequest) -> Result<(), Status> {
        let mut request = Request::new(door);
        request.set_timeout(OPEN);
        self.0.clone().open_egress(request).await.map(drop)
    }
}
