//! The client of the sandbox service: credentials, trace context and retries in one place.

use chassis::{grpc::backend::Backend, tasks::Tasks};
use domain::{
    ids::{SessionId, TenantId},
    limits,
};
use rpc::{
    client::Bearer,
    status::refuses_token,
    v1::{self, ErrorCode, sandbox_service_client::SandboxServiceClient},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};

/// Time for which a loop waits for its turn among the helpers (clone, diff, removal) of its tenant: as long as one clone may take.
const HELPERS_WAIT: Duration = Duration::from_secs(10 * 60);

pub(crate) type Client = SandboxServiceClient<InterceptedService<Channel, Bearer>>;

/// The start of a sandbox: a task waits for the files, and then gives that of the start itself.
pub(crate) type SandboxStart = AbortOnDropHandle<Option<JoinHandle<()>>>;

/// A handle to the sandbox service; clones share its connection.
#[derive(Clone)]
pub(crate) struct Sandbox(Client);

impl Sandbox {
    pub(crate) fn new(channel: Channel, token: &str) -> anyhow::Result<Self> {
        let client = SandboxServiceClient::with_interceptor(channel, Bearer::new(token)?)
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
        let begun = Instant::now();
        let mut wait = Duration::from_millis(50);
        loop {
            match call(self.client()).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) if patience(&status).is_some_and(|patience| begun.elapsed() < patience) => {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(1));
                }
                Err(status) => {
                    if is_away(&status) {
                        report(&status);
                    }
                    return Err(status);
                }
            }
        }
    }
}

impl Sandbox {
    /// Asks for the id of the service. `None`: it does not answer, or it is of an earlier version.
    pub(crate) async fn find_id(&self) -> Option<String> {
        rpc::client::find_sandbox_id(self.client()).await.inspect_err(report).ok()?
    }

    /// Starts the sandbox process of a session whose files are open. Best effort: the call that needs the process starts it as well, and reports what fails.
    pub(crate) async fn start(&self, identity: &Identity) {
        let request = v1::StartSandboxRequest { fence: identity.fence() };
        if let Err(status) = self.client().start_sandbox(request).await {
            tracing::debug!("cannot start a sandbox: {}", status.message());
        }
    }

    /// Releases the sandbox process of a parked session, after its `start` if one is under way. A start that waits for files is given up. Best effort: the
    /// sandbox service also ends idle sandboxes, and starts one again when it is needed.
    pub(crate) fn release(&self, tasks: &Tasks, identity: &Identity, start: Option<SandboxStart>) {
        let (mut client, request) = (self.client(), v1::ReleaseSandboxRequest { fence: identity.fence() });
        tasks.spawn("sandbox release", async move {
            if let Some(start) = start {
                start.abort();
                // A panic in them is already in the log.
                if let Ok(Some(start)) = start.await {
                    drop(start.await);
                }
            }
            if let Err(status) = client.release_sandbox(request).await {
                tracing::debug!("cannot release a sandbox: {}", status.message());
            }
        });
    }
}

/// Whether the service did not answer, as opposed to refusing the call. One that refuses the token of this process answers nobody.
pub(crate) fn is_away(status: &Status) -> bool {
    if refuses_token(status) {
        return true;
    }
    // A status from the service carries one of our error codes; a status from the connection carries none.
    rpc::status::code_of(status).is_none()
        && matches!(
            status.code(),
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded
        )
}

/// Whether the service refused a call with this code.
pub(crate) fn has_code(status: &Status, code: ErrorCode) -> bool {
    rpc::status::code(status) == Some(code)
}

/// Whether the machine has no files of the session: it lost them, or they were never opened.
pub(crate) fn is_missing(status: &Status) -> bool {
    has_code(status, ErrorCode::WorkspaceMissing)
}

/// Whether the service knows a higher epoch of the session.
pub(crate) fn is_stale(status: &Status) -> bool {
    has_code(status, ErrorCode::EpochStale)
}

/// The error for files that were opened and are gone.
pub(crate) fn lost() -> Status {
    rpc::status::error(ErrorCode::WorkspaceLost, "the sandbox machine lost the files of this session")
}

/// Whether the machine lost the files.
pub(crate) fn is_lost(status: &Status) -> bool {
    has_code(status, ErrorCode::WorkspaceLost)
}

/// Logs why the service did not answer.
fn report(status: &Status) {
    Backend::Sandbox.report(status, refuses_token);
}

/// How long a call may be repeated that the service did not answer or cannot take now: it is full, it is stopping, or all helpers of the
/// tenant are busy. `None`: the call must not be repeated.
fn patience(status: &Status) -> Option<Duration> {
    if is_away(status) {
        return Some(Duration::from_millis(limits::SANDBOX_WAIT_MS));
    }
    match rpc::status::code(status) {
        Some(ErrorCode::SandboxUnavailable) => Some(Duration::from_millis(limits::SANDBOX_WAIT_MS)),
        Some(ErrorCode::HelpersBusy) => Some(HELPERS_WAIT),
        Some(_) | None => None,
    }
}

/// The identity under which a loop calls the sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    /// The session that owns the workspace: the loop's own, or one above it.
    pub(crate) workspace: SessionId,
    /// The opening of that workspace, which all clones share: the loop itself may open the files again.
    pub(crate) opening: Arc<AtomicU32>,
    pub(crate) epoch: u64,
}

impl Identity {
    pub(crate) fn fence(&self) -> Option<v1::Fence> {
        Some(v1::Fence {
            tenant_id: self.tenant.to_string(),
            session_id: self.session.to_string(),
            epoch: self.epoch,
            workspace_session_id: self.workspace.to_string(),
            workspace_opening: Some(self.opening()),
        })
    }

    /// The identity for a call that reads: the sandbox service compares no epoch, so the call shuts out no other caller.
    pub(crate) fn without_epoch(&self) -> Self {
        Self { epoch: 0, ..self.clone() }
    }

    /// The number of the opening that the loop knows.
    pub(crate) fn opening(&self) -> u32 {
        self.opening.load(Ordering::Relaxed)
    }

    /// Counts another opening, after the loop has stored that the files start from their source again.
    pub(crate) fn note_restart(&self) {
        self.opening.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_call_that_must_wait_for_helpers_is_repeated() {
        let channel = chassis::grpc::channel("http://127.0.0.1:1").unwrap();
        let sandbox = Sandbox::new(channel, "a token of the sandbox").unwrap();
        for (code, repeated) in
            [(ErrorCode::HelpersBusy, 2), (ErrorCode::SandboxUnavailable, 2), (ErrorCode::DiskFull, 1)]
        {
            let mut calls = 0;
            let answer = sandbox.call(|_| {
                calls += 1;
                let refused = rpc::status::error(code, "later");
                let answer = if calls == 1 { Err(refused) } else { Ok(tonic::Response::new(())) };
                async { answer }
            });
            assert_eq!(answer.await.is_ok(), repeated == 2, "{code:?}");
            assert_eq!(calls, repeated, "{code:?}");
        }
        let refused = rpc::status::error(ErrorCode::TokenInvalid, "the token is wrong");
        assert!(is_away(&refused), "a mistake of the operator, of which no tenant reads");
        let busy = rpc::status::error(ErrorCode::HelpersBusy, "later");
        assert!(patience(&busy) > patience(&Status::unavailable("no connection")));
    }
}
