//! `QuestionService`: no tool of this version asks questions, so none is open.

use super::Service;
use rpc::{
    status::not_found,
    v1::{self, question_service_server::QuestionService},
};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl QuestionService for Service {
    async fn list_questions(
        &self,
        request: Request<v1::ListQuestionsRequest>,
    ) -> Result<Response<v1::ListQuestionsResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        self.check_filter(tenant, &request.session_id, request.page).await?;
        Ok(Response::new(v1::ListQuestionsResponse::default()))
    }

    async fn reply_question(
        &self,
        request: Request<v1::ReplyQuestionRequest>,
    ) -> Result<Response<v1::ReplyQuestionResponse>, Status> {
        self.0.principal(&request).await?;
        Err(not_found("question_not_found", "there is no such question"))
    }
}
