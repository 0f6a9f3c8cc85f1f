//! `PermissionService`: no tool of this version asks for permission, so none is open.

use super::Service;
use rpc::{
    status::not_found,
    v1::{self, permission_service_server::PermissionService},
};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl PermissionService for Service {
    async fn list_permissions(
        &self,
        request: Request<v1::ListPermissionsRequest>,
    ) -> Result<Response<v1::ListPermissionsResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        self.check_filter(tenant, &request.session_id, request.page).await?;
        Ok(Response::new(v1::ListPermissionsResponse::default()))
    }

    async fn reply_permission(
        &self,
        request: Request<v1::ReplyPermissionRequest>,
    ) -> Result<Response<v1::ReplyPermissionResponse>, Status> {
        self.0.principal(&request).await?;
        Err(not_found("permission_not_found", "there is no such permission request"))
    }
}
