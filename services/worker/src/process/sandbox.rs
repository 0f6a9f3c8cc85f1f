//! The client of the sandbox service: credentials, trace context and retries in one place.

use domain::{
    ids::{SessionId, TenantId},
    limits,
};
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

    /// Makes a call, and repeats it while the service does not answer or has no capacity. Only for calls that may be repeated.
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
    /// Releases the sandbox process of a parked session. Best effort: the sandbox service also ends idle sandboxes, and starts
    /// one again when it is needed.
    pub(crate) fn release(&self, identity: &Identity) {
        let (mut client, request) = (self.client(), v1::ReleaseSandboxRequest { fence: identity.fence() });
        tokio::spawn(async move {
            if let Err(status) = client.release_sandbox(request).await {
                tracing::debug!("cannot release a sandbox: {}", status.message());
            }
        });
    }
}

/// Whether the service did not answer, as opposed to refusing the call.
pub(crate) fn is_away(status: &Status) -> bool {
    // A status from the service carries one of our error codes; a status from the connection carries none.
    rpc::status::code_of(status).is_none()
        && matches!(
            status.code(),
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded
        )
}

/// Whether the service cannot take the call now: it is full, or it is stopping.
fn is_full(status: &Status) -> bool {
    rpc::status::code_of(status).as_deref() == Some("sandbox_unavailable")
}

/// The identity under which a loop calls the sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    /// The session that owns the workspace: the loop's own, or its root.
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
