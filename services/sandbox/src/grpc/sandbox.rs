//! `SandboxService`: workspaces, execs, files and snapshots.

use super::{
    call::to_status,
    environments, exec, guidance, layers, machine, mirrors,
    open::workspace_parts,
    server::{ResponseStream, STREAM_WAITING_MAX, Server},
};
use crate::{
    error::Error,
    exec::attach,
    session::caller::Caller,
    tree::meta::DIRECTORY,
    workspace::{
        branch,
        changes::{self, ExportForm},
        close,
        open::{ahead, progress, run},
        snapshots::{apply, export, operations},
    },
};
use domain::limits;
use rpc::v1::{self, ErrorCode, ExportHistory, sandbox_service_server::SandboxService};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

#[tonic::async_trait]
impl SandboxService for Server {
    type AttachExecStream = ResponseStream<v1::AttachExecResponse>;
    type BuildEnvironmentStream = environments::BuildStream;
    type InstallWorkspaceStream = environments::InstallStream;
    type ExportWorkspaceStream = ResponseStream<v1::ExportWorkspaceResponse>;

    async fn get_workspace(
        &self,
        request: Request<v1::GetWorkspaceRequest>,
    ) -> Result<Response<v1::GetWorkspaceResponse>, Status> {
        let (call, _) = self.begin("get_workspace", request)?;
        let (root, opening) = (Arc::clone(&call.caller.root), call.caller.opening);
        call.run(async move {
            let found = root.find_workspace().await?;
            let Some(meta) = found.filter(|meta| meta.is_of(opening)) else {
                close::end_leftovers(&root, opening).await?;
                return Ok(v1::GetWorkspaceResponse::default());
            };
            let branch = branch::find(root.tree()).await.unwrap_or_default();
            let (base_commit, directory) = (meta.base_commit, DIRECTORY.to_owned());
            Ok(v1::GetWorkspaceResponse { exists: true, base_commit, directory, branch })
        })
        .await
    }

    async fn get_opening(
        &self,
        request: Request<v1::GetOpeningRequest>,
    ) -> Result<Response<v1::GetOpeningResponse>, Status> {
        let (call, _) = self.begin("get_opening", request)?;
        let root = Arc::clone(&call.caller.root);
        call.read(async move { progress::read(&root).await }).await
    }

    async fn clone_source(
        &self,
        request: Request<Streaming<v1::CloneSourceRequest>>,
    ) -> Result<Response<v1::CloneSourceResponse>, Status> {
        let request = workspace_parts(request, |part| part.workspace.unwrap_or_default());
        let (call, spec) = self.begin_opening("clone_source", request, true).await?;
        let root = Arc::clone(&call.caller.root);
        call.perform(|left| async move {
            let cloned = match &spec {
                Some(spec) => ahead::run(&root, spec, &left).await?,
                None => None,
            };
            Ok(cloned.unwrap_or_default())
        })
        .await
    }

    async fn open_workspace(
        &self,
        request: Request<Streaming<v1::OpenWorkspaceRequest>>,
    ) -> Result<Response<v1::OpenWorkspaceResponse>, Status> {
        let request = workspace_parts(request, |part| part);
        let (call, spec) = self.begin_opening("open_workspace", request, true).await?;
        let (root, opening) = (Arc::clone(&call.caller.root), call.caller.opening);
        call.perform(|left| async move {
            let (created, meta) = match &spec {
                Some(spec) => run::run(&root, spec, &left).await?,
                None => (false, root.workspace().await?),
            };
            // The caller may know less than the one that opened the files again.
            meta.require(opening)?;
            let branch = branch::find(root.tree()).await.unwrap_or_default();
            let (base_commit, directory) = (meta.base_commit, DIRECTORY.to_owned());
            Ok(v1::OpenWorkspaceResponse { created, base_commit, directory, branch })
        })
        .await
    }

    async fn install_workspace(
        &self,
        request: Request<Streaming<v1::InstallWorkspaceRequest>>,
    ) -> Result<Response<Self::InstallWorkspaceStream>, Status> {
        let request = workspace_parts(request, |part| part.workspace.unwrap_or_default());
        let (call, spec) = self.begin_opening("install_workspace", request, false).await?;
        let root = Arc::clone(&call.caller.root);
        call.perform(|left| async move { Box::pin(environments::install(&root, spec, &left)).await }).await
    }

    async fn close_workspace(
        &self,
        request: Request<v1::CloseWorkspaceRequest>,
    ) -> Result<Response<v1::CloseWorkspaceResponse>, Status> {
        let (call, _) = self.begin("close_workspace", request)?;
        let session = Arc::clone(&call.caller.session);
        call.run(async move { close::run(&session).await.map(|()| v1::CloseWorkspaceResponse {}) }).await
    }

