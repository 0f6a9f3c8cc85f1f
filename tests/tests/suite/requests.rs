//! Requests to people: the session is parked until a person answers or the deadline expires.

use e2e::{
    Options, Stack,
    api::assert_refused,
    turn::{Watch, bash, run, task},
};
use rpc::v1::{self, PermissionAnswer, PermissionVerdict};
use tonic::Code;

const ASK: [(&str, PermissionVerdict); 1] = [("bash", PermissionVerdict::Ask)];

/// Waits until a session is parked for a permission, and returns the id of the request.
async fn wait_for_permission(watch: &mut Watch) -> String {
    let permission = watch.until(|event| event.kind == "permission.asked").await;
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    permission.properties["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_permission_holds_no_slot_and_outlives_every_worker() {
    let mut stack = Stack::with(Options { slots: 1, ..Options::default() }).await;
    let session = stack.api.session_with_rules(&ASK).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack
        .api
        .prompt(&session, &format!("{}\n@text over", bash("echo ran >> count; cat count")))
        .await
        .unwrap();
    let id = wait_for_permission(&mut watch).await;
    let open = v1::ListPermissionsRequest { session_id: session.clone(), ..Default::default() };
    let open = stack.api.permissions().list_permissions(open).await.unwrap().into_inner().permissions;
    assert_eq!((open.len(), open[0].id.as_str(), open[0].permission.as_str()), (1, id.as_str(), "bash"));
    let wait = stack.api.get(&session).await.wait.unwrap();
    assert_eq!(wait.reason, "permission");
    assert!(wait.eta_ms > 0, "the request shows its deadline");
    let other = stack.session().await;
    assert_eq!(run(&stack.api, &other, "@text the one slot is free").await.0, "done");

    // No worker receives the answer; the next worker finds it.
    stack.crash_worker(0);
    stack.api.reply(&id, PermissionAnswer::Once, "").await.unwrap();
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    assert_eq!(stack.api.tool_calls(&session).await[0].result, "ran\n");
    let late = stack.api.reply(&id, PermissionAnswer::Reject, "").await;
    let sentence = assert_refused(late, Code::FailedPrecondition, "already_resolved");
    assert!(sentence.contains("by test"), "the message names the key: {sentence}");
    let stranger = stack.other_tenant().await;
    assert_refused(
        stranger.reply(&id, PermissionAnswer::Once, "").await,
        Code::NotFound,
        "permission_not_found",
    );
}

#[tokio::test]
async fn a_call_that_was_allowed_while_another_runs_holds_the_turn() {
    let stack = Stack::start().await;
    let rules = [("bash", PermissionVerdict::Allow), ("bash:touch *", PermissionVerdict::Ask)];
    let session = stack.api.session_with_rules(&rules).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let allowed = bash("touch begun; until test -e go; do sleep 0.02; done; echo allowed is over");
    let other = bash("until test -e begun; do sleep 0.02; done; echo other is over");
    stack.api.prompt(&session, &format!("@tools\n{allowed}\n{other}\n@text over")).await.unwrap();
    let asked = watch.until(|event| event.kind == "permission.asked").await;
    stack.api.reply(asked.properties["id"].as_str().unwrap(), PermissionAnswer::Once, "").await.unwrap();
    watch.until_tool("completed").await;
    std::fs::write(stack.workspace(&session).join("tree/go"), "").unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let results: Vec<_> = stack.api.tool_calls(&session).await.into_iter().map(|call| call.result).collect();
    assert_eq!(results, ["allowed is over\n", "other is over\n"]);
}

#[tokio::test]
async fn requests_of_a_grandchild_are_listed_at_the_root() {
    let stack = Stack::start().await;
    let root = stack.api.session_with_rules(&ASK).await;
    let leaf = format!("@tools\n{}\n@text the leaf is done", bash("echo allowed"));
    let child = format!("@tools\n{}\n@text the child is done", task(&leaf));
    let mut watch = Watch::start(&stack.api, &root).await;
    stack.api.prompt(&root, &format!("@tools\n{}\n@text over", task(&child))).await.unwrap();
    testkit::eventually("nothing goes on before a person answers", async || {
        let wait = stack.api.get(&root).await.wait;
        wait.is_some_and(|wait| wait.reason == "children" && wait.asking == 1 && wait.going_on == 0)
    })
    .await;
    let sentence = stack.api.get(&root).await.wait.unwrap().sentence;
    assert_eq!(sentence, "0 of 1 subtasks are done; a person must answer one");
    let list = async |with_subtasks| {
        let open = v1::ListPermissionsRequest { session_id: root.clone(), with_subtasks, page: None };
        stack.api.permissions().list_permissions(open).await.unwrap().into_inner().permissions
    };
    assert_eq!(list(false).await, [], "it has no request");
    let permission = list(true).await.remove(0);
    let child = stack.api.children(&root).await.remove(0).id;
    let leaf = stack.api.children(&child).await.remove(0).id;
    assert_eq!((permission.session_id.as_str(), permission.permission.as_str()), (leaf.as_str(), "bash"));
    stack.api.reply(&permission.id, PermissionAnswer::Once, "").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    assert_eq!(stack.api.tool_calls(&leaf).await[0].result, "allowed\n");
}

#[tokio::test]
async fn always_allows_later_calls_and_a_refusal_reaches_the_model() {
    let stack = Stack::start().await;
    let session = stack.api.session_with_rules(&ASK).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let (same, other) = (bash("echo same"), bash("touch other"));
    stack.api.prompt(&session, &format!("{same}\n{same}\n{other}\n@text over")).await.unwrap();
    let first = wait_for_permission(&mut watch).await;
    stack.api.reply(&first, PermissionAnswer::Always, "").await.unwrap();
    let second = wait_for_permission(&mut watch).await;
    assert_ne!(first, second);
    stack.api.reply(&second, PermissionAnswer::Reject, "use printf").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let calls = stack.api.tool_calls(&session).await;
    let results: Vec<_> = calls.iter().map(|call| call.result.as_str()).collect();
    assert_eq!(
        results,
        [
            "same\n",
            "same\n",
            "The user rejected permission to use this specific tool call with the following feedback: use printf"
        ]
    );
    let replied = watch.transcript.events.iter().filter(|event| event.kind == "permission.replied");
    let replies: Vec<_> = replied.map(|event| event.properties["reply"].as_str().unwrap()).collect();
    assert_eq!(replies, ["always", "reject"]);
}

#[tokio::test]
async fn a_refusal_without_a_message_ends_the_turn_and_its_other_requests() {
    let stack = Stack::start().await;
    let session = stack.api.session_with_rules(&ASK).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let (one, other) = (bash("touch one"), bash("touch other"));
    stack.api.prompt(&session, &format!("@tools\n{one}\n{other}\n@text never")).await.unwrap();
    let first = wait_for_permission(&mut watch).await;
    let open = v1::ListPermissionsRequest { session_id: session.clone(), ..Default::default() };
    let open = stack.api.permissions().list_permissions(open).await.unwrap().into_inner().permissions;
    let second = open.into_iter().find(|open| open.id != first).unwrap().id;
    stack.api.reply(&first, PermissionAnswer::Reject, "").await.unwrap();
    assert_eq!(watch.until_idle().await, "needs_human");
    watch.transcript.assert_gap_free();
    for call in stack.api.tool_calls(&session).await {
        assert_eq!(
            (call.status.as_str(), call.result.as_str()),
            ("error", "The user rejected permission to use this specific tool call.")
        );
    }
    let late = stack.api.reply(&second, PermissionAnswer::Once, "").await;
    let sentence = assert_refused(late, Code::FailedPrecondition, "already_resolved");
    assert!(sentence.contains("the refusal of another call"), "{sentence}");
    assert_eq!(run(&stack.api, &session, "@text what now").await.0, "done", "the next prompt is answered");

    // After a refusal with a message the turn continues, and both calls get an answer.
    stack.api.prompt(&session, &format!("@tools\n{one}\n{other}\n@text another way")).await.unwrap();
    let first = wait_for_permission(&mut watch).await;
    stack.api.reply(&first, PermissionAnswer::Reject, "use printf").await.unwrap();
    watch.until(|event| event.properties["part"]["text"] == "another way").await;
    assert_eq!(watch.until_idle().await, "done");
    for call in &stack.api.tool_calls(&session).await[2..] {
        assert_eq!(
            call.result,
            "The user rejected permission to use this specific tool call with the following feedback: use printf"
        );
    }
}

#[tokio::test]
async fn the_answer_always_also_settles_waiting_requests() {
    let stack = Stack::start().await;
    let session = stack.api.session_with_rules(&ASK).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let same = bash("echo same");
    stack.api.prompt(&session, &format!("@tools\n{same}\n{same}\n@text over")).await.unwrap();
    let first = wait_for_permission(&mut watch).await;
    stack.api.reply(&first, PermissionAnswer::Always, "").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls.iter().map(|call| call.result.as_str()).collect::<Vec<_>>(), ["same\n", "same\n"]);
}

