//! What clients need to show a permission or a question, and the tool calls that it is about.

use super::{client::Client, events::Events};
use e2e::{
    Stack,
    turn::{bash, task},
};
use reqwest::Method;
use rpc::v1;
use serde_json::{Value, json};

/// A session whose commands and changes of files need a person's permission, and a subscriber of its events.
async fn asking_session(client: &Client) -> (String, Events) {
    let events = Events::of(client, "/event", "").await;
    let rule = |permission: &str| json!({"permission": permission, "pattern": "*", "action": "ask"});
    let session = client.session(json!({"permission": [rule("bash"), rule("edit")]})).await;
    (session, events)
}

/// OpenCode's TUI shows the requests of a child only if `session.updated` announced the child.
#[tokio::test]
async fn a_child_is_announced_by_an_update_before_it_asks() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let (session, mut events) = asking_session(&client).await;
    client.prompt_async(&session, &task(&bash("uname -a"))).await;
    let permission = events.until(|event| event["type"] == "permission.asked").await;
    let child = permission["properties"]["sessionID"].as_str().unwrap();
    assert_ne!(child, session);
    let mut of_child = events.seen.iter().filter(|event| event["properties"]["sessionID"] == child);
    for kind in ["session.created", "session.updated"] {
        let event = of_child.next().unwrap();
        let parent = &event["properties"]["info"]["parentID"];
        assert_eq!((event["type"].as_str(), parent.as_str()), (Some(kind), Some(session.as_str())));
    }
}

/// A client that shows a session shows the requests of its subtasks there too.
#[tokio::test]
async fn a_request_is_answered_only_below_its_session_and_those_above_it() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let (session, mut events) = asking_session(&client).await;
    client.prompt_async(&session, &task(&bash("uname -a"))).await;
    let permission = events.until(|event| event["type"] == "permission.asked").await;
    let id = permission["properties"]["id"].as_str().unwrap();
    let other = client.session(json!({})).await;
    let (once, at) =
        (json!({"response": "once"}), |session: &str| format!("/session/{session}/permissions/{id}"));
    let refused = client.expect(404, Method::POST, &at(&other), once.clone()).await;
    assert_eq!((&refused["_tag"], &refused["requestID"]), (&json!("PermissionNotFoundError"), &json!(id)));
    assert_eq!(client.get("/permission").await[0]["id"], id, "it is still open");
    assert_eq!(client.post(&at(&session), once).await, true);
    events.until_session("session.idle", &session).await;
}

#[tokio::test]
async fn an_answered_question_shows_its_answers() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let (session, mut events) = asking_session(&client).await;
    let question = |text: &str, label: &str| json!({"question": text, "header": text, "options": [{"label": label, "description": ""}]});
    let questions = json!({"questions": [question("Which colour?", "Red"), question("Which size?", "S")]});
    client.prompt_async(&session, &format!("@tool question {questions}\n@text So.")).await;
    let event = events.until_session("question.asked", &session).await;
    let id = event["properties"]["id"].as_str().unwrap();
    let answers = json!([["Red"], ["S"]]);
    client.post(&format!("/question/{id}/reply"), json!({"answers": answers})).await;
    let state = until_tool(&mut events, "completed").await;
    assert_eq!((&state["title"], &state["metadata"]["answers"]), (&json!("Asked 2 questions"), &answers));
}

/// Waits until a tool call has this status, and returns its state.
async fn until_tool(events: &mut Events, status: &str) -> Value {
    let event = events.until(|event| event["properties"]["part"]["state"]["status"] == status).await;
    event["properties"]["part"]["state"].clone()
}

