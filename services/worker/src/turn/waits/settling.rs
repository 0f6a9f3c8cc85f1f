//! Settles a waiting call by what is stored about it. Pure.

use super::requests::{request_id, wait_for};
use crate::{
    calls::permissions::Permissions,
    tools::people::{
        plan_exit::{self, PlanAnswer},
        question,
    },
    turn::tool_calls::{CallAnswer, LoopCall, TitledText},
};
use domain::{
    conversation::request::{Answer, Id, RequestBody},
    wait::{Reason, Wait},
};
use store::{people::requests::RequestRecord, session::tree::answers::ChildAnswer};

/// The beginning of the answer to a call that a person rejected with a message, in OpenCode's words.
const REJECTED_WITH_FEEDBACK: &str =
    "The user rejected permission to use this specific tool call with the following feedback";

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallWait {
    Permission,
    Question,
    Child,
}

/// The inputs of the settlement.
pub(super) struct Settling<'a> {
    pub(super) requests: &'a [RequestRecord],
    pub(super) answers: &'a [ChildAnswer],
    /// Whether rules allow the call without asking a person.
    pub(super) is_allowed: bool,
    pub(super) is_budget_used_up: bool,
    /// A person's refusal of another call. After it, the step asks nothing more.
    pub(super) refusal: Option<Answer>,
}

/// The next action for a waiting call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Settlement {
    Wait(Wait),
    /// The child answered.
    EndChild(ChildAnswer),
    /// The request has this answer.
    Apply(Answer),
    /// Close the request with this answer, in the name of `by`. The answer that counts is applied.
    Close {
        answer: Answer,
        by: &'static str,
    },
    /// No request exists yet.
    Ask,
}

impl Settling<'_> {
    /// Decides about one waiting call.
    pub(super) fn next(&self, call: &LoopCall, awaited: CallWait) -> Settlement {
        let id = request_id(call);
        let request = self.requests.iter().find(|record| record.request.id == id);
        match (awaited, request, &self.refusal) {
            (CallWait::Child, _, _) => self.next_of_child(call),
            (
                CallWait::Permission | CallWait::Question,
                Some(RequestRecord { answer: Some(answer), .. }),
                _,
            ) => Settlement::Apply(answer.clone()),
            (CallWait::Permission, None, Some(refusal)) => Settlement::Apply(refusal.clone()),
            (CallWait::Permission, Some(_), Some(refusal)) => {
                Settlement::Close { answer: refusal.clone(), by: "the refusal of another call" }
            }
            (CallWait::Permission | CallWait::Question, None, _) => Settlement::Ask,
            // By the clock of Postgres: otherwise a worker whose clock is slow would be woken and wait again, over
            // and over.
            (CallWait::Permission | CallWait::Question, Some(record), _) if record.is_over => {
                Settlement::Close { answer: Answer::Expired, by: "its deadline" }
            }
            (CallWait::Permission | CallWait::Question, Some(_), _) if self.is_allowed => {
                Settlement::Close { answer: Answer::Once, by: "an answer \"always\"" }
            }
            (CallWait::Permission | CallWait::Question, Some(record), _) => {
                Settlement::Wait(wait_for(&record.request))
            }
        }
    }

    fn next_of_child(&self, call: &LoopCall) -> Settlement {
        match self.answers.iter().find(|answer| answer.part_id == call.part_id) {
            Some(answer) => Settlement::EndChild(answer.clone()),
            None => {
                let reason = if self.is_budget_used_up { Reason::Budget } else { Reason::Children };
                Settlement::Wait(Wait { reason, until: None })
            }
        }
    }
}

/// The meaning of an answer for its call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AnswerEffect {
    /// The call runs.
    Start,
    End(CallAnswer),
    /// The person rejected the call without a message.
    Reject,
    /// The person decided whether the plan is carried out.
    Plan(PlanAnswer),
}

/// Returns the meaning of an answer for its call.
pub(super) fn effect_of(body: &RequestBody, is_plan: bool, answer: Answer) -> AnswerEffect {
    match (body, answer) {
        (RequestBody::Permission { .. }, Answer::Once | Answer::Always { .. }) => AnswerEffect::Start,
        (RequestBody::Question { .. }, Answer::Labels { labels }) if is_plan => {
            AnswerEffect::Plan(plan_exit::answer_of(&labels))
        }
        (RequestBody::Question { questions }, Answer::Labels { labels }) => {
            AnswerEffect::End(Ok(TitledText {
                title: question::title(questions),
                text: question::answer_text(questions, &labels),
                metadata: question::facts(&labels),
            }))
        }
        (RequestBody::Permission { .. } | RequestBody::Question { .. }, Answer::Expired) => {
            AnswerEffect::End(Err(
                "No person answered in time. Do the work without it, or report what is missing.".to_owned(),
            ))
        }
        (
            RequestBody::Permission { .. } | RequestBody::Question { .. },
            Answer::Reject { message: Some(message) },
        ) => AnswerEffect::End(Err(format!("{REJECTED_WITH_FEEDBACK}: {message}"))),
        (RequestBody::Permission { .. } | RequestBody::Question { .. }, Answer::Reject { message: None })
        | (RequestBody::Permission { .. }, Answer::Labels { .. })
        | (RequestBody::Question { .. }, Answer::Once | Answer::Always { .. }) => AnswerEffect::Reject,
    }
}

/// Applies answers "always" to other calls of the session.
pub(super) fn apply_always(permissions: &mut Permissions, requests: &[RequestRecord]) {
    for record in requests {
        if let (Some(Answer::Always { .. }), RequestBody::Permission { permission, always, .. }) =
            (&record.answer, &record.request.body)
        {
            permissions.allow(permission, always);
        }
    }
}

/// The first refusal of a permission.
pub(super) fn refusal(requests: &[RequestRecord]) -> Option<Answer> {
    let permissions = requests.iter().filter(|record| matches!(record.request.id, Id::Permission(_)));
    let mut answers = permissions.filter_map(|record| record.answer.as_ref());
    answers.find(|answer| matches!(answer, Answer::Reject { .. })).cloned()
}

#[cfg(test)]
mod tests;
