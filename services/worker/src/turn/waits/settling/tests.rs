#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use domain::{
    conversation::{
        part::{self, Span, ToolState},
        request::Request,
    },
    ids::Timestamp,
    session::Outcome,
};
use serde_json::{Map, Value, json};

fn call(tool: &str, state: ToolState) -> LoopCall {
    LoopCall {
        call_id: "c".to_owned(),
        part_id: "prt_1".parse().unwrap(),
        tool: part::Tool { call_id: "c".to_owned(), tool: tool.to_owned(), state },
        person_timeout_ms: None,
    }
}

fn pending() -> ToolState {
    ToolState::Pending { input: json!({"command": "make"}), raw: String::new() }
}

fn running() -> ToolState {
    let time = Span { start: Timestamp(1), end: None };
    ToolState::Running { input: json!({}), title: None, metadata: None, time }
}

fn permission() -> RequestBody {
    let (patterns, always) = (vec!["make".to_owned()], vec!["make *".to_owned()]);
    RequestBody::Permission { permission: "bash".to_owned(), patterns, always, metadata: Map::new() }
}

fn known(call: &LoopCall, answer: Option<Answer>, is_over: bool) -> RequestRecord {
    let request = Request {
        id: request_id(call),
        session_id: "ses_1".parse().unwrap(),
        message_id: "msg_1".parse().unwrap(),
        part_id: call.part_id.clone(),
        call_id: call.call_id.clone(),
        body: permission(),
        expires_at: Some(Timestamp(9)),
    };
    RequestRecord { request, asked_at: Timestamp(1), answer, is_over }
}

fn rejection(message: Option<&str>) -> Answer {
    Answer::Reject { message: message.map(ToOwned::to_owned) }
}

#[test]
fn a_request_settles_by_its_answer_its_deadline_or_another_answer() {
    let call = call("bash", pending());
    let close = |answer, by| Settlement::Close { answer, by };
    let wait = Settlement::Wait(Wait { reason: Reason::Permission, until: Some(Timestamp(9)) });
    for (what, requests, is_allowed, refusal, want) in [
        ("no request", vec![], false, None, Settlement::Ask),
        ("an open request", vec![known(&call, None, false)], false, None, wait),
        (
            "an answer",
            vec![known(&call, Some(Answer::Once), true)],
            false,
            None,
            Settlement::Apply(Answer::Once),
        ),
        ("a deadline", vec![known(&call, None, true)], false, None, close(Answer::Expired, "its deadline")),
        (
            "an answer \"always\" to another call",
            vec![known(&call, None, false)],
            true,
            None,
            close(Answer::Once, "an answer \"always\""),
        ),
        (
            "the refusal of another call",
            vec![known(&call, None, false)],
            false,
            Some(rejection(None)),
            close(rejection(None), "the refusal of another call"),
        ),
        (
            "the refusal of another call before this one was asked about",
            vec![],
            false,
            Some(rejection(None)),
            Settlement::Apply(rejection(None)),
        ),
        (
            "its own answer and the refusal of another call",
            vec![known(&call, Some(Answer::Once), false)],
            false,
            Some(rejection(None)),
            Settlement::Apply(Answer::Once),
        ),
    ] {
        let settling =
            Settling { requests: &requests, answers: &[], is_allowed, is_budget_used_up: false, refusal };
        assert_eq!(settling.next(&call, CallWait::Permission), want, "{what}");
    }
}

#[test]
fn a_task_waits_for_its_child_or_for_the_budget_of_both() {
    let call = call("task", running());
    let answer = ChildAnswer {
        child: "ses_2".parse().unwrap(),
        part_id: call.part_id.clone(),
        outcome: Outcome::Done,
        text: "done".to_owned(),
        summary: Value::Null,
    };
    let wait = |reason| Settlement::Wait(Wait { reason, until: None });
    for (answers, is_budget_used_up, want) in [
        (vec![], false, wait(Reason::Children)),
        (vec![], true, wait(Reason::Budget)),
        (vec![answer.clone()], true, Settlement::EndChild(answer)),
    ] {
        let settling = Settling {
            requests: &[],
            answers: &answers,
            is_allowed: false,
            is_budget_used_up,
            refusal: Some(rejection(None)),
        };
        assert_eq!(settling.next(&call, CallWait::Child), want);
    }
}

#[test]
fn an_answer_starts_ends_or_rejects_its_call() {
    let questions = || RequestBody::Question { questions: plan_exit::questions() };
    let labels = |label: &str| Answer::Labels { labels: vec![vec![label.to_owned()]] };
    let always = || Answer::Always { scope: domain::policy::permission::Scope::default() };
    for (body, is_plan, answer, want) in [
        (permission(), false, Answer::Once, AnswerEffect::Start),
        (permission(), false, always(), AnswerEffect::Start),
        (permission(), false, rejection(None), AnswerEffect::Reject),
        (permission(), false, labels("Yes"), AnswerEffect::Reject),
        (questions(), false, Answer::Once, AnswerEffect::Reject),
        (questions(), false, rejection(None), AnswerEffect::Reject),
        (questions(), true, labels("Yes"), AnswerEffect::Plan(PlanAnswer::Build)),
        (questions(), true, labels("No"), AnswerEffect::Plan(PlanAnswer::Stay)),
    ] {
        assert_eq!(effect_of(&body, is_plan, answer.clone()), want, "{answer:?} to {body:?}");
    }
    for (answer, words) in [
        (Answer::Expired, "No person answered in time"),
        (
            rejection(Some("use sed")),
            "The user rejected permission to use this specific tool call with the following feedback: use sed",
        ),
    ] {
        let effect = effect_of(&permission(), false, answer);
        assert!(matches!(&effect, AnswerEffect::End(Err(text)) if text.contains(words)), "{effect:?}");
    }
    let effect = effect_of(&questions(), false, labels("blue"));
    let AnswerEffect::End(Ok(answer)) = effect else { panic!("{effect:?}") };
    assert!(answer.text.contains("blue"), "{answer:?}");
    assert_eq!(
        (answer.title.as_str(), &answer.metadata["answers"]),
        ("Asked 1 question", &json!([["blue"]]))
    );
}

#[test]
fn only_a_refused_permission_refuses_other_calls() {
    let (command, question) = (call("bash", pending()), call("question", running()));
    for (requests, want) in [
        (vec![], None),
        (vec![known(&command, Some(Answer::Once), false)], None),
        (vec![known(&command, Some(rejection(Some("no"))), false)], Some(rejection(Some("no")))),
        (vec![known(&question, Some(rejection(None)), false)], None),
    ] {
        assert_eq!(refusal(&requests), want, "{requests:?}");
    }
}