    async fn start_exec(
        &self,
        request: Request<v1::StartExecRequest>,
    ) -> Result<Response<v1::StartExecResponse>, Status> {
        let (call, message) = self.begin("start_exec", request)?;
        let caller = call.caller.clone();
        call.run(async move { exec::start(&caller, message).await }).await
    }

    async fn attach_exec(
        &self,
        request: Request<v1::AttachExecRequest>,
    ) -> Result<Response<Self::AttachExecStream>, Status> {
        let (call, message) = self.begin("attach_exec", request)?;
        let caller = call.caller.clone();
        call.read(async move {
            let source = exec::find(&caller, &message.exec_id).await?;
            let (to, answers) = mpsc::channel(STREAM_WAITING_MAX);
            caller.session.shared.tasks.spawn("attach", attach::run(source, message.from_offset_bytes, to));
            Ok(Box::pin(ReceiverStream::new(answers)) as Self::AttachExecStream)
        })
        .await
    }

    async fn kill_exec(
        &self,
        request: Request<v1::KillExecRequest>,
    ) -> Result<Response<v1::KillExecResponse>, Status> {
        let (call, message) = self.begin("kill_exec", request)?;
        let caller = call.caller.clone();
        call.run(async move { exec::kill(&caller, &message.exec_id).await }).await
    }

    async fn kill_execs(
        &self,
        request: Request<v1::KillExecsRequest>,
    ) -> Result<Response<v1::KillExecsResponse>, Status> {
        let (call, _) = self.begin("kill_execs", request)?;
        let caller = call.caller.clone();
        call.run(async move {
            // A late call must not end an exec that a successor attached to.
            let _right = caller.hold().await?;
            Ok(v1::KillExecsResponse { was_running: caller.session.kill_all().await })
        })
        .await
    }

    async fn start_sandbox(
        &self,
        request: Request<v1::StartSandboxRequest>,
    ) -> Result<Response<v1::StartSandboxResponse>, Status> {
        let (call, _) = self.begin("start_sandbox", request)?;
        let caller = call.caller.clone();
        call.run(async move { caller.start().await.map(|()| v1::StartSandboxResponse {}) }).await
    }

    async fn release_sandbox(
        &self,
        request: Request<v1::ReleaseSandboxRequest>,
    ) -> Result<Response<v1::ReleaseSandboxResponse>, Status> {
        let (call, _) = self.begin("release_sandbox", request)?;
        let caller = call.caller.clone();
        call.run(async move {
            // A late call must not end the background processes of a successor.
            let _right = caller.hold().await?;
            Ok(v1::ReleaseSandboxResponse { ended: caller.session.release().await })
        })
        .await
    }

    async fn keep_output(
        &self,
        request: Request<v1::KeepOutputRequest>,
    ) -> Result<Response<v1::KeepOutputResponse>, Status> {
        let (call, message) = self.begin("keep_output", request)?;
        let caller = call.caller.clone();
        call.run(async move { exec::keep(&caller, message).await }).await
    }

    async fn keep_patch(
        &self,
        request: Request<v1::KeepPatchRequest>,
    ) -> Result<Response<v1::KeepPatchResponse>, Status> {
        let (call, message) = self.begin("keep_patch", request)?;
        let caller = call.caller.clone();
        call.run(async move { exec::keep_patch(&caller, message).await }).await
    }

    async fn merge_copy(
        &self,
        request: Request<v1::MergeCopyRequest>,
    ) -> Result<Response<v1::MergeCopyResponse>, Status> {
        let (call, message) = self.begin("merge_copy", request)?;
        let caller = call.caller.clone();
        // The tenant is that of the caller: nothing of another tenant is merged.
        let copy = self.sessions.get(&caller.session.key.tenant.to_string(), &message.copy_session_id);
        let copy = copy.map_err(|error| to_status("merge_copy", &error))?;
        let opening = message.copy_opening;
        let copy = Caller { session: Arc::clone(&copy), root: copy, epoch: None, opening };
        call.run(async move { exec::merge_copy(&caller, &copy, message).await }).await
    }

    async fn get_output(
        &self,
        request: Request<v1::GetOutputRequest>,
    ) -> Result<Response<v1::GetOutputResponse>, Status> {
        let (call, message) = self.begin("get_output", request)?;
        let session = Arc::clone(&call.caller.session);
        call.read(async move { exec::get_output(&session, &message.path).await }).await
    }

    async fn read_file(
        &self,
        request: Request<v1::ReadFileRequest>,
    ) -> Result<Response<v1::ReadFileResponse>, Status> {
        self.file(request).await
    }

    async fn read_lines(
        &self,
        request: Request<v1::ReadLinesRequest>,
    ) -> Result<Response<v1::ReadLinesResponse>, Status> {
        self.file(request).await
    }

