//! The requests to people about calls.

use crate::{
    process::{clock::now, store_timeout::with_store_timeout},
    record::WriteError,
    tools::{
        people::{plan_exit, question},
        registry,
        tool::Tool,
    },
    turn::{session::Session, tool_calls::LoopCall},
};
use domain::{
    conversation::{
        batch,
        part::{self, ToolState},
        request::{Answer, Id, Request, RequestBody},
    },
    ids::{EventId, MessageId, PermissionId, QuestionId, Timestamp},
    wait::{Reason, Wait},
};
use store::people::requests::{AnswerOutcome, NewAnswer};

/// Closes a request in the name of `by`, and returns the answer that counts: an earlier answer stays.
pub(super) async fn close_request(
    session: &Session,
    id: &Id,
    answer: Answer,
    by: &str,
) -> Result<Answer, WriteError> {
    let (tenant, event) = (session.record.tenant(), session.deps.id(EventId::make));
    let new = NewAnswer { answer: &answer, by, epoch: Some(session.record.fence().epoch) };
    let closed = session.deps.store.answer_request(tenant, id, new, &event, now());
    match with_store_timeout(closed).await.map_err(WriteError::from)? {
        AnswerOutcome::Accepted { events, .. } => {
            session.deps.publisher.publish_events(tenant, session.record.session(), &events);
            Ok(answer)
        }
        AnswerOutcome::AlreadyAnswered { answer, .. } => Ok(answer),
    }
}

/// The request about a call.
pub(super) async fn request(session: &Session, call: &LoopCall) -> Request {
    let (id, input) = (request_id(call), call.tool.state.input());
    let questions =
        if is_plan(&call.tool) { Ok(plan_exit::questions()) } else { question::read(input.clone()) };
    let body = match (&id, questions) {
        (Id::Question(_), Ok(questions)) => RequestBody::Question { questions },
        (Id::Question(_) | Id::Permission(_), Ok(_) | Err(_)) => {
            let used = match registry::find(&call.tool.tool) {
                Ok(tool) => session.judge().use_to_ask(tool, input).await,
                Err(_) => None,
            };
            let (permission, patterns, always) = match used {
                Some(used) => (used.permission.to_owned(), used.patterns, used.always),
                None => (call.tool.tool.clone(), vec!["*".to_owned()], vec![]),
            };
            let mut metadata = input.as_object().cloned().unwrap_or_default();
            if call.tool.tool == batch::NAME {
                metadata.extend(batch::shown_arguments(input));
            }
            RequestBody::Permission { permission, patterns, always, metadata }
        }
    };
    let message_id = session.conversation().last_step().map(|(message, _)| message.id.clone());
    Request {
        session_id: session.record.session().clone(),
        message_id: message_id.unwrap_or_else(|| session.deps.id(MessageId::make)),
        part_id: call.part_id.clone(),
        call_id: call.call_id.clone(),
        body,
        expires_at: Some(Timestamp(now().0.saturating_add(session.deps.request_wait_ms))),
        id,
    }
}

/// Whether a call requests the end of planning.
pub(super) fn is_plan(tool: &part::Tool) -> bool {
    registry::find(&tool.tool) == Ok(Tool::PlanExit)
}

/// The id of the request about a call.
pub(super) fn request_id(call: &LoopCall) -> Id {
    match &call.tool.state {
        ToolState::Pending { .. } => Id::Permission(PermissionId::of(&call.part_id)),
        ToolState::Running { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => {
            Id::Question(QuestionId::of(&call.part_id))
        }
    }
}

/// The wait for the answer of a request.
pub(super) fn wait_for(request: &Request) -> Wait {
    let reason = match request.id {
        Id::Permission(_) => Reason::Permission,
        Id::Question(_) => Reason::Question,
    };
    Wait { reason, until: request.expires_at }
}
