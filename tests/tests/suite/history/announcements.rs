//! Announcements about the files of a session: by tools, by the snapshots around a step, and about the branch.

use super::{answers, part, run_to_end, write};
use domain::{
    conversation::{
        message::Message,
        part::{Body, Part, Ran, StepFinish, ToolState},
    },
    event::Event,
    ids::{EventId, Ids, PartId, SessionId, TenantId, Timestamp},
    money::{Tokens, UsdPicos},
};
use e2e::{
    Stack,
    turn::{self, Transcript, Watch, bash},
};
use rpc::v1;
use serde_json::{Value, json};
use store::{
    Store,
    log::{
        change::{Change, ChangeBody},
        record::{Fence, Progress},
    },
    session::runs::{SuspectPolicy, TakeResult},
};

fn tool(name: &str, input: &Value) -> String {
    format!("@tool {name} {input}")
}

/// Returns the files that tools wrote. Each must be announced in the same write that ends the call.
fn edited(transcript: &Transcript) -> Vec<String> {
    let (mut lines, mut files) = (vec![], vec![]);
    for turn::Event { kind, properties, .. } in &transcript.events {
        let (part, state) = (&properties["part"], &properties["part"]["state"]);
        if kind == "file.edited" {
            files.push(properties["file"].as_str().unwrap().trim_start_matches("/workspace/"));
        } else if part["type"] == "tool" && !state["time"]["end"].is_null() {
            let (name, status) = (part["tool"].as_str().unwrap(), state["status"].as_str().unwrap());
            lines.push(format!("{name} {status}: {}", files.join(" ")));
            files.clear();
        } else {
            assert!(files.is_empty(), "{kind} stands between a call and what it wrote");
        }
    }
    lines
}

#[tokio::test]
async fn each_written_file_is_announced_at_the_end_of_its_call() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let patch = |text: &str| {
        tool("apply_patch", &json!({"patchText": format!("*** Begin Patch\n{text}\n*** End Patch")}))
    };
    let edit = |from: &str, to: &str| json!({"oldString": from, "newString": to});
    let a = "/workspace/./a";
    let prompt = [
        write("a", "one\n"),
        tool("edit", &json!({"filePath": a, "oldString": "one", "newString": "two"})),
        tool("edit", &json!({"filePath": a, "oldString": "nowhere", "newString": "two"})),
        tool("multiedit", &json!({"filePath": a, "edits": [edit("two", "three"), edit("three", "four")]})),
        patch("*** Add File: gone\n+x\n*** Update File: a\n*** Move to: b\n@@\n-four\n+five"),
        patch("*** Delete File: gone"),
        patch("*** Add File: made\n+x\n*** Add File: b/below\n+x"),
        tool(
            "batch",
            &json!({"tool_calls": [
                {"tool": "write", "parameters": {"filePath": "/workspace/c", "content": "1"}},
                {"tool": "write", "parameters": {"filePath": "/workspace/c", "content": "2"}},
                {"tool": "read", "parameters": {"filePath": "/workspace/b"}},
            ]}),
        ),
        bash("echo x > by_hand"),
        "@text over".to_owned(),
    ];
    let transcript = run_to_end(&stack, &session, &prompt.join("\n")).await;
    let want = [
        "write completed: a",
        "edit completed: a",
        "edit error: ",
        "multiedit completed: a",
        "apply_patch completed: b gone",
        "apply_patch completed: ",
        "apply_patch error: made",
        "batch completed: c",
        "bash completed: ",
    ];
    assert_eq!(edited(&transcript), want);
    transcript.assert_gap_free();
}

#[tokio::test]
async fn the_patch_of_a_step_announces_its_file_changes() {
    let stack = Stack::start().await;
    let files = [("a.txt", "one\n"), ("gone.txt", "x\n")];
    let session = stack.session_on(&testkit::git::repository(&files)).await;
    let change = bash("echo two >> a.txt; rm gone.txt; mkdir d; echo n > d/new");
    let transcript =
        run_to_end(&stack, &session, &format!("{change}\n@tool todoread {{}}\n@text over")).await;
    let updates: Vec<&turn::Event> =
        transcript.events.iter().filter(|event| event.kind == "file.watcher.updated").collect();
    let want = json!({"files": [
        {"file": "/workspace/a.txt", "event": "change"},
        {"file": "/workspace/d/new", "event": "add"},
        {"file": "/workspace/gone.txt", "event": "unlink"},
    ]});
    assert_eq!(
        updates.iter().map(|event| &event.properties).collect::<Vec<_>>(),
        [&want],
        "one event for all files"
    );
    let before = transcript.events.iter().find(|before| before.seq + 1 == updates[0].seq).unwrap();
    assert_eq!(before.properties["part"]["type"], "patch", "{before:?}");
}

#[tokio::test]
async fn a_change_of_the_branch_is_announced() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    assert_eq!(stack.api.get(&session).await.branch, "");
    let run_command = async |command: &str| {
        let from = stack.api.get(&session).await.event_seq;
        let transcript = run_to_end(&stack, &session, &format!("{}\n@text over", bash(command))).await;
        let moves =
            transcript.events.iter().filter(|event| event.seq > from && event.kind == "vcs.branch.updated");
        let moves: Vec<Value> = moves.map(|event| event.properties.clone()).collect();
        (moves, stack.api.get(&session).await.branch)
    };
    assert_eq!(run_command("ls").await, (vec![json!({"branch": "main"})], "main".to_owned()));
    assert_eq!(run_command("echo x > b").await, (vec![], "main".to_owned()));
    let feature = "feature/größer".to_owned();
    let moved = run_command(&format!("git checkout -q -b {feature}")).await;
    assert_eq!(moved, (vec![json!({"branch": feature})], feature));
    assert_eq!(run_command("git checkout -q --detach").await, (vec![json!({})], String::new()));
    assert_eq!(
        run_command("rm .git/HEAD; mkfifo .git/HEAD").await,
        (vec![], String::new()),
        "no call waits for it"
    );
}