#[tokio::test]
async fn a_changed_file_shows_its_name_and_its_change() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let mut events = Events::of(&client, "/event", "").await;
    let session = client.session(json!({})).await;
    let path = "/workspace/src/a.txt";
    let write = |content: &str| json!({"filePath": path, "content": content});
    let edit = json!({"filePath": path, "oldString": "two", "newString": "three"});
    let prompt =
        format!("@tool write {}\n@tool write {}\n@tool edit {edit}\n", write("one\n"), write("two\n"));
    client.prompt_async(&session, &prompt).await;
    for (exists, patch) in
        [(json!(false), "+one"), (json!(true), "-one\n+two"), (Value::Null, "-two\n+three")]
    {
        let state = until_tool(&mut events, "completed").await;
        let metadata = &state["metadata"];
        assert_eq!(
            (&state["title"], &metadata["filepath"], &metadata["exists"]),
            (&json!("src/a.txt"), &json!(path), &exists)
        );
        let diff = &metadata["filediff"];
        assert_eq!(
            (&metadata["diagnostics"], &diff["file"], &diff["additions"]),
            (&json!({}), &json!(path), &json!(1))
        );
        assert!(diff["patch"].as_str().unwrap().contains(patch), "{diff}");
        assert_eq!(diff["patch"], metadata["diff"]);
    }
}

#[tokio::test]
async fn a_command_that_waits_for_permission_shows_its_input() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let (session, mut events) = asking_session(&client).await;
    client.prompt_async(&session, &bash("echo allowed")).await;
    let permission = events.until_session("permission.asked", &session).await;
    let input = json!({"command": "echo allowed"});
    let newest = events.seen.iter().rev().find(|event| event["properties"]["part"]["type"] == "tool");
    let talk = client.get(&format!("/session/{session}/message")).await;
    let listed = talk[1]["parts"].as_array().unwrap().iter().find(|part| part["type"] == "tool");
    for part in [&newest.unwrap()["properties"]["part"], listed.unwrap()] {
        let state = &part["state"];
        assert_eq!((&state["status"], &state["input"]), (&json!("running"), &input), "{part}");
        assert!(state["time"]["start"].as_i64().is_some_and(|start| start > 0), "{part}");
    }
    let id = permission["properties"]["id"].as_str().unwrap();
    client.post(&format!("/permission/{id}/reply"), json!({"reply": "once"})).await;
    assert_eq!(until_tool(&mut events, "completed").await["output"], "allowed\n");
}

#[tokio::test]
async fn a_permission_to_change_files_shows_the_files_and_the_change() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let (session, mut events) = asking_session(&client).await;
    let path = "/workspace/n.txt";
    let patch = "*** Begin Patch\n*** Update File: n.txt\n@@\n-three\n+four\n*** Add File: m.txt\n+five\n*** End Patch";
    for (call, files, change) in [
        (json!({"tool": "edit", "filePath": path, "oldString": "", "newString": "one\n"}), "n.txt", "+one"),
        (json!({"tool": "write", "filePath": path, "content": "two\n"}), "n.txt", "-one\n+two"),
        (
            json!({"tool": "edit", "filePath": path, "oldString": "two", "newString": "three"}),
            "n.txt",
            "-two\n+three",
        ),
        (json!({"tool": "apply_patch", "patchText": patch}), "n.txt, m.txt", "-three\n+four"),
        (
            json!({"tool": "batch", "tool_calls": [
                {"tool": "bash", "parameters": {"command": "echo in a batch"}},
                {"tool": "write", "parameters": {"filePath": path, "content": "six\n"}},
                {"tool": "edit", "parameters": {"filePath": "/workspace/m.txt", "oldString": "five", "newString": "5"}},
            ]}),
            "n.txt, m.txt",
            "-five\n+5",
        ),
    ] {
        let mut input = call.clone();
        let tool = input.as_object_mut().unwrap().remove("tool").unwrap();
        client.prompt_async(&session, &format!("@tool {} {input}\n", tool.as_str().unwrap())).await;
        let permission = events.until_session("permission.asked", &session).await;
        let metadata = &permission["properties"]["metadata"];
        assert_eq!(metadata["filepath"], files, "{permission}");
        let asked: Vec<&str> = if metadata["command"].is_string() {
            vec!["echo in a batch"]
        } else {
            files.split(", ").collect()
        };
        assert_eq!(permission["properties"]["patterns"], json!(asked), "{permission}");
        assert!(metadata["diff"].as_str().is_some_and(|diff| diff.contains(change)), "{permission}");
        let request = v1::ListPermissionsRequest { session_id: session.clone(), ..Default::default() };
        let listed =
            stack.api.permissions().list_permissions(request).await.unwrap().into_inner().permissions;
        assert_eq!(metadata["diff"], listed[0].diff, "over gRPC too");
        let id = permission["properties"]["id"].as_str().unwrap();
        client.post(&format!("/permission/{id}/reply"), json!({"reply": "once"})).await;
        events.until_session("session.idle", &session).await;
    }
}

