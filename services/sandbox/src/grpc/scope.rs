//! Whose call it is: takes tenant, session and fence out of a request, so that they do not travel into the sandbox.

use crate::{code::Code, error::Error};
use rpc::v1;
use std::mem::take;

/// Whose call it is.
pub(super) struct Scope {
    pub(super) tenant: String,
    pub(super) session: String,
    /// Whose workspace it uses; empty: its own.
    pub(super) workspace: String,
    /// Of calls that change something.
    pub(super) epoch: Option<u64>,
    /// For the trace; empty for other calls.
    pub(super) exec_id: String,
}

/// A request of the public API.
pub(super) trait Scoped {
    /// Takes the ids out.
    fn take_scope(&mut self) -> Result<Scope, Error>;
}

macro_rules! reads {
    ($($request:ident)*) => {$(
        impl Scoped for v1::$request {
            fn take_scope(&mut self) -> Result<Scope, Error> {
                let (tenant, session) = (take(&mut self.tenant_id), take(&mut self.session_id));
                let workspace = take(&mut self.workspace_session_id);
                Ok(Scope { tenant, session, workspace, epoch: None, exec_id: String::new() })
            }
        }
    )*};
}

macro_rules! writes {
    ($($request:ident)*) => {$(
        impl Scoped for v1::$request {
            fn take_scope(&mut self) -> Result<Scope, Error> {
                fenced(self.fence.take(), String::new())
            }
        }
    )*};
}

reads!(GetWorkspaceRequest ReadFileRequest ReadLinesRequest ListFilesRequest GlobFilesRequest GrepFilesRequest);
reads!(DiffWorkspaceRequest ExportWorkspaceRequest);
writes!(WorkspaceHeader CloseWorkspaceRequest WriteFileRequest KillExecsRequest ReleaseSandboxRequest);

impl Scoped for v1::AttachExecRequest {
    fn take_scope(&mut self) -> Result<Scope, Error> {
        let (tenant, session) = (take(&mut self.tenant_id), take(&mut self.session_id));
        // Execs are the session's own, wherever it works.
        Ok(Scope { tenant, session, workspace: String::new(), epoch: None, exec_id: self.exec_id.clone() })
    }
}

impl Scoped for v1::StartExecRequest {
    fn take_scope(&mut self) -> Result<Scope, Error> {
        fenced(self.fence.take(), self.exec_id.clone())
    }
}

impl Scoped for v1::KillExecRequest {
    fn take_scope(&mut self) -> Result<Scope, Error> {
        fenced(self.fence.take(), self.exec_id.clone())
    }
}

fn fenced(fence: Option<v1::Fence>, exec_id: String) -> Result<Scope, Error> {
    let missing = || Error::refused(Code::ArgumentInvalid, "the call needs a fence");
    let v1::Fence { tenant_id, session_id, epoch, workspace_session_id } = fence.ok_or_else(missing)?;
    Ok(Scope {
        tenant: tenant_id,
        session: session_id,
        workspace: workspace_session_id,
        epoch: Some(epoch),
        exec_id,
    })
}