#[tokio::test]
async fn always_for_a_project_applies_to_its_sessions_until_it_is_revoked() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let session = api.session_with_rules(&ASK).await;
    let mut watch = Watch::start(api, &session).await;
    let prompt = format!("{}\n@text over", bash("echo known"));
    api.prompt(&session, &prompt).await.unwrap();
    let permission_id = wait_for_permission(&mut watch).await;
    let request = v1::ReplyPermissionRequest {
        permission_id: permission_id.clone(),
        answer: PermissionAnswer::Always.into(),
        scope: v1::PermissionScope::Project.into(),
        message: String::new(),
    };
    api.permissions().reply_permission(request).await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let other = api.session_with_rules(&ASK).await;
    assert_eq!(run(api, &other, &prompt).await.0, "done", "there is no open request");
    assert_eq!(api.tool_calls(&other).await[0].result, "known\n");
    let denied = api.session_with_rules(&[("bash", PermissionVerdict::Deny)]).await;
    run(api, &denied, &prompt).await;
    assert!(
        api.tool_calls(&denied).await[0].result.contains("specified a rule"),
        "forbidden calls stay forbidden"
    );

    let list = api.permissions().list_approvals(v1::ListApprovalsRequest::default()).await;
    let list = list.unwrap().into_inner().approvals;
    assert_eq!((list.len(), list[0].permission_id.as_str()), (1, permission_id.as_str()));
    assert_eq!((list[0].permission.as_str(), list[0].approved_by.as_str()), ("bash", "test"));
    let delete = v1::DeleteApprovalRequest { permission_id };
    let stranger = stack.other_tenant().await;
    let refused = stranger.permissions().delete_approval(delete.clone()).await;
    assert_refused(refused, Code::NotFound, "approval_not_found");
    api.permissions().delete_approval(delete).await.unwrap();
    let third = api.session_with_rules(&ASK).await;
    let mut watch = Watch::start(api, &third).await;
    api.prompt(&third, &prompt).await.unwrap();
    wait_for_permission(&mut watch).await;
}

