//! The requests to people in the fake gateway: a fixed set; any other request is closed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Answer, Fake};
use rpc::v1::{permission_service_server::PermissionService, question_service_server::QuestionService, *};
use tonic::{Request, Response, Status};

fn late(id: &str) -> Status {
    rpc::status::error(
        rpc::v1::ErrorCode::AlreadyResolved,
        format!("{id} was already resolved by ann, 5 s ago"),
    )
}

#[tonic::async_trait]
impl PermissionService for Fake {
    async fn list_permissions(&self, _: Request<ListPermissionsRequest>) -> Answer<ListPermissionsResponse> {
        let permissions = self.0.lock().unwrap().permissions.clone();
        Ok(Response::new(ListPermissionsResponse { permissions, next_cursor: String::new() }))
    }

    async fn reply_permission(
        &self,
        request: Request<ReplyPermissionRequest>,
    ) -> Answer<ReplyPermissionResponse> {
        let (mut state, request) = (self.0.lock().unwrap(), request.into_inner());
        let id = &request.permission_id;
        if !state.permissions.iter().any(|open| open.id == *id) {
            return Err(late(id));
        }
        let reply = format!("{id} {:?} {}", request.answer(), request.message);
        state.replies.push(reply);
        Ok(Response::new(ReplyPermissionResponse {}))
    }

    async fn list_approvals(&self, _: Request<ListApprovalsRequest>) -> Answer<ListApprovalsResponse> {
        let approvals = vec![Approval::default()];
        Ok(Response::new(ListApprovalsResponse { approvals, next_cursor: String::new() }))
    }

    async fn delete_approval(&self, _: Request<DeleteApprovalRequest>) -> Answer<DeleteApprovalResponse> {
        Ok(Response::new(DeleteApprovalResponse {}))
    }
}

#[tonic::async_trait]
impl QuestionService for Fake {
    async fn list_questions(&self, _: Request<ListQuestionsRequest>) -> Answer<ListQuestionsResponse> {
        let questions = self.0.lock().unwrap().questions.clone();
        Ok(Response::new(ListQuestionsResponse { questions, next_cursor: String::new() }))
    }

    async fn reply_question(&self, request: Request<ReplyQuestionRequest>) -> Answer<ReplyQuestionResponse> {
        let (mut state, request) = (self.0.lock().unwrap(), request.into_inner());
        let id = &request.question_id;
        if !state.questions.iter().any(|open| open.id == *id) {
            return Err(late(id));
        }
        let labels: Vec<_> = request.answers.iter().map(|answer| &answer.labels).collect();
        let reply = format!("{id} {labels:?}");
        state.replies.push(reply);
        Ok(Response::new(ReplyQuestionResponse {}))
    }
}
