//! `PermissionService`: people allow or refuse tool calls.

use super::{Service, from_store, next_cursor, page, whose};
use domain::{
    ids::PermissionId,
    permission::Scope,
    request::{Answer, Id, RequestBody},
};
use rpc::{
    status::{invalid, not_found},
    v1::{self, permission_service_server::PermissionService},
};
use store::people::{approvals::Approval, requests::RequestRecord};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl PermissionService for Service {
    async fn list_permissions(
        &self,
        request: Request<v1::ListPermissionsRequest>,
    ) -> Result<Response<v1::ListPermissionsResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let session = self.filter(tenant, &request.session_id).await?;
        let page = page(request.page, |cursor| cursor.parse::<PermissionId>().is_ok())?;
        let known = self
            .0
            .store
            .list_requests(tenant, whose(session.as_ref(), request.with_subtasks), "per", &page)
            .await;
        let known = known.map_err(from_store)?;
        let next_cursor = next_cursor(&page, &known, |known| known.request.id.as_str().to_owned());
        let permissions = known.into_iter().filter_map(to_wire).collect();
        Ok(Response::new(v1::ListPermissionsResponse { permissions, next_cursor }))
    }

    async fn reply_permission(
        &self,
        request: Request<v1::ReplyPermissionRequest>,
    ) -> Result<Response<v1::ReplyPermissionResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.into_inner();
        let id = request.permission_id.parse().map_err(|_| not_found(NOT_FOUND.0, NOT_FOUND.1))?;
        let answer = match request.answer() {
            v1::PermissionAnswer::Once => Answer::Once,
            v1::PermissionAnswer::Always => Answer::Always {
                scope: match request.scope() {
                    v1::PermissionScope::Unspecified | v1::PermissionScope::Session => Scope::Session,
                    v1::PermissionScope::Project => Scope::Project,
                    v1::PermissionScope::Tenant => Scope::Tenant,
                },
            },
            v1::PermissionAnswer::Reject => {
                super::check_answer(request.message.len())?;
                let message = domain::text::without_nul(&request.message).into_owned();
                Answer::Reject { message: (!message.is_empty()).then_some(message) }
            }
            v1::PermissionAnswer::Unspecified => {
                return Err(invalid("answer_missing", "answer with ONCE, ALWAYS or REJECT"));
            }
        };
        self.answer(&principal, &Id::Permission(id), answer, NOT_FOUND).await?;
        Ok(Response::new(v1::ReplyPermissionResponse {}))
    }

    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let page = page(request.into_inner().page, |cursor| cursor.parse::<PermissionId>().is_ok())?;
        let approvals = self.0.store.list_approvals(tenant, &page).await.map_err(from_store)?;
        let next_cursor = next_cursor(&page, &approvals, |approval| approval.request.to_string());
        let approvals = approvals.into_iter().map(approval).collect();
        Ok(Response::new(v1::ListApprovalsResponse { approvals, next_cursor }))
    }

    async fn delete_approval(
        &self,
        request: Request<v1::DeleteApprovalRequest>,
    ) -> Result<Response<v1::DeleteApprovalResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let unknown = || not_found("approval_not_found", "no answer \"always\" of this request is in force");
        let id: PermissionId = request.get_ref().permission_id.parse().map_err(|_| unknown())?;
        match self.0.store.delete_approval(tenant, &id).await.map_err(from_store)? {
            true => Ok(Response::new(v1::DeleteApprovalResponse {})),
            false => Err(unknown()),
        }
    }
}

fn approval(approval: Approval) -> v1::Approval {
    let scope = match &approval.project {
        Some(_) => v1::PermissionScope::Project,
        None => v1::PermissionScope::Tenant,
    };
    v1::Approval {
        permission_id: approval.request.to_string(),
        scope: scope.into(),
        project_id: approval.project.map(|project| project.to_string()).unwrap_or_default(),
        permission: approval.permission,
        pattern: approval.pattern,
        approved_by: approval.by,
        approved_at_ms: approval.at.0,
    }
}

const NOT_FOUND: (&str, &str) = ("permission_not_found", "there is no such permission request");

fn to_wire(known: RequestRecord) -> Option<v1::Permission> {
    let request = known.request;
    let RequestBody::Permission { permission, patterns, always, .. } = request.body else { return None };
    Some(v1::Permission {
        id: request.id.as_str().to_owned(),
        session_id: request.session_id.to_string(),
        permission,
        patterns,
        always,
        message_id: request.message_id.to_string(),
        call_id: request.call_id,
        asked_at_ms: known.asked_at.0,
        expires_at_ms: request.expires_at.map_or(0, |at| at.0),
    })
}