#[tokio::test]
async fn a_session_without_people_continues_or_ends() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let make = async |on_ask: v1::OnAsk| {
        let rule = v1::PermissionRule {
            permission: "bash".to_owned(),
            pattern: String::new(),
            verdict: PermissionVerdict::Ask.into(),
        };
        let request = v1::CreateSessionRequest {
            project_id: api.project_id.clone(),
            permission_rules: vec![rule],
            on_ask: on_ask.into(),
            ..Default::default()
        };
        api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id
    };
    let prompt = format!("{}\n@text over", bash("touch never"));
    let denies = make(v1::OnAsk::Deny).await;
    // A subtask behaves as its root.
    let (outcome, _) = run(api, &denies, &format!("{}\n{prompt}", task(&prompt))).await;
    assert_eq!(outcome, "done");
    let child = api.children(&denies).await.remove(0).id;
    for (session, call) in [(&denies, 1), (&child, 0)] {
        let call = &api.tool_calls(session).await[call];
        assert!(
            call.status == "error" && call.result.starts_with("This session cannot ask a person"),
            "{call:?}"
        );
    }
    let fails = make(v1::OnAsk::Fail).await;
    let (outcome, transcript) = run(api, &fails, &prompt).await;
    assert_eq!(outcome, "needs_human");
    assert!(
        transcript.error().unwrap().to_string().contains("bash needs a person's answer"),
        "{:?}",
        transcript.error()
    );
    let open = api.permissions().list_permissions(v1::ListPermissionsRequest::default()).await.unwrap();
    assert_eq!(open.into_inner().permissions, [], "there was no request");
    // A subtask of a failed turn must not continue.
    let fails = make(v1::OnAsk::Fail).await;
    let both = format!("@tools\n{}\n{}\n@text over", task("@stall\n@text never"), bash("touch never"));
    assert_eq!(run(api, &fails, &both).await.0, "needs_human");
    let child = api.children(&fails).await.remove(0).id;
    assert_eq!(Watch::start(api, &child).await.until_idle().await, "aborted");
}