    async fn write_file(
        &self,
        request: Request<v1::WriteFileRequest>,
    ) -> Result<Response<v1::WriteFileResponse>, Status> {
        self.file(request).await
    }

    async fn remove_file(
        &self,
        request: Request<v1::RemoveFileRequest>,
    ) -> Result<Response<v1::RemoveFileResponse>, Status> {
        self.file(request).await
    }

    async fn list_files(
        &self,
        request: Request<v1::ListFilesRequest>,
    ) -> Result<Response<v1::ListFilesResponse>, Status> {
        self.file(request).await
    }

    async fn glob_files(
        &self,
        request: Request<v1::GlobFilesRequest>,
    ) -> Result<Response<v1::GlobFilesResponse>, Status> {
        self.file(request).await
    }

    async fn grep_files(
        &self,
        request: Request<v1::GrepFilesRequest>,
    ) -> Result<Response<v1::GrepFilesResponse>, Status> {
        self.file(request).await
    }

    async fn read_guidance(
        &self,
        request: Request<v1::ReadGuidanceRequest>,
    ) -> Result<Response<v1::ReadGuidanceResponse>, Status> {
        let (call, message) = self.begin("read_guidance", request)?;
        let caller = call.caller.clone();
        call.read(async move { guidance::read(&caller, message).await }).await
    }

    async fn diff_workspace(
        &self,
        request: Request<v1::DiffWorkspaceRequest>,
    ) -> Result<Response<v1::DiffWorkspaceResponse>, Status> {
        let (call, message) = self.begin("diff_workspace", request)?;
        let root = Arc::clone(&call.caller.root);
        let bytes_max = match message.bytes_max as usize {
            0 => limits::DIFF_BYTES_MAX,
            requested => requested.min(limits::DIFF_BYTES_MAX),
        };
        call.read(async move { changes::diff(&root, &message.from_commit, bytes_max).await }).await
    }

    async fn apply_patch(
        &self,
        request: Request<v1::ApplyPatchRequest>,
    ) -> Result<Response<v1::ApplyPatchResponse>, Status> {
        let (call, message) = self.begin("apply_patch", request)?;
        let caller = call.caller.clone();
        call.run(async move {
            // A successor must not be admitted before an effect of a loop is over, and this call does not hold a permit
            // for that.
            if caller.epoch.is_some() {
                return Err(Error::refused(
                    ErrorCode::ArgumentInvalid,
                    "a loop cannot apply a patch; send epoch 0",
                ));
            }
            apply::run(&caller.root, message.patch.as_bytes()).await.map(|()| v1::ApplyPatchResponse {})
        })
        .await
    }

    async fn track_snapshot(
        &self,
        request: Request<v1::TrackSnapshotRequest>,
    ) -> Result<Response<v1::TrackSnapshotResponse>, Status> {
        let (call, _) = self.begin("track_snapshot", request)?;
        let root = Arc::clone(&call.caller.root);
        call.run(async move { operations::track(&root).await }).await
    }

    async fn diff_snapshots(
        &self,
        request: Request<v1::DiffSnapshotsRequest>,
    ) -> Result<Response<v1::DiffSnapshotsResponse>, Status> {
        let (call, message) = self.begin("diff_snapshots", request)?;
        let root = Arc::clone(&call.caller.root);
        // A comparison with the current files keeps them as a snapshot, which the next call needs.
        let keeps = message.to_snapshot.is_empty();
        let work = async move { operations::diff(&root, &message).await };
        if keeps { call.run(work).await } else { call.read(work).await }
    }

    async fn restore_snapshot(
        &self,
        request: Request<v1::RestoreSnapshotRequest>,
    ) -> Result<Response<v1::RestoreSnapshotResponse>, Status> {
        let (call, message) = self.begin("restore_snapshot", request)?;
        let caller = call.caller.clone();
        call.run(async move {
            let restored = operations::restore(&caller, &message.snapshot);
            Ok(v1::RestoreSnapshotResponse { previous_snapshot: restored.await? })
        })
        .await
    }

    async fn revert_files(
        &self,
        request: Request<v1::RevertFilesRequest>,
    ) -> Result<Response<v1::RevertFilesResponse>, Status> {
        let (call, message) = self.begin("revert_files", request)?;
        let caller = call.caller.clone();
        call.run(async move {
            let reverted = operations::revert(&caller, message.files);
            Ok(v1::RevertFilesResponse { previous_snapshot: reverted.await? })
        })
        .await
    }

