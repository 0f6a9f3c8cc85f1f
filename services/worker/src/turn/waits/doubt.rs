//! A model that repeats the same call with the same answer. Whether it may continue is a separate permission, which rules or a
//! person give. The request stores the question, and a mark on the repeated call stores the decision, so that every worker
//! continues from there.
// Continues in `calls`, for the requests of calls that have not run.

use super::requests::{close_request, wait_for};
use crate::{
    conversation::marks::{self, REPETITION, Repetition},
    process::{clock::now, store_timeout::with_store_timeout},
    record::WriteError,
    turn::session::Session,
};
use domain::{
    conversation::{
        message::Error,
        part::{Body, Part, Span, Tool, ToolState},
        request::{Answer, Id, Request, RequestBody},
    },
    event::Event,
    ids::{PermissionId, Timestamp},
    limits::DOOM_LOOP_CALLS,
    policy::permission::{OnAsk, Verdict},
    turn::{outcome::NEEDS_HUMAN, signal::Signal},
};
use serde_json::{Map, Value};
use store::{log::record::Progress, people::requests::RequestRecord};

/// The decision about a model that repeats itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    Allow,
    /// The person allowed it for the project or the tenant: the session records that as well.
    AllowAlways,
    /// The model continues, and reads this text instead of the answer that it knows.
    Tell(String),
    /// The turn ends with its step.
    Reject,
}

/// The next action for a model that repeats itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DoubtAction {
    Decide(Decision),
    /// Wait for the person.
    Wait,
    /// Close the request with this answer, in the name of `by`; the answer that counts decides.
    Close {
        answer: Answer,
        by: &'static str,
    },
    /// No request exists: the approvals of the project and the tenant decide, or a person is asked.
    Ask,
}

/// Decides by the request about the call, if it exists, and by the verdict of the rules.
fn next_action(request: Option<&RequestRecord>, verdict: Verdict) -> DoubtAction {
    match (request, verdict) {
        (Some(RequestRecord { answer: Some(answer), .. }), Verdict::Allow | Verdict::Ask | Verdict::Deny) => {
            DoubtAction::Decide(decision_of(answer))
        }
        (Some(RequestRecord { is_over: true, .. }), Verdict::Allow | Verdict::Ask | Verdict::Deny) => {
            DoubtAction::Close { answer: Answer::Expired, by: "its deadline" }
        }
        (Some(_), Verdict::Allow) => DoubtAction::Close { answer: Answer::Once, by: "an answer \"always\"" },
        (Some(_), Verdict::Ask | Verdict::Deny) => DoubtAction::Wait,
        (None, Verdict::Allow) => DoubtAction::Decide(Decision::Allow),
        (None, Verdict::Deny) => {
            DoubtAction::Decide(Decision::Tell(told("A rule of this session forbids that.")))
        }
        (None, Verdict::Ask) => DoubtAction::Ask,
    }
}

fn decision_of(answer: &Answer) -> Decision {
    match answer {
        Answer::Once => Decision::Allow,
        Answer::Always { .. } => Decision::AllowAlways,
        Answer::Reject { message: Some(message) } => {
            Decision::Tell(told(&format!("The person did not allow that to continue and says: {message}")))
        }
        Answer::Reject { message: None } | Answer::Expired | Answer::Labels { .. } => Decision::Reject,
    }
}

/// A call that the model repeats.
struct RepeatedCall {
    part: Part,
    tool: Tool,
    id: Id,
}

/// Decides whether the model may continue to repeat the newest call, and stores the decision.
pub(in crate::turn) async fn doubt(session: &mut Session) -> Result<Signal, WriteError> {
    let Some((part, tool)) = session.conversation().newest_call() else { return Ok(Signal::Doubted(None)) };
    let id = Id::Permission(PermissionId::of_loop(&part.id));
    let call = RepeatedCall { part: part.clone(), tool: tool.clone(), id };
    let parts = [&call.part.id];
    let requests =
        session.deps.store.list_requests_of(session.record.tenant(), session.record.session(), &parts);
    let requests = with_store_timeout(requests).await.map_err(WriteError::Store)?;
    let request = requests.into_iter().find(|record| record.request.id == call.id);
    let verdict = session.judge().repetition(&call.tool.tool);
    let decision = match next_action(request.as_ref(), verdict) {
        DoubtAction::Decide(decision) => decision,
        DoubtAction::Wait => {
            return Ok(Signal::Doubted(request.map(|record| wait_for(&record.request))));
        }
        DoubtAction::Close { answer, by } => {
            decision_of(&close_request(session, &call.id, answer, by).await?)
        }
        DoubtAction::Ask => {
            let approvals =
                session.deps.store.list_approvals_of(session.record.tenant(), session.record.session());
            let approvals = with_store_timeout(approvals).await.map_err(WriteError::Store)?;
            let permissions = session.permissions.with(&approvals);
            if session.judge_with(&permissions).repetition(&call.tool.tool) == Verdict::Allow {
                Decision::Allow
            } else {
                match session.profile.on_ask {
                    OnAsk::Park => return ask(session, call).await,
                    OnAsk::Deny => {
                        Decision::Tell(told("This session cannot ask a person whether that is right."))
                    }
                    OnAsk::Fail => {
                        let text = format!(
                            "the model made the same call of {} {DOOM_LOOP_CALLS} times in a row with the same answer, and \
                             this session asks no person",
                            call.tool.tool
                        );
                        return Ok(Signal::Broken(Error::coded(NEEDS_HUMAN, text)));
                    }
                }
            }
        }
    };
    store_decision(session, &call, decision).await
}

