//! `QuestionService`: people answer the agent's questions.

use crate::{
    app::requests::{self, RequestKind},
    errors::entity::Entity,
    grpc::{
        convert,
        service::{Service, principal},
        status::{id, respond, to_status},
    },
};
use domain::conversation::request::{Choice, Id, RequestBody};
use rpc::v1::{self, question_service_server::QuestionService};
use store::people::requests::RequestRecord;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl QuestionService for Service {
    async fn list_questions(
        &self,
        request: Request<v1::ListQuestionsRequest>,
    ) -> Result<Response<v1::ListQuestionsResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ListQuestionsRequest { session_id, with_subtasks, page } = request.into_inner();
        let (scope, page) = (convert::request_filter(&session_id, with_subtasks)?, convert::page(page));
        let list = requests::list_open(&self.0, &principal, RequestKind::Question, &scope, page).await;
        respond(list, |list| v1::ListQuestionsResponse {
            questions: list.entries.into_iter().filter_map(question).collect(),
            next_cursor: list.next.unwrap_or_default(),
        })
    }

    async fn reply_question(
        &self,
        request: Request<v1::ReplyQuestionRequest>,
    ) -> Result<Response<v1::ReplyQuestionResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let id = Id::Question(id(&request.question_id, Entity::Question)?);
        let answers: Vec<Vec<String>> = request.answers.into_iter().map(|answer| answer.labels).collect();
        let answer = requests::labels(&answers).map_err(to_status)?;
        respond(requests::answer(&self.0, &principal, &id, &answer).await, |()| v1::ReplyQuestionResponse {})
    }
}

fn question(record: RequestRecord) -> Option<v1::Question> {
    let request = record.request;
    let RequestBody::Question { questions } = request.body else { return None };
    let option = |choice: Choice| v1::QuestionOption { label: choice.label, description: choice.description };
    let items = questions.into_iter().map(|question| v1::QuestionItem {
        header: question.header,
        question: question.question,
        options: question.options.into_iter().map(option).collect(),
        multiple: question.multiple,
    });
    Some(v1::Question {
        id: request.id.as_str().to_owned(),
        session_id: request.session_id.to_string(),
        items: items.collect(),
        message_id: request.message_id.to_string(),
        call_id: request.call_id,
        asked_at_ms: record.asked_at.0,
        expires_at_ms: request.expires_at.map_or(0, |at| at.0),
    })
}
