//! The scope of a call: takes tenant, session and fence out of a request, so that they are not sent into the sandbox.

use crate::error::Error;
use rpc::v1::{self, ErrorCode};
use std::mem::take;

/// The scope of a call.
pub(super) struct Scope {
    pub(super) tenant: String,
    pub(super) session: String,
    /// The session whose workspace it uses; empty: its own.
    pub(super) workspace: String,
    /// The epoch of a loop. Calls of gateways have none: a gateway owns no session.
    pub(super) epoch: Option<u64>,
    /// The opening of the workspace that the caller knows; `None`: any.
    pub(super) opening: Option<u32>,
    /// For the trace; empty for other calls.
    pub(super) exec_id: String,
}

/// A request of the public API.
pub(super) trait Scoped {
    /// Whether it changes files, so that a successor must not be admitted before it is over.
    const IS_EFFECT: bool = false;
    /// Whether it is about the files of the workspace, so that these must be the ones that the caller knows.
    const USES_FILES: bool;

    fn take_scope(&mut self) -> Result<Scope, Error>;
}

/// `take` takes the scope out of each of these requests.
macro_rules! scoped {
    (effect: $is_effect:literal, files: $uses_files:literal, take: $take:expr, $($request:ident)*) => {$(
        impl Scoped for v1::$request {
            const IS_EFFECT: bool = $is_effect;
            const USES_FILES: bool = $uses_files;

            fn take_scope(&mut self) -> Result<Scope, Error> {
                let take: fn(&mut Self) -> Result<Scope, Error> = $take;
                take(self)
            }
        }
    )*};
}

// Reads of people and gateways.
scoped!(effect: false, files: true, take: |call| {
    let (workspace, opening) = (take(&mut call.workspace_session_id), call.workspace_opening);
    Ok(Scope { opening, ..unfenced(take(&mut call.tenant_id), take(&mut call.session_id), workspace) })
}, DiffWorkspaceRequest ExportWorkspaceRequest);
// Kept outputs are outside any workspace.
scoped!(effect: false, files: false, take: |call| {
    Ok(unfenced(take(&mut call.tenant_id), take(&mut call.session_id), String::new()))
}, GetOutputRequest);
// Calls of loops.
scoped!(effect: false, files: false, take: |call| fenced(call.fence.take(), String::new()),
    GetWorkspaceRequest WorkspaceHeader CloseWorkspaceRequest KillExecsRequest ReleaseSandboxRequest
    BuildEnvironmentRequest);
scoped!(effect: false, files: true, take: |call| fenced(call.fence.take(), String::new()),
    TrackSnapshotRequest DiffSnapshotsRequest RestoreSnapshotRequest RevertFilesRequest KeepPatchRequest
    MergeCopyRequest StartSandboxRequest);
scoped!(effect: false, files: true, take: |call| fenced(call.fence.take(), call.exec_id.clone()), StartExecRequest);
scoped!(effect: false, files: false, take: |call| fenced(call.fence.take(), call.exec_id.clone()),
    AttachExecRequest KillExecRequest);
scoped!(effect: true, files: true, take: |call| fenced(call.fence.take(), String::new()),
    WriteFileRequest RemoveFileRequest);
scoped!(effect: true, files: false, take: |call| fenced(call.fence.take(), String::new()), KeepOutputRequest);
// Calls of loops, and of gateways with epoch 0.
scoped!(effect: false, files: true, take: |call| fenced_unless_zero(call.fence.take()),
    ReadFileRequest ReadLinesRequest ListFilesRequest GlobFilesRequest GrepFilesRequest ReadGuidanceRequest
    ApplyPatchRequest CreateTerminalRequest);
scoped!(effect: false, files: false, take: |call| fenced_unless_zero(call.fence.take()),
    GetOpeningRequest ListTerminalsRequest GetTerminalRequest UpdateTerminalRequest WriteTerminalRequest AttachTerminalRequest
    DeleteTerminalRequest);

fn unfenced(tenant: String, session: String, workspace: String) -> Scope {
    Scope { tenant, session, workspace, epoch: None, opening: None, exec_id: String::new() }
}

/// Epoch 0 belongs to no loop, so it is not checked.
fn fenced_unless_zero(fence: Option<v1::Fence>) -> Result<Scope, Error> {
    let scope = fenced(fence, String::new())?;
    Ok(Scope { epoch: scope.epoch.filter(|epoch| *epoch > 0), ..scope })
}

fn fenced(fence: Option<v1::Fence>, exec_id: String) -> Result<Scope, Error> {
    let missing = || Error::refused(ErrorCode::ArgumentInvalid, "the call needs a fence");
    let fence = fence.ok_or_else(missing)?;
    let v1::Fence { tenant_id, session_id, epoch, workspace_session_id, workspace_opening } = fence;
    Ok(Scope {
        tenant: tenant_id,
        session: session_id,
        workspace: workspace_session_id,
        epoch: Some(epoch),
        opening: workspace_opening,
        exec_id,
    })
}