    async fn export_workspace(
        &self,
        request: Request<v1::ExportWorkspaceRequest>,
    ) -> Result<Response<Self::ExportWorkspaceStream>, Status> {
        let (call, message) = self.begin("export_workspace", request)?;
        let root = Arc::clone(&call.caller.root);
        call.read(async move {
            let (to, answers) = mpsc::channel(STREAM_WAITING_MAX);
            let tasks = root.shared.tasks.clone();
            tasks.spawn("export", async move {
                let export = async {
                    match message.history() {
                        ExportHistory::Whole => export::run(&root, &message.snapshot, &to).await,
                        ExportHistory::Unspecified => {
                            changes::export(&root, ExportForm::of(&message), &to).await
                        }
                    }
                };
                let exported = tokio::select! {
                    exported = export => exported,
                    () = to.closed() => return,
                };
                if let Err(error) = exported {
                    drop(to.send(Err(to_status("export_workspace", &error))).await);
                }
            });
            Ok(Box::pin(ReceiverStream::new(answers)) as Self::ExportWorkspaceStream)
        })
        .await
    }

    async fn put_layer(
        &self,
        request: Request<Streaming<v1::PutLayerRequest>>,
    ) -> Result<Response<v1::PutLayerResponse>, Status> {
        let put = layers::put(&self.sessions.shared, request.into_inner()).await;
        put.map(Response::new).map_err(|error| to_status("put_layer", &error))
    }

    async fn check_layers(
        &self,
        request: Request<v1::CheckLayersRequest>,
    ) -> Result<Response<v1::CheckLayersResponse>, Status> {
        let checked = layers::check(&self.sessions.shared, request.into_inner()).await;
        checked.map(Response::new).map_err(|error| to_status("check_layers", &error))
    }

    async fn build_environment(
        &self,
        request: Request<v1::BuildEnvironmentRequest>,
    ) -> Result<Response<Self::BuildEnvironmentStream>, Status> {
        let (call, message) = self.begin("build_environment", request)?;
        let caller = call.caller.clone();
        call.read(async move { environments::build(&caller, message).await }).await
    }

    async fn find_environments(
        &self,
        request: Request<v1::FindEnvironmentsRequest>,
    ) -> Result<Response<v1::FindEnvironmentsResponse>, Status> {
        let found = environments::find(&self.sessions.shared, request.into_inner()).await;
        found.map(Response::new).map_err(|error| to_status("find_environments", &error))
    }

    async fn read_environment_log(
        &self,
        request: Request<v1::ReadEnvironmentLogRequest>,
    ) -> Result<Response<v1::ReadEnvironmentLogResponse>, Status> {
        let read = environments::read_log(&self.sessions.shared, request.into_inner()).await;
        read.map(Response::new).map_err(|error| to_status("read_environment_log", &error))
    }

    async fn drop_environment(
        &self,
        request: Request<v1::DropEnvironmentRequest>,
    ) -> Result<Response<v1::DropEnvironmentResponse>, Status> {
        let dropped = environments::remove(&self.sessions.shared, request.into_inner()).await;
        dropped.map(Response::new).map_err(|error| to_status("drop_environment", &error))
    }

    async fn list_workspaces(
        &self,
        request: Request<v1::ListWorkspacesRequest>,
    ) -> Result<Response<v1::ListWorkspacesResponse>, Status> {
        let listed = machine::list(&self.sessions, request.into_inner().cursor).await;
        listed.map(Response::new).map_err(|error| to_status("list_workspaces", &error))
    }

    async fn list_mirrors(
        &self,
        request: Request<v1::ListMirrorsRequest>,
    ) -> Result<Response<v1::ListMirrorsResponse>, Status> {
        Ok(Response::new(mirrors::list(&self.sessions.shared, &request.get_ref().cursor)))
    }

    async fn read_source(
        &self,
        request: Request<Streaming<v1::ReadSourceRequest>>,
    ) -> Result<Response<v1::ReadSourceResponse>, Status> {
        self.read_of_source(request).await
    }

    async fn drop_mirrors(
        &self,
        request: Request<v1::DropMirrorsRequest>,
    ) -> Result<Response<v1::DropMirrorsResponse>, Status> {
        let dropped = mirrors::remove(&self.sessions.shared, request.get_ref());
        dropped.map(Response::new).map_err(|error| to_status("drop_mirrors", &error))
    }

    async fn close_tenant(
        &self,
        request: Request<v1::CloseTenantRequest>,
    ) -> Result<Response<v1::CloseTenantResponse>, Status> {
        let closed = machine::close(&self.sessions, &request.get_ref().tenant_id).await;
        let response = |()| Response::new(v1::CloseTenantResponse {});
        closed.map(response).map_err(|error| to_status("close_tenant", &error))
    }

    async fn get_isolation(
        &self,
        _: Request<v1::GetIsolationRequest>,
    ) -> Result<Response<v1::GetIsolationResponse>, Status> {
        Ok(Response::new(self.isolation.clone()))
    }
}
