//! Subtasks: child sessions that run as separate jobs, while their parent holds no slot.

mod copies;

use e2e::{
    Options, Stack,
    turn::{Watch, bash, run, task, task_for},
};
use rpc::v1;
use std::time::{Duration, Instant};

fn has_kind(kind: &'static str) -> impl Fn(&e2e::turn::Event) -> bool {
    move |event| event.kind == kind
}

#[tokio::test]
async fn a_subtask_works_in_the_same_files_and_answers_its_parent() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let child = format!("{}\n@text the child is done", bash("echo from the child > note"));
    let prompt = format!("{}\n{}\n@text {{{{last_tool_result}}}}", task(&child), bash("cat note"));
    let (outcome, transcript) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done");
    transcript.assert_gap_free();
    let waiting = transcript.events.iter().find(|event| event.kind == "flotilla.session.waiting").unwrap();
    assert_eq!(waiting.properties["reason"], "children", "the parent holds no slot meanwhile");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!((calls[0].tool.as_str(), calls[0].status.as_str()), ("task", "completed"));
    assert!(
        calls[0].result.contains("<task_result>\nthe child is done\n</task_result>"),
        "{}",
        calls[0].result
    );
    assert_eq!(calls[1].result, "from the child\n", "the files are the same");
    let completion = transcript.events.iter().find(|event| {
        let part = &event.properties["part"];
        part["tool"] == "task" && part["state"]["status"] == "completed"
    });
    let line = &completion.unwrap().properties["part"]["state"]["metadata"]["summary"][0];
    assert_eq!(
        (&line["tool"], &line["state"]["status"]),
        (&"bash".into(), &"completed".into()),
        "with the answer"
    );
    let children = stack.api.children(&session).await;
    assert_eq!(children.len(), 1);
    assert_eq!((children[0].agent.as_str(), children[0].parent_id.as_str()), ("general", session.as_str()));
    assert!(calls[0].result.contains(&children[0].id));
    assert_eq!(stack.api.get(&children[0].id).await.last_outcome(), v1::TurnOutcome::Done);
    // The diff of the child is the diff of the shared files.
    let request = v1::GetSessionDiffRequest { session_id: children[0].id.clone(), ..Default::default() };
    let diff = stack.api.sessions().get_session_diff(request).await.unwrap().into_inner();
    assert!(diff.patch.contains("from the child"), "{}", diff.patch);
}

#[tokio::test]
async fn a_task_that_is_continued_knows_its_earlier_work() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run(&stack.api, &session, &format!("{}\n@text over", task("@text the secret is blue"))).await;
    let child = stack.api.children(&session).await.remove(0).id;
    let again = serde_json::json!({
        "description": "the same subtask", "prompt": "@text it is still known", "subagent_type": "general", "task_id": child,
    });
    let (outcome, _) = run(&stack.api, &session, &format!("@tool task {again}\n@text over")).await;
    assert_eq!(outcome, "done");
    assert_eq!(stack.api.children(&session).await.len(), 1, "no other child");
    let calls = stack.api.tool_calls(&session).await;
    let result = &calls.last().unwrap().result;
    assert!(result.contains("it is still known") && result.contains(&child), "{result}");
    let requests = stack.model.journal.requests();
    let last = requests.iter().rfind(|request| request.headers["x-session-id"] == child).unwrap();
    let messages = last.body["messages"].to_string();
    assert!(messages.contains("the secret is blue") && messages.contains("it is still known"), "{messages}");
}

