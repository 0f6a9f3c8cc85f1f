//! `QuestionService`: people answer the agent's questions.

use super::{Service, from_store, next_cursor, page, whose};
use domain::{
    ids::QuestionId,
    request::{Answer, Id, RequestBody},
};
use rpc::{
    status::not_found,
    v1::{self, question_service_server::QuestionService},
};
use store::people::requests::RequestRecord;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl QuestionService for Service {
    async fn list_questions(
        &self,
        request: Request<v1::ListQuestionsRequest>,
    ) -> Result<Response<v1::ListQuestionsResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let session = self.filter(tenant, &request.session_id).await?;
        let page = page(request.page, |cursor| cursor.parse::<QuestionId>().is_ok())?;
        let known = self
            .0
            .store
            .list_requests(tenant, whose(session.as_ref(), request.with_subtasks), "que", &page)
            .await;
        let known = known.map_err(from_store)?;
        let next_cursor = next_cursor(&page, &known, |known| known.request.id.as_str().to_owned());
        let questions = known.into_iter().filter_map(to_wire).collect();
        Ok(Response::new(v1::ListQuestionsResponse { questions, next_cursor }))
    }

    async fn reply_question(
        &self,
        request: Request<v1::ReplyQuestionRequest>,
    ) -> Result<Response<v1::ReplyQuestionResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.into_inner();
        let id = request.question_id.parse().map_err(|_| not_found(NOT_FOUND.0, NOT_FOUND.1))?;
        let labels: Vec<Vec<String>> = request.answers.into_iter().map(|answer| answer.labels).collect();
        let bytes = labels.iter().flatten().map(String::len).sum::<usize>();
        let labels: Vec<Vec<String>> =
            labels.iter().map(|list| list.iter().map(|text| clean(text)).collect()).collect();
        super::check_answer(bytes)?;
        let answer =
            if labels.is_empty() { Answer::Reject { message: None } } else { Answer::Labels { labels } };
        self.answer(&principal, &Id::Question(id), answer, NOT_FOUND).await?;
        Ok(Response::new(v1::ReplyQuestionResponse {}))
    }
}

const NOT_FOUND: (&str, &str) = ("question_not_found", "there is no such question");

fn clean(text: &str) -> String {
    domain::text::without_nul(text).into_owned()
}

fn to_wire(known: RequestRecord) -> Option<v1::Question> {
    let request = known.request;
    let RequestBody::Question { questions } = request.body else { return None };
    let items = questions.into_iter().map(|question| v1::QuestionItem {
        header: question.header,
        question: question.question,
        options: question
            .options
            .into_iter()
            .map(|choice| v1::QuestionOption { label: choice.label, description: choice.description })
            .collect(),
        multiple: question.multiple,
    });
    Some(v1::Question {
        id: request.id.as_str().to_owned(),
        session_id: request.session_id.to_string(),
        items: items.collect(),
        message_id: request.message_id.to_string(),
        call_id: request.call_id,
        asked_at_ms: known.asked_at.0,
        expires_at_ms: request.expires_at.map_or(0, |at| at.0),
    })
}
