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
    /// Of every call of a loop. Gateways, which own no session, read, and do what a person would; they have none.
    pub(super) epoch: Option<u64>,
    /// For the trace; empty for other calls.
    pub(super) exec_id: String,
}

/// A request of the public API.
pub(super) trait Scoped {
    /// Whether it changes files, so that no successor may be let in before it is over.
    const IS_EFFECT: bool = false;

    /// Takes the ids out.
    fn take_scope(&mut self) -> Result<Scope, Error>;
}

macro_rules! fenced_execs {
    ($($request:ident)*) => {$(
        impl Scoped for v1::$request {
            fn take_scope(&mut self) -> Result<Scope, Error> {
                fenced(self.fence.take(), self.exec_id.clone())
            }
        }
    )*};
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

macro_rules! fenced {
    ($($request:ident)*) => {$(
        impl Scoped for v1::$request {
            fn take_scope(&mut self) -> Result<Scope, Error> {
                fenced(self.fence.take(), String::new())
            }
        }
    )*};
}

/// Of loops, and of gateways, which say epoch 0: that of no loop, which is not checked.
macro_rules! looks {
    ($($request:ident)*) => {$(
        impl Scoped for v1::$request {
            fn take_scope(&mut self) -> Result<Scope, Error> {
                let scope = fenced(self.fence.take(), String::new())?;
                Ok(Scope { epoch: scope.epoch.filter(|epoch| *epoch > 0), ..scope })
            }
        }
    )*};
}

macro_rules! effects {
    ($($request:ident)*) => {$(
        impl Scoped for v1::$request {
            const IS_EFFECT: bool = true;

            fn take_scope(&mut self) -> Result<Scope, Error> {
                fenced(self.fence.take(), String::new())
            }
        }
    )*};
}

reads!(DiffWorkspaceRequest ExportWorkspaceRequest);
fenced!(GetWorkspaceRequest);
fenced!(TrackSnapshotRequest DiffSnapshotsRequest RestoreSnapshotRequest RevertFilesRequest);
fenced!(WorkspaceHeader CloseWorkspaceRequest KillExecsRequest ReleaseSandboxRequest);
fenced_execs!(StartExecRequest AttachExecRequest KillExecRequest);

effects!(WriteFileRequest RemoveFileRequest KeepOutputRequest);

looks!(ReadFileRequest ReadLinesRequest ListFilesRequest GlobFilesRequest GrepFilesRequest ReadGuidanceRequest);
looks!(ApplyPatchRequest CreateTerminalRequest ListTerminalsRequest GetTerminalRequest);
looks!(UpdateTerminalRequest WriteTerminalRequest AttachTerminalRequest DeleteTerminalRequest);

/// It is outside any workspace.
impl Scoped for v1::GetOutputRequest {
    fn take_scope(&mut self) -> Result<Scope, Error> {
        let (tenant, session) = (take(&mut self.tenant_id), take(&mut self.session_id));
        Ok(Scope { tenant, session, workspace: String::new(), epoch: None, exec_id: String::new() })
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