/// Asks a person, and marks the call, so that the write that closes the turn finds the request.
async fn ask(session: &mut Session, call: RepeatedCall) -> Result<Signal, WriteError> {
    let RepeatedCall { part, tool, id } = call;
    let mut metadata = Map::new();
    metadata.insert("tool".to_owned(), tool.tool.clone().into());
    metadata.insert("input".to_owned(), tool.state.input().clone());
    let (permission, names) = (REPETITION.to_owned(), vec![tool.tool.clone()]);
    let request = Request {
        id,
        session_id: session.record.session().clone(),
        message_id: part.message_id.clone(),
        part_id: part.id.clone(),
        call_id: tool.call_id.clone(),
        body: RequestBody::Permission { permission, patterns: names.clone(), always: names, metadata },
        expires_at: Some(Timestamp(now().0.saturating_add(session.deps.request_wait_ms))),
    };
    let wait = wait_for(&request);
    let marked = marks::with_mark(tool.state.clone(), Repetition::Pending);
    let events = vec![Event::RequestAsked(Box::new(request)), updated(&part, &tool, marked)];
    session.write_announced(events, Progress::None).await?;
    Ok(Signal::Doubted(Some(wait)))
}

async fn store_decision(
    session: &mut Session,
    call: &RepeatedCall,
    decision: Decision,
) -> Result<Signal, WriteError> {
    let RepeatedCall { part, tool, .. } = call;
    if decision == Decision::AllowAlways {
        session.permissions.allow(REPETITION, std::slice::from_ref(&tool.tool));
    }
    let state = match decision {
        Decision::Allow | Decision::AllowAlways => marks::with_mark(tool.state.clone(), Repetition::Allowed),
        Decision::Tell(error) => marks::with_mark(failed(&tool.state, error, Map::new()), Repetition::Over),
        Decision::Reject => {
            let error = told("The person did not allow that to continue.");
            marks::with_mark(failed(&tool.state, error, marks::rejected()), Repetition::Over)
        }
    };
    session.write_announced(vec![updated(part, tool, state)], Progress::Made).await?;
    Ok(Signal::Doubted(None))
}

/// Withdraws the request about the newest call, because the turn ends or the loop answers another prompt first.
pub(in crate::turn) fn withdrawal(session: &Session) -> Vec<Event> {
    let newest = session.conversation().newest_call();
    let Some((part, tool)) = newest.filter(|(_, tool)| marks::is_marked(&tool.state, Repetition::Pending))
    else {
        return vec![];
    };
    let id = Id::Permission(PermissionId::of_loop(&part.id));
    let closed = Event::RequestAnswered { id, answer: Answer::Reject { message: None } };
    vec![closed, updated(part, tool, marks::with_mark(tool.state.clone(), Repetition::Over))]
}

/// A call with an error instead of its answer, which the model has already read.
fn failed(state: &ToolState, error: String, metadata: Map<String, Value>) -> ToolState {
    let time = match state {
        ToolState::Completed { time, .. } => Span { start: time.start, end: Some(time.end) },
        ToolState::Running { time, .. } | ToolState::Error { time, .. } => *time,
        ToolState::Pending { .. } => Span { start: now(), end: Some(now()) },
    };
    ToolState::Error { input: state.input().clone(), error, metadata: Some(metadata), time }
}

fn updated(part: &Part, tool: &Tool, state: ToolState) -> Event {
    let body = Body::Tool(Tool { state, ..tool.clone() });
    Event::PartUpdated { part: Box::new(Part { body, ..part.clone() }), at: now() }
}

/// The text that the model reads instead of the answer.
fn told(why: &str) -> String {
    format!(
        "You made this call {DOOM_LOOP_CALLS} times in a row with the same answer. {why} Do something else."
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn known(answer: Option<Answer>, is_over: bool) -> RequestRecord {
        let body = RequestBody::Question { questions: vec![] };
        let part_id = "prt_1".parse().unwrap();
        let request = Request {
            id: Id::Permission(PermissionId::of_loop(&part_id)),
            session_id: "ses_1".parse().unwrap(),
            message_id: "msg_1".parse().unwrap(),
            part_id,
            call_id: "c".to_owned(),
            body,
            expires_at: None,
        };
        RequestRecord { request, asked_at: Timestamp(1), answer, is_over }
    }

    #[test]
    fn an_answer_decides_before_the_deadline_and_the_rules() {
        let rejected = || Answer::Reject { message: None };
        let close = |answer, by| DoubtAction::Close { answer, by };
        for (what, request, verdict, want) in [
            ("no rule", None, Verdict::Ask, DoubtAction::Ask),
            ("a rule allows it", None, Verdict::Allow, DoubtAction::Decide(Decision::Allow)),
            ("an open request", Some(known(None, false)), Verdict::Ask, DoubtAction::Wait),
            (
                "an open request, and an answer \"always\" to another",
                Some(known(None, false)),
                Verdict::Allow,
                close(Answer::Once, "an answer \"always\""),
            ),
            ("a deadline", Some(known(None, true)), Verdict::Ask, close(Answer::Expired, "its deadline")),
            (
                "an answer after the deadline",
                Some(known(Some(Answer::Once), true)),
                Verdict::Ask,
                DoubtAction::Decide(Decision::Allow),
            ),
            (
                "a refusal",
                Some(known(Some(rejected()), false)),
                Verdict::Allow,
                DoubtAction::Decide(Decision::Reject),
            ),
        ] {
            assert_eq!(next_action(request.as_ref(), verdict), want, "{what}");
        }
        let denied = next_action(None, Verdict::Deny);
        assert!(matches!(denied, DoubtAction::Decide(Decision::Tell(_))), "{denied:?}");
        let decision = decision_of(&Answer::Reject { message: Some("use sed".to_owned()) });
        assert!(matches!(&decision, Decision::Tell(text) if text.contains("use sed")), "{decision:?}");
    }
}