#[tokio::test]
async fn several_subtasks_run_in_parallel_and_the_parent_shows_their_progress() {
    let stack = Stack::with(Options { workers: 2, ..Options::default() }).await;
    let session = stack.session().await;
    // Each child waits for the other: they could not finish one after the other.
    let meet = |own: &str, other: &str| {
        let wait = format!("touch {own}; until test -e {other}; do sleep 0.1; done; echo met");
        task(&format!("{}\n@text {own} is done", bash(&wait)))
    };
    let prompt = format!("@tools\n{}\n{}\n@text both are done", meet("a", "b"), meet("b", "a"));
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &prompt).await.unwrap();
    let progress = watch
        .until(|event| event.properties["part"]["state"]["metadata"]["summary"][0]["tool"] == "bash")
        .await;
    assert_eq!(
        progress.properties["part"]["state"]["status"], "running",
        "the parent's part shows the progress"
    );
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls.iter().all(|call| call.status == "completed"), "{calls:?}");
    assert_eq!(stack.api.children(&session).await.len(), 2);
}

#[tokio::test]
async fn a_tree_of_depth_five_needs_one_slot() {
    let stack = Stack::with(Options { slots: 1, ..Options::default() }).await;
    let session = stack.session().await;
    let mut prompt = "@text the leaf".to_owned();
    for _ in 0..5 {
        prompt = format!("@tools\n{}\n{}\n@text passed on", task(&prompt), task("@text a short branch"));
    }
    let (outcome, transcript) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done");
    transcript.assert_gap_free();
    let mut below = vec![session];
    for depth in 1..=5 {
        let children = stack.api.children(&below[0]).await;
        assert_eq!(children.len(), 2, "at depth {depth}");
        below = children.into_iter().map(|child| child.id).collect();
        let (first, second) = (&below[0], &below[1]);
        if stack.api.children(first).await.len() < stack.api.children(second).await.len() {
            below.swap(0, 1);
        }
    }
    let (_, transcript) = run(&stack.api, &below[0], &task("@text too deep")).await;
    transcript.assert_gap_free();
    let refused = stack.api.tool_calls(&below[0]).await;
    assert!(refused[0].result.contains("limited to 5"), "{refused:?}");
}

#[tokio::test]
async fn a_failed_subtask_is_a_tool_error_and_its_parent_continues() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let prompt = format!("{}\n@text I go on without it", task("@status 400\n@text never"));
    let (outcome, _) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls[0].status, "error");
    assert!(calls[0].result.contains("state=\"failed\""), "{}", calls[0].result);
    let (outcome, _) = run(&stack.api, &session, &format!("{}\n@text well", task_for("pirate", "x"))).await;
    assert_eq!(outcome, "done");
    assert!(stack.api.tool_calls(&session).await[1].result.contains("Available subagents: general, explore"));
}

#[tokio::test]
async fn an_abort_reaches_every_subtask() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let sleeper = format!("{}\n@text never", bash("echo asleep; sleep 100; echo awake > awake"));
    let middle = format!("{}\n@text never", task(&sleeper));
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &format!("{}\n@text never", task(&middle))).await.unwrap();
    watch.until(has_kind("flotilla.session.waiting")).await;
    let child = only_child(&stack, &session).await;
    let leaf = only_child(&stack, &child).await;
    Watch::start(&stack.api, &leaf).await.until_output("asleep").await;
    let shows_sleeper = |event: &e2e::turn::Event| {
        let calls = &event.properties["part"]["state"]["metadata"]["summary"];
        calls[0]["tool"] == "bash" && calls[0]["state"]["status"] == "running"
    };
    // The parent shows the call that runs, not only those that ended.
    Watch::start(&stack.api, &child).await.until(shows_sleeper).await;
    let begun = Instant::now();
    assert!(stack.api.abort(&session).await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(1), "the answer is not delivered");
    assert_eq!(watch.until_idle().await, "aborted");
    for below in [&child, &leaf] {
        assert_eq!(Watch::start(&stack.api, below).await.until_idle().await, "aborted");
        let talk = stack.api.conversation(below).await;
        let aborted = talk.iter().filter(|(info, _)| info["error"]["name"] == "MessageAbortedError");
        assert_eq!(
            (talk.len(), aborted.count()),
            (2, 1),
            "the gateway and its parent aborted it, and it ended once"
        );
    }
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!((calls[0].status.as_str(), calls[0].result.as_str()), ("error", "Tool execution aborted"));
    let (outcome, transcript) = run(&stack.api, &session, &bash("test -e awake || echo still asleep")).await;
    assert_eq!(outcome, "done");
    transcript.assert_gap_free();
    assert_eq!(stack.api.tool_calls(&session).await[1].result, "still asleep\n");
}

