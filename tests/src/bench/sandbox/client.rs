//! The sandbox service of a stack, as workers call it.

use crate::{Stack, settings::SANDBOX_TOKEN};
use rpc::{
    client::Bearer,
    v1::{self, sandbox_service_client::SandboxServiceClient},
};
use tonic::{service::interceptor::InterceptedService, transport::Channel};

pub(super) type Client = SandboxServiceClient<InterceptedService<Channel, Bearer>>;

/// Connects to the service of a stack.
pub(super) async fn connect(stack: &Stack) -> Client {
    let url = stack.settings.sandbox_url.clone();
    let channel = Channel::from_shared(url).expect("a URL").tcp_nodelay(true).connect().await;
    let bearer = Bearer::new(SANDBOX_TOKEN).expect("a token");
    SandboxServiceClient::with_interceptor(channel.expect("a sandbox service"), bearer)
}

/// Returns whether the machine can join the layers of images.
pub(super) async fn joins_layers(mut client: Client) -> bool {
    let isolation = client.get_isolation(v1::GetIsolationRequest {}).await.expect("the isolation");
    let images = isolation.into_inner().properties.remove("images").unwrap_or_default();
    !images.starts_with("unsupported")
}
