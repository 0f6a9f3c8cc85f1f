//! The calls of the sandbox service for files and processes. Only this file reaches their client. The calls of clients that read files
//! of sessions are those of a [`FileReader`], which has a turn: a tenant that reads without end rests between them.

use crate::{errors::error::Error, memory::room::Room};
use domain::ids::TenantId;
use futures::Stream;
use rpc::{
    client::Bearer,
    v1::{self, sandbox_service_client::SandboxServiceClient},
};
use shares::Permit;
use std::sync::Arc;
use tonic::{Status, Streaming, service::interceptor::InterceptedService, transport::Channel};

type Client = SandboxServiceClient<InterceptedService<Channel, Bearer>>;
type Answer<T> = Result<T, Status>;

/// The turns to read files of sessions.
#[derive(Debug, Clone)]
pub(crate) struct FileReads {
    client: Client,
    room: Arc<Room>,
}

impl FileReads {
    /// Waits for a turn of the tenant.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn take(&self, tenant: TenantId) -> Result<FileReader, Error> {
        let turn = self.room.file_read(tenant).await?;
        Ok(FileReader { client: self.client.clone(), _turn: Some(turn) })
    }

    /// A reader without a turn, for prompts: they do not wait for one.
    pub(crate) fn for_prompt(&self) -> FileReader {
        FileReader { client: self.client.clone(), _turn: None }
    }
}

/// Reads files of sessions. The turn ends when the reader is dropped.
#[derive(Debug)]
pub(crate) struct FileReader {
    client: Client,
    _turn: Option<Permit>,
}

impl FileReader {
    pub(crate) async fn diff_workspace(
        &self,
        request: v1::DiffWorkspaceRequest,
    ) -> Answer<v1::DiffWorkspaceResponse> {
        Ok(self.client.clone().diff_workspace(request).await?.into_inner())
    }

    pub(crate) async fn glob_files(&self, request: v1::GlobFilesRequest) -> Answer<v1::GlobFilesResponse> {
        Ok(self.client.clone().glob_files(request).await?.into_inner())
    }

    pub(crate) async fn grep_files(&self, request: v1::GrepFilesRequest) -> Answer<v1::GrepFilesResponse> {
        Ok(self.client.clone().grep_files(request).await?.into_inner())
    }

    pub(crate) async fn read_file(&self, request: v1::ReadFileRequest) -> Answer<v1::ReadFileResponse> {
        Ok(self.client.clone().read_file(request).await?.into_inner())
    }

    pub(crate) async fn read_guidance(
        &self,
        request: v1::ReadGuidanceRequest,
    ) -> Answer<v1::ReadGuidanceResponse> {
        Ok(self.client.clone().read_guidance(request).await?.into_inner())
    }

    pub(crate) async fn read_lines(&self, request: v1::ReadLinesRequest) -> Answer<v1::ReadLinesResponse> {
        Ok(self.client.clone().read_lines(request).await?.into_inner())
    }
}

/// The calls that read no files for clients. Clones share the connection.
#[derive(Debug, Clone)]
pub(crate) struct Files(Client);

impl Files {
    pub(super) fn new(client: Client) -> Self {
        Self(client.max_decoding_message_size(rpc::MESSAGE_BYTES_MAX))
    }

    /// The reads, which take turns in `room`.
    pub(crate) fn reads(&self, room: Arc<Room>) -> FileReads {
        FileReads { client: self.0.clone(), room }
    }

    /// The id of the service. `None`: it is of an earlier version.
    pub(super) async fn find_id(&self) -> Answer<Option<String>> {
        rpc::client::find_sandbox_id(self.0.clone()).await
    }

    pub(crate) async fn clone_source(
        &self,
        parts: impl Stream<Item = v1::CloneSourceRequest> + Send + 'static,
    ) -> Answer<v1::CloneSourceResponse> {
        Ok(self.0.clone().clone_source(parts).await?.into_inner())
    }

    pub(crate) async fn open_workspace(
        &self,
        parts: impl Stream<Item = v1::OpenWorkspaceRequest> + Send + 'static,
    ) -> Answer<v1::OpenWorkspaceResponse> {
        Ok(self.0.clone().open_workspace(parts).await?.into_inner())
    }

    pub(crate) async fn export_workspace(
        &self,
        request: v1::ExportWorkspaceRequest,
    ) -> Answer<Streaming<v1::ExportWorkspaceResponse>> {
        Ok(self.0.clone().export_workspace(request).await?.into_inner())
    }

    pub(crate) async fn get_isolation(
        &self,
        request: v1::GetIsolationRequest,
    ) -> Answer<v1::GetIsolationResponse> {
        Ok(self.0.clone().get_isolation(request).await?.into_inner())
    }

    pub(crate) async fn close_workspace(
        &self,
        request: v1::CloseWorkspaceRequest,
    ) -> Answer<v1::CloseWorkspaceResponse> {
        Ok(self.0.clone().close_workspace(request).await?.into_inner())
    }

    pub(crate) async fn kill_execs(&self, request: v1::KillExecsRequest) -> Answer<v1::KillExecsResponse> {
        Ok(self.0.clone().kill_execs(request).await?.into_inner())
    }

    pub(crate) async fn get_output(&self, request: v1::GetOutputRequest) -> Answer<v1::GetOutputResponse> {
        Ok(self.0.clone().get_output(request).await?.into_inner())
    }

    pub(crate) async fn apply_patch(&self, request: v1::ApplyPatchRequest) -> Answer<v1::ApplyPatchResponse> {
        Ok(self.0.clone().apply_patch(request).await?.into_inner())
    }

    pub(crate) async fn track_snapshot(
        &self,
        request: v1::TrackSnapshotRequest,
    ) -> Answer<v1::TrackSnapshotResponse> {
        Ok(self.0.clone().track_snapshot(request).await?.into_inner())
    }

    pub(crate) async fn diff_snapshots(
        &self,
        request: v1::DiffSnapshotsRequest,
    ) -> Answer<v1::DiffSnapshotsResponse> {
        Ok(self.0.clone().diff_snapshots(request).await?.into_inner())
    }

    pub(crate) async fn restore_snapshot(
        &self,
        request: v1::RestoreSnapshotRequest,
    ) -> Answer<v1::RestoreSnapshotResponse> {
        Ok(self.0.clone().restore_snapshot(request).await?.into_inner())
    }

    pub(crate) async fn revert_files(
        &self,
        request: v1::RevertFilesRequest,
    ) -> Answer<v1::RevertFilesResponse> {
        Ok(self.0.clone().revert_files(request).await?.into_inner())
    }

    pub(crate) async fn find_environments(
        &self,
        request: v1::FindEnvironmentsRequest,
    ) -> Answer<v1::FindEnvironmentsResponse> {
        Ok(self.0.clone().find_environments(request).await?.into_inner())
    }

    pub(crate) async fn read_environment_log(
        &self,
        request: v1::ReadEnvironmentLogRequest,
    ) -> Answer<v1::ReadEnvironmentLogResponse> {
        Ok(self.0.clone().read_environment_log(request).await?.into_inner())
    }

    pub(crate) async fn drop_environment(
        &self,
        request: v1::DropEnvironmentRequest,
    ) -> Answer<v1::DropEnvironmentResponse> {
        Ok(self.0.clone().drop_environment(request).await?.into_inner())
    }
}