#[tokio::test]
async fn an_unanswered_request_counts_as_refused() {
    let stack = Stack::with(Options { request_wait_ms: 1_500, ..Options::default() }).await;
    let session = stack.api.session_with_rules(&ASK).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &format!("{}\n@text over", bash("echo never"))).await.unwrap();
    let id = wait_for_permission(&mut watch).await;
    assert_eq!(watch.until_idle().await, "done");
    let call = &stack.api.tool_calls(&session).await[0];
    assert!(call.status == "error" && call.result.contains("No person answered in time"), "{call:?}");
    let late = stack.api.reply(&id, PermissionAnswer::Once, "").await;
    let sentence = assert_refused(late, Code::FailedPrecondition, "already_resolved");
    assert!(sentence.contains("its deadline"), "{sentence}");
}

#[tokio::test]
async fn a_question_is_answered_and_an_abort_closes_it() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let question =
        "@tool question {\"questions\":[{\"question\":\"Which colour?\",\"options\":[{\"label\":\"red\"}]}]}";
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &format!("{question}\n@text over")).await.unwrap();
    let event = watch.until(|event| event.kind == "question.asked").await;
    let id = event.properties["id"].as_str().unwrap().to_owned();
    let answer = |id: &str, label: &str| v1::ReplyQuestionRequest {
        question_id: id.to_owned(),
        answers: vec![v1::QuestionAnswer { labels: vec![label.to_owned()] }],
    };
    stack.api.questions().reply_question(answer(&id, "red")).await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    assert!(stack.api.tool_calls(&session).await[0].result.contains("\"Which colour?\" = \"red\""));

    stack.api.prompt(&session, &format!("{question}\n@text over")).await.unwrap();
    let event = watch.until(|event| event.kind == "question.asked").await;
    let id = event.properties["id"].as_str().unwrap().to_owned();
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    let open = stack.api.questions().list_questions(v1::ListQuestionsRequest::default()).await.unwrap();
    assert_eq!(open.into_inner().questions, [], "later calls need no answer");
    let late = stack.api.questions().reply_question(answer(&id, "blue")).await;
    assert_refused(late, Code::FailedPrecondition, "already_resolved");
}

#[tokio::test]
async fn a_rule_that_forbids_a_tool_hides_it() {
    let stack = Stack::start().await;
    let session = stack.api.session_with_rules(&[("bash", PermissionVerdict::Deny)]).await;
    let (outcome, _) = run(&stack.api, &session, &format!("{}\n@text over", bash("echo never"))).await;
    assert_eq!(outcome, "done");
    assert!(stack.api.tool_calls(&session).await[0].result.contains("specified a rule"));
    let requests = stack.model.journal.requests();
    assert!(!requests[0].body["tools"].to_string().contains("\"bash\""));
}
