//! `ProjectService`: repositories, their worktrees, and the bundles that clients upload for them.

use super::{
    convert,
    service::{Service, principal},
    status::{id, respond, to_status},
};
use crate::{
    app::projects::{
        bundles::{self, BundleHeader, BundleUpload},
        manage::{self, CreatedProject, Match, PlacedSource},
        place::RepositoryLocation,
        uploaded::{self, UploadedSource},
        worktrees::{self, WorktreeRequest},
    },
    errors::{entity::Entity, invalid::Invalid},
};
use rpc::v1::{self, project_service_server::ProjectService, upload_bundle_request::Part};
use store::tenant::{bundles::BundleHead, worktrees::Worktree};
use tonic::{Request, Response, Status, Streaming};

fn placed(source: Option<v1::Source>, place: Option<v1::Place>) -> PlacedSource {
    let v1::Place { directory, remote, root_commit } = place.unwrap_or_default();
    let source = convert::from_source(source, &remote);
    PlacedSource { source, place: RepositoryLocation { directory, remote, root_commit } }
}

fn worktree(Worktree { directory, name, branch, .. }: Worktree) -> v1::Worktree {
    v1::Worktree { directory, name, branch }
}

#[tonic::async_trait]
impl ProjectService for Service {
    async fn create_project(
        &self,
        request: Request<v1::CreateProjectRequest>,
    ) -> Result<Response<v1::CreateProjectResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let source = placed(request.source, request.place);
        let matching = if request.or_at_place { Match::Place } else { Match::Name };
        respond(manage::create(&self.0, &principal, &request.name, &source, matching).await, |created| {
            let CreatedProject { project, is_elsewhere } = created;
            v1::CreateProjectResponse { project: Some(convert::project(project)), is_elsewhere }
        })
    }

    async fn delete_project(
        &self,
        request: Request<v1::DeleteProjectRequest>,
    ) -> Result<Response<v1::DeleteProjectResponse>, Status> {
        let principal = principal(&request)?;
        let id = id(&request.get_ref().project_id, Entity::Project)?;
        respond(manage::delete(&self.0, &principal, &id).await, |()| v1::DeleteProjectResponse {})
    }

    async fn get_project(
        &self,
        request: Request<v1::GetProjectRequest>,
    ) -> Result<Response<v1::GetProjectResponse>, Status> {
        let principal = principal(&request)?;
        let id = id(&request.get_ref().project_id, Entity::Project)?;
        let project = manage::get(&self.0, &principal, &id).await.map_err(to_status)?;
        respond(uploaded::find(&self.0, &principal, &project.source).await, |uploaded| {
            let uploaded = uploaded.map(|UploadedSource { commit, uploaded_at }| v1::UploadedSource {
                commit,
                uploaded_at_ms: uploaded_at.0,
            });
            v1::GetProjectResponse { project: Some(convert::project(project)), uploaded }
        })
    }

    async fn set_project_source(
        &self,
        request: Request<v1::SetProjectSourceRequest>,
    ) -> Result<Response<v1::SetProjectSourceResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let id = id(&request.project_id, Entity::Project)?;
        let source = placed(request.source, request.place);
        respond(manage::set_source(&self.0, &principal, &id, &source).await, |project| {
            v1::SetProjectSourceResponse { project: Some(convert::project(project)) }
        })
    }

    async fn list_projects(
        &self,
        request: Request<v1::ListProjectsRequest>,
    ) -> Result<Response<v1::ListProjectsResponse>, Status> {
        let principal = principal(&request)?;
        let page = convert::page(request.into_inner().page);
        respond(manage::list(&self.0, &principal, page).await, |list| v1::ListProjectsResponse {
            projects: list.entries.into_iter().map(convert::project).collect(),
            next_cursor: list.next.unwrap_or_default(),
        })
    }

    async fn create_worktree(
        &self,
        request: Request<v1::CreateWorktreeRequest>,
    ) -> Result<Response<v1::CreateWorktreeResponse>, Status> {
        let principal = principal(&request)?;
        let v1::CreateWorktreeRequest { project_id, name } = request.into_inner();
        let id = id(&project_id, Entity::Project)?;
        let project = manage::get(&self.0, &principal, &id).await.map_err(to_status)?;
        let request = WorktreeRequest { name, ..WorktreeRequest::default() };
        respond(worktrees::create(&self.0, &principal, &project, &request).await, |created| {
            v1::CreateWorktreeResponse { worktree: Some(worktree(created)) }
        })
    }

    async fn list_worktrees(
        &self,
        request: Request<v1::ListWorktreesRequest>,
    ) -> Result<Response<v1::ListWorktreesResponse>, Status> {
        let principal = principal(&request)?;
        let id = id(&request.get_ref().project_id, Entity::Project)?;
        let project = manage::get(&self.0, &principal, &id).await.map_err(to_status)?;
        respond(worktrees::list(&self.0, &principal, &project).await, |list| v1::ListWorktreesResponse {
            worktrees: list.into_iter().map(worktree).collect(),
        })
    }

    async fn reset_worktree(
        &self,
        request: Request<v1::ResetWorktreeRequest>,
    ) -> Result<Response<v1::ResetWorktreeResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ResetWorktreeRequest { project_id, directory } = request.into_inner();
        let id = id(&project_id, Entity::Project)?;
        let project = manage::get(&self.0, &principal, &id).await.map_err(to_status)?;
        respond(worktrees::reset(&self.0, &principal, &project, &directory).await, |reset| {
            v1::ResetWorktreeResponse { worktree: Some(worktree(reset)) }
        })
    }

    async fn remove_worktree(
        &self,
        request: Request<v1::RemoveWorktreeRequest>,
    ) -> Result<Response<v1::RemoveWorktreeResponse>, Status> {
        let principal = principal(&request)?;
        let v1::RemoveWorktreeRequest { project_id, directory } = request.into_inner();
        let id = id(&project_id, Entity::Project)?;
        let project = manage::get(&self.0, &principal, &id).await.map_err(to_status)?;
        let removed = worktrees::remove(&self.0, &principal, &project, &directory).await;
        respond(removed, |()| v1::RemoveWorktreeResponse {})
    }

    async fn find_bundle(
        &self,
        request: Request<v1::FindBundleRequest>,
    ) -> Result<Response<v1::FindBundleResponse>, Status> {
        let principal = principal(&request)?;
        let v1::FindBundleRequest { commit, branch, may_be_shallow } = request.into_inner();
        let head = BundleHead { commit, branch, is_whole: !may_be_shallow };
        respond(bundles::find(&self.0, &principal, &head).await, |found| v1::FindBundleResponse {
            bundle_id: found.unwrap_or_default(),
        })
    }

    async fn upload_bundle(
        &self,
        request: Request<Streaming<v1::UploadBundleRequest>>,
    ) -> Result<Response<v1::UploadBundleResponse>, Status> {
        let principal = principal(&request)?;
        let mut stream = request.into_inner();
        let invalid = |message: &str| to_status(Invalid::Bundle.because(message));
        let header = match stream.message().await?.and_then(|message| message.part) {
            Some(Part::Header(v1::BundleHeader { sha256, size_bytes })) => {
                BundleHeader { sha256, size_bytes }
            }
            Some(Part::Data(_)) | None => return Err(invalid("the first message must be the header")),
        };
        let bundle_id = header.sha256.clone();
        let upload = BundleUpload::begin(&self.0, &principal, header).await.map_err(to_status)?;
        if let Some(mut upload) = upload {
            while let Some(message) = stream.message().await? {
                let Some(Part::Data(data)) = message.part else {
                    return Err(invalid("only the first message can be the header"));
                };
                upload.add(&data).await.map_err(to_status)?;
            }
            upload.finish().await.map_err(to_status)?;
        }
        Ok(Response::new(v1::UploadBundleResponse { bundle_id }))
    }
}