#[tokio::test]
async fn an_edit_that_cannot_be_applied_asks_nobody() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let mut events = Events::of(&client, "/event", "").await;
    let rule = |permission: &str, pattern: &str, action: &str| json!({"permission": permission, "pattern": pattern, "action": action});
    let rules =
        [rule("edit", "*", "ask"), rule("edit", "sealed.txt", "deny"), rule("read", "secret.txt", "deny")];
    let session = client.session(json!({"permission": rules})).await;
    let path = |name: &str| format!("/workspace/{name}");
    let edit = |name: &str| json!({"filePath": path(name), "oldString": "absent words", "newString": "x"});
    let edits = json!({"filePath": path("n.txt"), "edits": [
        {"oldString": "one", "newString": "two"}, {"oldString": "absent words", "newString": "x"}
    ]});
    let patch = "*** Begin Patch\n*** Update File: n.txt\n@@\n-absent words\n+x\n*** End Patch";
    let prepare = bash("for name in n secret sealed; do echo one > $name.txt; done");
    let failing = [
        format!("@tool edit {}", edit("n.txt")),
        format!("@tool edit {}", edit("missing.txt")),
        format!("@tool multiedit {edits}"),
        format!("@tool apply_patch {}", json!({"patchText": patch})),
        format!("@tool edit {}", edit("sealed.txt")),
    ];
    client.prompt(&session, &format!("{prepare}\n{}\n@text done", failing.join("\n"))).await;
    events.until_session("session.idle", &session).await;
    assert!(!events.kinds().contains("permission.asked"), "{:?}", events.kinds());
    let calls = stack.api.tool_calls(&session).await;
    let answers: Vec<&str> = calls[1..].iter().map(|call| call.result.as_str()).collect();
    assert_eq!(answers.len(), failing.len());
    assert!(answers[4].contains("a rule which prevents"), "denied unread: {answers:?}");

    // The failure would tell what a file has that the agent may not read.
    client.prompt_async(&session, &format!("@tool edit {}\n", edit("secret.txt"))).await;
    let permission = events.until_session("permission.asked", &session).await;
    let metadata = &permission["properties"]["metadata"];
    assert!(metadata["diff"].as_str().unwrap().contains("-absent words"), "{permission}");
}

/// The person decides before there are files: the dialog shows what the arguments tell.
#[tokio::test]
async fn a_permission_shows_the_change_although_the_files_are_not_open() {
    let mut stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let (session, mut events) = asking_session(&client).await;
    stack.stop_sandbox().await;
    let patch =
        "*** Begin Patch\n*** Update File: p.txt\n@@\n-four\n+five\n*** Delete File: gone.txt\n*** End Patch";
    let calls = json!({"tool_calls": [
        {"tool": "write", "parameters": {"filePath": "/workspace/w.txt", "content": "one\n"}},
        {"tool": "edit", "parameters": {"filePath": "/workspace/e.txt", "oldString": "two", "newString": "three"}},
        {"tool": "apply_patch", "parameters": {"patchText": patch}},
    ]});
    client.prompt_async(&session, &format!("@tool batch {calls}\n")).await;
    let permission = events.until_session("permission.asked", &session).await;
    let metadata = &permission["properties"]["metadata"];
    assert_eq!(metadata["filepath"], "w.txt, e.txt, p.txt, gone.txt", "{permission}");
    let diff = metadata["diff"].as_str().unwrap();
    assert!(
        ["+one", "-two\n", "+three\n", "-four\n+five\n"].iter().all(|line| diff.contains(line)),
        "{diff}"
    );
}
