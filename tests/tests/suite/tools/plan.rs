//! Planning: an agent that changes nothing, and a person who approves the plan.

use e2e::{
    Options, Stack,
    turn::{Watch, assert_works, run, run_request},
};
use rpc::v1;
use serde_json::{Value, json};

/// The prompt for the build agent after the approval.
const SCRIPT: &str = r#"
[[rule]]
match = "The plan above is approved"
[[rule.step]]
tool = [{ name = "write", input = { filePath = "/workspace/built", content = "built" } }]
[[rule.step]]
text = "It is built."
"#;

/// Prompts the plan agent, and returns the id of the question at the end of its plan.
async fn planned(stack: &Stack, session: &str, watch: &mut Watch) -> String {
    let write = json!({"filePath": "/workspace/early", "content": "x"});
    let prompt =
        format!("@tool write {write}\n@text The plan: build it.\n@tool plan_exit {{}}\n@text another plan");
    let ask =
        stack.api.prompt_with(session, |request| (request.text, request.agent) = (prompt, "plan".to_owned()));
    ask.await.unwrap();
    let question = watch.until(|event| event.kind == "question.asked").await.properties;
    let labels: Vec<_> = question["questions"][0]["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| &option["label"])
        .collect();
    assert_eq!(labels, ["Yes", "No"]);
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    question["id"].as_str().unwrap().to_owned()
}

async fn answer(stack: &Stack, id: &str, label: &str) {
    let answers = vec![v1::QuestionAnswer { labels: vec![label.to_owned()] }];
    let request = v1::ReplyQuestionRequest { question_id: id.to_owned(), answers };
    stack.api.questions().reply_question(request).await.unwrap();
}

/// Returns the names of the tools in one model request.
fn offered(body: &Value) -> Vec<&str> {
    body["tools"].as_array().unwrap().iter().filter_map(|tool| tool["function"]["name"].as_str()).collect()
}

#[tokio::test]
async fn the_build_agent_performs_an_approved_plan() {
    let mut stack = Stack::with(Options { script: SCRIPT.to_owned(), ..Options::default() }).await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let id = planned(&stack, &session, &mut watch).await;
    // The question outlives the worker that asked it.
    stack.crash_worker(0);
    answer(&stack, &id, "Yes").await;
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();

    let calls = stack.api.tool_calls(&session).await;
    let calls: Vec<_> = calls.iter().map(|call| (call.tool.as_str(), call.status.as_str())).collect();
    assert_eq!(calls, [("write", "error"), ("plan_exit", "completed"), ("write", "completed")]);
    let talk = stack.api.conversation(&session).await;
    let agents: Vec<_> = talk.iter().map(|(info, _)| (&info["role"], &info["agent"])).collect();
    let (user, step) = (&json!("user"), &json!("assistant"));
    let (plan, build) = (&json!("plan"), &json!("build"));
    assert_eq!(
        agents,
        [(user, plan), (step, plan), (step, plan), (user, build), (step, build), (step, build)],
        "one message starts the build agent"
    );
    assert_eq!(talk[3].1[0]["synthetic"], true);
    assert_eq!(talk[5].1[1]["text"], "It is built.");

    let requests = stack.model.journal.requests();
    let (first, last) = (&requests[0].body, &requests.last().unwrap().body);
    assert!(first["messages"].to_string().contains("You are planning"));
    let has = |body: &Value, name: &str| offered(body).contains(&name);
    assert!(has(first, "plan_exit") && has(first, "bash") && !has(first, "write") && !has(first, "edit"));
    assert!(last["messages"].to_string().contains("Planning is over"));
    assert!(!has(last, "plan_exit") && has(last, "write"));
    assert_works(&stack.api, &session).await;
}

#[tokio::test]
async fn a_rejected_plan_changes_nothing() {
    let stack = Stack::with(Options { script: SCRIPT.to_owned(), ..Options::default() }).await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let id = planned(&stack, &session, &mut watch).await;
    answer(&stack, &id, "No").await;
    assert_eq!(watch.until_idle().await, "needs_human");
    let id = planned(&stack, &session, &mut watch).await;
    answer(&stack, &id, "not without tests").await;
    watch.until(|event| event.properties["part"]["text"] == "another plan").await;
    assert_eq!(watch.until_idle().await, "done");
    let last = stack.api.tool_calls(&session).await.pop().unwrap();
    assert!(last.status == "error" && last.result.ends_with("says: not without tests"), "{last:?}");
    let talk = stack.api.conversation(&session).await;
    assert!(talk.iter().all(|(info, _)| info["agent"] == "plan"), "the build agent did not run");

    // Other agents cannot call the tool that ends the planning.
    let (outcome, _) = run_request(&stack.api, &session, |request| {
        (request.text, request.agent) = ("@tool plan_exit {}\n@text over".to_owned(), "build".to_owned());
    })
    .await;
    assert_eq!(outcome, "done");
    let last = stack.api.tool_calls(&session).await.pop().unwrap();
    assert_eq!((last.tool.as_str(), last.status.as_str()), ("plan_exit", "error"));
    assert_eq!(run(&stack.api, &session, "@text over").await.0, "done");
}
