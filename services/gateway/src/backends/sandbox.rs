//! The connection to the sandbox service.

use super::files::Files;
use crate::errors::refusal;
use anyhow::Context as _;
use chassis::{backends::Backends, grpc::Windows};
use domain::ids::{SessionId, TenantId};
use rpc::{
    client::Bearer,
    v1::{
        self, sandbox_service_client::SandboxServiceClient, terminal_service_client::TerminalServiceClient,
    },
};
use store::rows::session_row::Session;
use tonic::{service::interceptor::InterceptedService, transport::Channel};

pub(crate) type Terminals = TerminalServiceClient<InterceptedService<Channel, Bearer>>;

/// The connections; clones share them. Terminals have their own: their clients may leave output unread, which must not stall other calls.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    files: Files,
    terminals: Terminals,
}

impl Sandbox {
    /// Prepares the connections, which their first calls establish.
    ///
    /// # Errors
    /// If the URL, the CA or the token is invalid.
    pub(crate) fn connect(backends: &Backends) -> anyhow::Result<Self> {
        let token = Bearer::new(backends.sandbox_token.expose()).context("use the sandbox token")?;
        let channel = backends.sandbox_channel(Windows::CLIENT_STREAMS)?;
        let terminals = TerminalServiceClient::with_interceptor(channel, token.clone());
        let channel = backends.sandbox_channel(Windows::CALLS)?;
        let files = SandboxServiceClient::with_interceptor(channel, token);
        Ok(Self { files: Files::new(files), terminals })
    }

    /// Asks for the id of the service. `None`: it does not answer, or it is of an earlier version.
    pub(crate) async fn find_id(&self) -> Option<String> {
        self.files.find_id().await.inspect_err(refusal::report).ok()?
    }

    /// The calls for files and processes.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    pub(crate) fn terminals(&self) -> Terminals {
        self.terminals.clone()
    }
}

/// The reference to a session's files for the sandbox. With epoch 0, because a gateway owns no session.
pub(crate) fn fence(tenant: TenantId, session: &Session) -> v1::Fence {
    v1::Fence {
        workspace_session_id: session.workspace_id.to_string(),
        workspace_opening: Some(session.workspace_opening),
        ..own_fence(tenant, &session.info.id, 0)
    }
}

/// The reference to a session's own files, of any opening.
pub(crate) fn own_fence(tenant: TenantId, session: &SessionId, epoch: u64) -> v1::Fence {
    v1::Fence {
        tenant_id: tenant.to_string(),
        session_id: session.to_string(),
        epoch,
        workspace_session_id: String::new(),
        workspace_opening: None,
    }
}

/// The request for an export of a session's files as they are now, on top of its base commit, without a message for the commit.
pub(crate) fn export(tenant: TenantId, session: &Session) -> v1::ExportWorkspaceRequest {
    v1::ExportWorkspaceRequest {
        tenant_id: tenant.to_string(),
        session_id: session.info.id.to_string(),
        workspace_session_id: session.workspace_id.to_string(),
        workspace_opening: Some(session.workspace_opening),
        ..Default::default()
    }
}
