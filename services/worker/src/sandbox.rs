//! The client of the sandbox service: credential, trace context and patience in one place.

use domain::{ids::SessionId, ids::TenantId, limits};
use rpc::{
    client::Bearer,
    v1::{self, sandbox_service_client::SandboxServiceClient},
};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};

pub(crate) type Client = SandboxServiceClient<InterceptedService<Channel, Bearer>>;

/// A handle to the sandbox service; clones share its connection.
#[derive(Clone)]
pub(crate) struct Sandbox(Client);

impl Sandbox {
    pub(crate) fn new(url: &str, token: &str) -> anyhow::Result<Self> {
        let client =
            SandboxServiceClient::with_interceptor(chassis::grpc::channel(url)?, Bearer::new(token)?)
                .max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
                .max_encoding_message_size(rpc::MESSAGE_BYTES_MAX);
        Ok(Self(client))
    }

    /// The generated client, for streams.
    pub(crate) fn client(&self) -> Client {
        self.0.clone()
    }

    /// Calls, and calls again while the service does not answer, or has no place. Only for calls that may be repeated.
    pub(crate) async fn call<T, F>(&self, mut call: impl FnMut(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let until = Instant::now() + Duration::from_millis(limits::SANDBOX_WAIT_MS);
        let mut wait = Duration::from_millis(50);
        loop {
            match call(self.client()).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) if (is_away(&status) || is_full(&status)) && Instant::now() < until => {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(1));
                }
                Err(status) => return Err(status),
            }
        }
    }
}

impl Sandbox {
    /// Says that a session is parked, so that it holds no process. Best effort: an idle sandbox ends by itself after a
    /// while, and one that is needed again starts again.
    pub(crate) fn release(&self, identity: &Identity) {
        let (mut client, request) = (self.client(), v1::ReleaseSandboxRequest { fence: identity.fence() });
        tokio::spawn(async move {
            if let Err(status) = client.release_sandbox(request).await {
                tracing::debug!("a sandbox was not released: {}", status.message());
            }
        });
    }
}

/// Whether the service did not answer, as opposed to having refused.
pub(crate) fn is_away(status: &Status) -> bool {
    // A status of the service itself carries a code of ours; one of the connection does not.
    rpc::status::code_of(status).is_none()
        && matches!(
            status.code(),
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded
        )
}

/// Whether the service said that it cannot serve just now: every place is taken, or it is stopping.
fn is_full(status: &Status) -> bool {
    rpc::status::code_of(status).as_deref() == Some("sandbox_unavailable")
}

/// Who a loop is to the sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    /// The session whose workspace it works in: its own, or its root's.
    pub(crate) workspace: SessionId,
    pub(crate) epoch: u64,
}

impl Identity {
    pub(crate) fn fence(&self) -> Option<v1::Fence> {
        Some(v1::Fence {
            tenant_id: self.tenant.to_string(),
            session_id: self.session.to_string(),
            epoch: self.epoch,
            workspace_session_id: self.workspace.to_string(),
        })
    }
}
