//! The client of the broker.

use anyhow::Context as _;
use chassis::backends::BrokerConfig;
use rpc::{
    client::Bearer,
    v1::{self, broker_service_client::BrokerServiceClient},
};
use std::time::Duration;
use tonic::{Request, Status, Streaming, service::interceptor::InterceptedService, transport::Channel};

/// Longest wait for a registry, with the broker's own attempts.
const RESOLVE: Duration = Duration::from_secs(120);
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

    /// Asks what an image consists of. May be repeated.
    pub(crate) async fn resolve_image(
        &self,
        image: v1::ResolveImageRequest,
    ) -> Result<v1::ResolveImageResponse, Status> {
        let mut request = Request::new(image);
        request.set_timeout(RESOLVE);
        self.0.clone().resolve_image(request).await.map(tonic::Response::into_inner).map_err(away)
    }

    /// Streams a layer. Its errors come with the first or a later piece.
    pub(crate) async fn pull_layer(
        &self,
        layer: v1::PullLayerRequest,
    ) -> Result<Streaming<v1::PullLayerResponse>, Status> {
        self.0.clone().pull_layer(layer).await.map(tonic::Response::into_inner).map_err(away)
    }

    /// Opens the door of a workspace, or changes what it allows. May be repeated.
    pub(crate) async fn open_egress(&self, door: v1::OpenEgressRequest) -> Result<(), Status> {
        let mut request = Request::new(door);
        request.set_timeout(OPEN);
        self.0.clone().open_egress(request).await.map(drop)
    }
}

/// A broker that does not answer has no code of its own.
pub(crate) fn away(status: Status) -> Status {
    if rpc::status::code_of(&status).is_some() {
        return status;
    }
    tracing::warn!("the broker does not answer: {}", chassis::grpc::tls::explain(&status));
    rpc::status::unavailable("broker_unavailable", "the broker does not answer; try again later")
}
