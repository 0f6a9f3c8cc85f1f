//! The client of the broker.

use anyhow::Context as _;
use chassis::{backends::BrokerConfig, grpc::backend::Backend};
use domain::limits::WEB_PAGE_BYTES_MAX;
use futures::Stream;
use rpc::{
    client::Bearer,
    v1::{
        self, ErrorCode, broker_service_client::BrokerServiceClient,
        forge_service_client::ForgeServiceClient, read_page_response::Part,
    },
};
use std::time::Duration;
use tonic::{Request, Status, Streaming, service::interceptor::InterceptedService, transport::Channel};

/// Longest wait for a registry, with the broker's own attempts.
const RESOLVE: Duration = Duration::from_secs(120);
/// Longest wait for the broker to open a door: it only writes a small file.
const OPEN: Duration = Duration::from_secs(5);

/// Longest wait for a page: the longest time in which one must arrive, after the longest wait for its turn.
const PAGE: Duration = Duration::from_secs(155);
/// Longest wait for a push, which the broker ends after ten minutes.
const PUSH: Duration = Duration::from_secs(660);

/// The calls about the App at the forge.
pub(crate) type ForgeClient = ForgeServiceClient<InterceptedService<Channel, Bearer>>;

#[derive(Debug)]
pub(crate) struct WebPage {
    /// Its address after all redirects.
    pub(crate) url: String,
    /// Empty: the server sent none.
    pub(crate) media_type: String,
    pub(crate) body: Vec<u8>,
}

/// A handle to the broker; clones share its connection.
#[derive(Clone)]
pub(crate) struct Broker {
    calls: BrokerServiceClient<InterceptedService<Channel, Bearer>>,
    forge: ForgeClient,
}

impl Broker {
    /// Prepares the connection. `None`: this deployment has no broker.
    pub(crate) fn connect(config: &BrokerConfig) -> anyhow::Result<Option<Self>> {
        let Some((channel, token)) = config.channel()? else { return Ok(None) };
        let token = Bearer::new(token).context("use the broker token")?;
        Ok(Some(Self {
            calls: BrokerServiceClient::with_interceptor(channel.clone(), token.clone()),
            forge: ForgeServiceClient::with_interceptor(channel, token),
        }))
    }

    /// The client of the forge.
    pub(crate) fn forge(&self) -> ForgeClient {
        self.forge.clone()
    }

    /// Pushes commits to a repository. May be repeated.
    pub(crate) async fn push(
        &self,
        messages: impl Stream<Item = v1::PushRequest> + Send + 'static,
    ) -> Result<v1::PushResponse, Status> {
        let mut request = Request::new(messages);
        request.set_timeout(PUSH);
        self.calls.clone().push(request).await.map(tonic::Response::into_inner).map_err(away)
    }

    /// Asks what an image consists of. May be repeated.
    pub(crate) async fn resolve_image(
        &self,
        image: v1::ResolveImageRequest,
    ) -> Result<v1::ResolveImageResponse, Status> {
        let mut request = Request::new(image);
        request.set_timeout(RESOLVE);
        self.calls.clone().resolve_image(request).await.map(tonic::Response::into_inner).map_err(away)
    }

    /// Streams a layer. Its errors come with the first or a later piece.
    pub(crate) async fn pull_layer(
        &self,
        layer: v1::PullLayerRequest,
    ) -> Result<Streaming<v1::PullLayerResponse>, Status> {
        self.calls.clone().pull_layer(layer).await.map(tonic::Response::into_inner).map_err(away)
    }

    /// Reads a page of the web under the rules of a door. Dropped midway: the connection is closed.
    pub(crate) async fn read_page(&self, page: v1::ReadPageRequest) -> Result<WebPage, Status> {
        let late = |_| rpc::status::error(ErrorCode::BrokerUnavailable, "the broker does not send the page");
        tokio::time::timeout(PAGE, self.receive_page(page)).await.map_err(late)?
    }

    async fn receive_page(&self, page: v1::ReadPageRequest) -> Result<WebPage, Status> {
        let broken = |text: &str| rpc::status::error(ErrorCode::BrokerUnavailable, text);
        let mut parts = self.calls.clone().read_page(page).await.map_err(away)?.into_inner();
        let (mut head, mut body) = (None, Vec::new());
        while let Some(response) = parts.message().await.map_err(away)? {
            match response.part {
                Some(Part::Head(of_page)) => head = Some(of_page),
                Some(Part::Data(data)) if body.len() + data.len() <= WEB_PAGE_BYTES_MAX => body.extend(data),
                // A broken broker must not fill the memory of a worker.
                Some(Part::Data(_)) => return Err(broken("the broker sent a page that is too long")),
                None => {}
            }
        }
        let v1::PageHead { url, media_type } = head.ok_or_else(|| broken("the broker sent no page"))?;
        Ok(WebPage { url, media_type, body })
    }

    /// Opens the door of a workspace, or changes what it allows. May be repeated.
    pub(crate) async fn open_egress(&self, door: v1::OpenEgressRequest) -> Result<(), Status> {
        let mut request = Request::new(door);
        request.set_timeout(OPEN);
        self.calls.clone().open_egress(request).await.map(drop).map_err(without_mistake)
    }

    /// Opens hosts that people have allowed. May be repeated.
    pub(crate) async fn grant_hosts(&self, grant: v1::GrantHostsRequest) -> Result<(), Status> {
        let mut request = Request::new(grant);
        request.set_timeout(OPEN);
        self.calls.clone().grant_hosts(request).await.map(drop).map_err(without_mistake)
    }
}

/// A broker that does not answer has no code of its own.
pub(crate) fn away(status: Status) -> Status {
    if rpc::status::code_of(&status).is_some() && !rpc::status::refuses_token(&status) {
        return status;
    }
    Backend::Broker.report(&status, rpc::status::refuses_token);
    rpc::status::error(ErrorCode::BrokerUnavailable, "the broker does not answer; try again later")
}

/// Hides the operator's mistake from tenants: a broker that refuses the token of this process counts as away.
fn without_mistake(status: Status) -> Status {
    if rpc::status::refuses_token(&status) { away(status) } else { status }
}
