//! The connection to the sandbox service, and its refusals. Only this file reads the text of a status code.

use anyhow::Context as _;
use chassis::{
    backends::Backends,
    grpc::{Windows, backend::Backend},
};
use domain::ids::{SessionId, TenantId};
use rpc::{
    client::Bearer,
    status::refuses_token,
    v1::{
        self, ErrorCode, ErrorKind, sandbox_service_client::SandboxServiceClient,
        terminal_service_client::TerminalServiceClient,
    },
};
use store::rows::session_row::Session;
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};

/// A client for files and processes.
pub(crate) type Files = SandboxServiceClient<InterceptedService<Channel, Bearer>>;
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
    pub(in crate::ground) fn connect(backends: &Backends) -> anyhow::Result<Self> {
        let token = Bearer::new(backends.sandbox_token.expose()).context("use the sandbox token")?;
        let channel = backends.sandbox_channel(Windows::CLIENT_STREAMS)?;
        let terminals = TerminalServiceClient::with_interceptor(channel, token.clone());
        let channel = backends.sandbox_channel(Windows::CALLS)?;
        let files = SandboxServiceClient::with_interceptor(channel, token);
        Ok(Self { files: files.max_decoding_message_size(rpc::MESSAGE_BYTES_MAX), terminals })
    }

    /// Asks for the id of the service. `None`: it does not answer, or it is of an earlier version.
    pub(crate) async fn find_id(&self) -> Option<String> {
        rpc::client::find_sandbox_id(self.files()).await.inspect_err(report).ok()?
    }

    /// The client for files and processes.
    pub(crate) fn files(&self) -> Files {
        self.files.clone()
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

/// Why the sandbox refused a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// `None`: only a newer sandbox service knows it.
    pub(crate) code: Option<ErrorCode>,
    /// The code, as it is spelled.
    pub(crate) spelling: String,
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        // A refused token is the operator's mistake, and no tenant's.
        match rpc::status::code_of(&status).filter(|_| !refuses_token(&status)) {
            Some(spelling) => Self {
                code: ErrorCode::parse(&spelling),
                spelling,
                kind: kind(status.code()),
                message: status.message().to_owned(),
            },
            None => {
                report(&status);
                let message = "the sandbox service does not answer; try again later".to_owned();
                let code = ErrorCode::SandboxUnavailable;
                Self { code: Some(code), spelling: code.as_str().to_owned(), kind: code.kind(), message }
            }
        }
    }
}

/// Logs why the service did not answer.
fn report(status: &Status) {
    Backend::Sandbox.report(status, refuses_token);
}

/// What the code of a refusal means.
pub(super) fn kind(code: Code) -> ErrorKind {
    match code {
        Code::InvalidArgument => ErrorKind::Invalid,
        Code::OutOfRange => ErrorKind::OutOfRange,
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::PermissionDenied => ErrorKind::Forbidden,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists => ErrorKind::AlreadyExists,
        Code::FailedPrecondition => ErrorKind::Precondition,
        Code::Aborted => ErrorKind::Aborted,
        Code::ResourceExhausted => ErrorKind::Exhausted,
        Code::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_and_silence_gets_one() {
        for code in ["epoch_stale", "file_not_permitted", "disk_full", "of_a_newer_version"] {
            let refusal = Refusal::from(rpc::status::error_as(Code::FailedPrecondition, code, "why"));
            assert_eq!((refusal.spelling.as_str(), refusal.kind), (code, ErrorKind::Precondition));
            assert_eq!(refusal.code, ErrorCode::parse(code));
            assert_eq!(refusal.message, "why");
        }
        for status in [
            Status::unavailable("connection refused"),
            rpc::status::error(ErrorCode::TokenInvalid, "the token is missing or wrong"),
        ] {
            let silent = Refusal::from(status);
            assert_eq!(
                (silent.code, silent.kind),
                (Some(ErrorCode::SandboxUnavailable), ErrorKind::Unavailable)
            );
            assert!(!silent.message.contains("token"), "{}", silent.message);
        }
    }
}
