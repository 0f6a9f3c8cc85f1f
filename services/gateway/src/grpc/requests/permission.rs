//! `PermissionService`: people allow or refuse tool calls.

use crate::{
    app::requests::{self, RequestKind},
    errors::{entity::Entity, invalid::Invalid},
    grpc::{
        convert,
        service::{Service, principal},
        status::{id, respond, to_status},
    },
};
use domain::{
    conversation::request::{Answer, Id, RequestBody},
    policy::permission::Scope,
};
use rpc::v1::{self, permission_service_server::PermissionService};
use store::people::{approvals::Approval, requests::RequestRecord};
use tonic::{Request, Response, Status};

/// The reason of a request; bytes. The agent's tool takes 1,000 characters, and the rest would be cut.
const REASON_BYTES_MAX: usize = 4_000;
/// Bytes of a diff in a request. A page of requests fits into the smallest message that clients accept. A longer one is cut, and the
/// request says so.
const DIFF_BYTES_MAX: usize = 16 * 1024;

#[tonic::async_trait]
impl PermissionService for Service {
    async fn list_permissions(
        &self,
        request: Request<v1::ListPermissionsRequest>,
    ) -> Result<Response<v1::ListPermissionsResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ListPermissionsRequest { session_id, with_subtasks, page } = request.into_inner();
        let (scope, page) = (convert::request_filter(&session_id, with_subtasks)?, convert::page(page));
        let list = requests::list_open(&self.0, &principal, RequestKind::Permission, &scope, page).await;
        respond(list, |list| v1::ListPermissionsResponse {
            permissions: list.entries.into_iter().filter_map(permission).collect(),
            next_cursor: list.next.unwrap_or_default(),
        })
    }

    async fn reply_permission(
        &self,
        request: Request<v1::ReplyPermissionRequest>,
    ) -> Result<Response<v1::ReplyPermissionResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let id = Id::Permission(id(&request.permission_id, Entity::Permission)?);
        let answer = match request.answer() {
            v1::PermissionAnswer::Once => Answer::Once,
            v1::PermissionAnswer::Always => Answer::Always {
                scope: match request.scope() {
                    v1::PermissionScope::Unspecified | v1::PermissionScope::Session => Scope::Session,
                    v1::PermissionScope::Project => Scope::Project,
                    v1::PermissionScope::Tenant => Scope::Tenant,
                },
            },
            v1::PermissionAnswer::Reject => requests::rejection(&request.message).map_err(to_status)?,
            v1::PermissionAnswer::Unspecified => {
                let message = "answer with ONCE, ALWAYS or REJECT";
                return Err(to_status(Invalid::AnswerMissing.because(message)));
            }
        };
        respond(
            requests::answer(&self.0, &principal, &id, &answer).await,
            |()| v1::ReplyPermissionResponse {},
        )
    }

    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        let principal = principal(&request)?;
        let page = convert::page(request.into_inner().page);
        respond(requests::list_approvals(&self.0, &principal, page).await, |list| v1::ListApprovalsResponse {
            approvals: list.entries.into_iter().map(approval).collect(),
            next_cursor: list.next.unwrap_or_default(),
        })
    }

    async fn delete_approval(
        &self,
        request: Request<v1::DeleteApprovalRequest>,
    ) -> Result<Response<v1::DeleteApprovalResponse>, Status> {
        let principal = principal(&request)?;
        let id = id(&request.get_ref().permission_id, Entity::Approval)?;
        respond(requests::delete_approval(&self.0, &principal, &id).await, |()| v1::DeleteApprovalResponse {})
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

fn permission(record: RequestRecord) -> Option<v1::Permission> {
    let request = record.request;
    let RequestBody::Permission { permission, patterns, always, metadata } = request.body else {
        return None;
    };
    let text = |key: &str| metadata.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    let whole_diff = text("diff");
    let diff = domain::text::head(whole_diff, DIFF_BYTES_MAX).to_owned();
    Some(v1::Permission {
        id: request.id.as_str().to_owned(),
        session_id: request.session_id.to_string(),
        permission,
        patterns,
        always,
        message_id: request.message_id.to_string(),
        call_id: request.call_id,
        asked_at_ms: record.asked_at.0,
        expires_at_ms: request.expires_at.map_or(0, |at| at.0),
        is_diff_cut: diff.len() < whole_diff.len(),
        diff,
        reason: domain::text::head(text("reason"), REASON_BYTES_MAX).to_owned(),
    })
}