/// Without snapshots, only the opening of the files tells their branch.
#[tokio::test]
async fn the_branch_is_announced_when_the_files_open() {
    let stack = Stack::start().await;
    let settings = v1::SetSettingsRequest {
        project_id: stack.api.project_id.clone(),
        document: r#"{"snapshot": false}"#.to_owned(),
    };
    stack.api.settings().set_settings(settings).await.unwrap();
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    for _ in 0..2 {
        let transcript = run_to_end(&stack, &session, &format!("{}\n@text over", bash("true"))).await;
        let moves: Vec<_> =
            transcript.events.iter().filter(|event| event.kind == "vcs.branch.updated").collect();
        assert_eq!(
            moves.iter().map(|event| &event.properties).collect::<Vec<_>>(),
            [&json!({"branch": "main"})]
        );
        let end = transcript.events.iter().rfind(|event| event.properties["part"]["type"] == "step-finish");
        assert!(moves[0].seq < end.unwrap().seq, "{moves:?}");
    }
    assert_eq!(stack.api.get(&session).await.branch, "main");
}

/// The last thing that a worker stores before it crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastWrite {
    /// The ends of the calls of a step.
    Calls,
    /// The end of the step.
    Step,
}

/// Simulates a worker that crashed before it took the snapshot after the calls of a step.
async fn end_calls_and_die(stack: &Stack, session: &str, last: LastWrite) {
    let store = Store::connect(&stack.database.app_url, &stack.database.system_url, 2).unwrap();
    let (tenant, id): (TenantId, SessionId) =
        (stack.api.tenant_id.parse().unwrap(), session.parse().unwrap());
    let running = store.get_session(tenant, &id).await.unwrap();
    store.fail_attempt(tenant, &id, running.epoch).await.unwrap();
    let owner = uuid::Uuid::now_v7();
    let TakeResult::Taken(taken) =
        store.take_session(tenant, &id, owner, SuspectPolicy::Accept).await.unwrap()
    else {
        panic!("no other worker has the session")
    };
    let (info, parts) = stack.api.conversation(session).await.pop().unwrap();
    let mut tool: Part = serde_json::from_value(part(&parts, "tool")).unwrap();
    let mut finish: Part = serde_json::from_value(part(&parts, "step-start")).unwrap();
    finish.id = PartId::make(&mut Ids::new([8; 32]), Timestamp(2));
    finish.body = Body::StepFinish(StepFinish {
        reason: "tool-calls".to_owned(),
        snapshot: None,
        cost: UsdPicos(0),
        tokens: Tokens::default(),
    });
    let Message::Assistant(mut message) = serde_json::from_value(info).unwrap() else { panic!("a step") };
    message.time.completed = Some(Timestamp(2));
    let Body::Tool(call) = &mut tool.body else { panic!("a call") };
    call.state = ToolState::Completed {
        input: call.state.input().clone(),
        output: "begun".to_owned().into(),
        title: "ended".to_owned(),
        metadata: serde_json::Map::new(),
        time: Ran::new(Timestamp(1), Timestamp(2)),
        attachments: vec![],
    };
    let updated = |part: Part| Event::PartUpdated { part: Box::new(part), at: Timestamp(2) };
    let events =
        [updated(tool), updated(finish), Event::MessageUpdated(Box::new(Message::Assistant(message)))];
    let count = if last == LastWrite::Calls { 1 } else { events.len() };
    let mut ids = Ids::new([7; 32]);
    let changes = events
        .into_iter()
        .take(count)
        .map(|event| Change { id: EventId::make(&mut ids, Timestamp(2)), body: ChangeBody::Event(event) });
    let changes: Vec<Change> = changes.collect();
    let fence = Fence { write_seq: 1, ..taken.take_over.fence };
    store.append(&fence, &changes, taken.take_over.input_ack, Progress::Made, Timestamp(2)).await.unwrap();
    store.fail_attempt(tenant, &id, fence.epoch).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_step_has_one_patch_and_one_snapshot_after_a_crash_of_its_worker() {
    for last in [LastWrite::Calls, LastWrite::Step] {
        crash_after(last).await;
    }
}

async fn crash_after(last: LastWrite) {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let command = "echo x > made; echo begun; until [ -e go ]; do sleep 0.1; done";
    stack.api.prompt(&session, &format!("{}\n@text over", bash(command))).await.unwrap();
    watch.until_output("begun").await;
    stack.crash_worker(0);
    end_calls_and_die(&stack, &session, last).await;
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "done");
    let steps = answers(&stack, &session).await;
    let [begun, ended] = [&steps[0], &steps[1]].map(|step| part(step, "snapshot"));
    assert!(begun["snapshot"].is_string() && ended["snapshot"].is_string(), "{last:?}: {steps:?}");
    assert_eq!(part(&steps[0], "patch")["files"], json!(["/workspace/made"]), "{last:?}");
    let count = |kind: &str| {
        watch.transcript.events.iter().filter(|event| event.properties["part"]["type"] == kind).count()
    };
    assert_eq!(
        (
            count("patch"),
            watch.transcript.kinds().iter().filter(|kind| **kind == "file.watcher.updated").count()
        ),
        (1, 1)
    );
}