#[tokio::test]
async fn a_deleted_subtask_is_a_tool_error_and_a_deleted_root_deletes_its_tree() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let prompt = format!("{}\n@text over", task(&format!("{}\n@text never", bash("sleep 100"))));
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &prompt).await.unwrap();
    watch.until(has_kind("flotilla.session.waiting")).await;
    let child = only_child(&stack, &session).await;
    let delete = |id: &str| v1::DeleteSessionRequest { session_id: id.to_owned() };
    stack.api.sessions().delete_session(delete(&child)).await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    assert!(stack.api.tool_calls(&session).await[0].result.contains("was deleted"));

    stack.api.prompt(&session, &prompt).await.unwrap();
    watch.until(has_kind("flotilla.session.waiting")).await;
    let child = only_child(&stack, &session).await;
    stack.api.sessions().delete_session(delete(&session)).await.unwrap();
    let request = v1::GetSessionRequest { session_id: child.clone() };
    e2e::api::assert_refused(
        stack.api.sessions().get_session(request).await,
        tonic::Code::NotFound,
        "session_not_found",
    );
    // Their ids are not free again: a loop of a deleted session may still exist somewhere.
    for id in [&session, &child] {
        let request = v1::CreateSessionRequest {
            project_id: stack.api.project_id.clone(),
            id: id.clone(),
            ..Default::default()
        };
        let refused = stack.api.sessions().create_session(request).await;
        e2e::api::assert_refused(refused, tonic::Code::AlreadyExists, "session_deleted");
    }
    e2e::turn::assert_works(&stack.api, &stack.session().await).await;
}

#[tokio::test]
async fn a_subtask_survives_its_worker_and_answers_its_parent_once() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let child = format!(
        "{}\n@text {{{{last_tool_result}}}}",
        bash("echo ran >> count; echo begun; sleep 3; cat count")
    );
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &format!("{}\n@text over", task(&child))).await.unwrap();
    watch.until(has_kind("flotilla.session.waiting")).await;
    let child = only_child(&stack, &session).await;
    Watch::start(&stack.api, &child).await.until_output("begun").await;
    stack.add_worker().await;
    stack.crash_worker(0);
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let calls = stack.api.tool_calls(&session).await;
    assert!(
        calls[0].result.contains("<task_result>\nbegun\nran\n</task_result>"),
        "once: {}",
        calls[0].result
    );
    let idles = watch.transcript.events.iter().filter(|event| event.kind == "session.idle").count();
    assert_eq!(idles, 1);
}

#[tokio::test]
async fn a_read_only_agent_gets_no_writing_tools() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let child = "@tool write {\"filePath\":\"/workspace/x\",\"content\":\"x\"}\n@text I may not";
    let (outcome, _) =
        run(&stack.api, &session, &format!("{}\n@text over", task_for("explore", child))).await;
    assert_eq!(outcome, "done");
    let child = only_child(&stack, &session).await;
    let refused = &stack.api.tool_calls(&child).await[0];
    assert!(refused.status == "error" && refused.result.contains("specified a rule"), "{refused:?}");
    let requests = stack.model.journal.requests();
    let request =
        requests.iter().find(|request| request.headers.get("x-session-id") == Some(&child)).unwrap();
    let tools = request.body["tools"].to_string();
    assert!(
        tools.contains("\"grep\"") && !tools.contains("\"write\"") && !tools.contains("\"task\""),
        "{tools}"
    );
}

/// Waits until a session has a child, and returns the newest one.
async fn only_child(stack: &Stack, session: &str) -> String {
    let child = async || stack.api.children(session).await.pop();
    testkit::eventually("there is a child", || async { child().await.is_some() }).await;
    child().await.unwrap().id
}
