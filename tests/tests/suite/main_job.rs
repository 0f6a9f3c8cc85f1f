//! The main job: a prompt runs an agent on a real repository, with all real services.

use e2e::{Options, Stack, turn::Watch, turn::run};
use rpc::v1;
use serde_json::json;

#[tokio::test]
async fn a_prompt_is_answered_and_stored_as_it_was_streamed() {
    if e2e::is_left_out(&["nats"], "live text comes through NATS only") {
        return;
    }
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let prompt = "@reason Let me think.\n@chunk 3\n@delay 2\n@text Hello, wörld: this is streamed.";
    let (outcome, transcript) = run(&stack.api, &session, prompt).await;
    assert_eq!(outcome, "done");
    assert_eq!(transcript.events[0].kind, "session.created");
    assert!(!transcript.deltas.is_empty(), "the text was streamed");
    let talk = stack.api.conversation(&session).await;
    let roles: Vec<_> = talk.iter().map(|(info, _)| info["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert_eq!(talk[1].0["parentID"], talk[0].0["id"], "the exit rule's link");
    let kinds: Vec<_> = talk[1].1.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["step-start", "reasoning", "text", "step-finish"]);
    assert_eq!(talk[1].1[2]["text"], "Hello, wörld: this is streamed.");
    let state = stack.api.get(&session).await;
    assert_eq!((state.state(), state.last_outcome()), (v1::SessionState::Idle, v1::TurnOutcome::Done));
}

#[tokio::test]
async fn tokens_and_cost_are_exact_for_every_protocol() {
    let stack = Stack::without_sandbox().await;
    for provider in ["chat", "claude", "responses", "gemini"] {
        let session = stack.session().await;
        let request = v1::AcceptPromptRequest {
            session_id: session.clone(),
            text: "@usage input=1000 output=20 reasoning=0 cache_read=0 cache_write=0\n@text ok".to_owned(),
            model: Some(v1::ModelRef { provider_id: provider.to_owned(), model_id: "demo".to_owned() }),
            ..Default::default()
        };
        stack.api.prompts().accept_prompt(request).await.unwrap();
        assert_eq!(Watch::start(&stack.api, &session).await.until_idle().await, "done", "{provider}");
        let state = stack.api.get(&session).await;
        let tokens = state.tokens.unwrap();
        assert_eq!((tokens.input, tokens.output), (1000, 20), "{provider}");
        assert_eq!(state.cost_usd_picos, 1000 * 3_000_000 + 20 * 15_000_000, "{provider}");
    }
}

#[tokio::test]
async fn the_demo_repairs_the_sample_repository() {
    let files = [
        ("greet.sh", include_str!("../../sample/greet.sh")),
        ("test.sh", include_str!("../../sample/test.sh")),
    ];
    let repository = testkit::git::repository(&files);
    let script = include_str!("../../../crates/model-script/src/demo.toml").to_owned();
    let stack = Stack::with(Options { script, ..Options::default() }).await;
    let session = stack.session_on(&repository).await;
    let (outcome, transcript) = run(&stack.api, &session, "fix the failing tests").await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let talk = stack.api.conversation(&session).await;
    let tools: Vec<_> = talk
        .iter()
        .flat_map(|(_, parts)| parts)
        .filter(|part| part["type"] == "tool")
        .map(|part| (part["tool"].as_str().unwrap(), part["state"]["status"].as_str().unwrap()))
        .collect();
    assert_eq!(
        tools,
        [("bash", "completed"), ("read", "completed"), ("edit", "completed"), ("bash", "completed")]
    );
    let exits: Vec<_> = talk
        .iter()
        .flat_map(|(_, parts)| parts)
        .filter(|part| part["tool"] == "bash")
        .map(|part| part["state"]["metadata"]["exit"].clone())
        .collect();
    assert_eq!(exits, [json!(1), json!(0)], "the tests failed, and pass now");
    let request = v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() };
    let diff = stack.api.sessions().get_session_diff(request).await.unwrap().into_inner();
    assert!(diff.patch.contains("+  printf 'Hello, %s!\\n' \"${1:-world}\""), "{}", diff.patch);
    assert_eq!((diff.files.len(), diff.files[0].additions, diff.files[0].deletions), (1, 1, 1));
    let request = v1::ExportSessionRequest { session_id: session, squash: false };
    let mut export = stack.api.sessions().export_session(request).await.unwrap().into_inner();
    let mut bytes = vec![];
    while let Some(piece) = export.message().await.unwrap() {
        bytes.extend(piece.data);
    }
    assert!(bytes.starts_with(b"# v2 git bundle"), "a bundle");
}

#[tokio::test]
async fn tools_run_in_parallel_and_every_tool_works() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let prompt = r#"
@tool write {"filePath":"/workspace/src/a.txt","content":"one\ntwo\n"}
@tools
@tool read {"filePath":"/workspace/src/a.txt"}
@tool glob {"pattern":"**/*.txt"}
@tool grep {"pattern":"t.o"}
@tool list {}
@tool bash {"command":"cat src/a.txt; exit 3","description":"Shows the file"}
@step
@tool edit {"filePath":"/workspace/src/a.txt","oldString":"two","newString":"three"}
@tool todowrite {"todos":[{"content":"rest","status":"pending","priority":"low"}]}
@text {{last_tool_result}}"#;
    let (outcome, transcript) = run(&stack.api, &session, prompt).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let talk = stack.api.conversation(&session).await;
    let output = |tool: &str| {
        let part = talk.iter().flat_map(|(_, parts)| parts).find(|part| part["tool"] == tool).expect(tool);
        assert_eq!(part["state"]["status"], "completed", "{part}");
        part["state"]["output"].as_str().unwrap().to_owned()
    };
    assert_eq!(output("read"), "1: one\n2: two\n");
    assert_eq!(output("glob"), "/workspace/src/a.txt");
    assert_eq!(output("grep"), "/workspace/src/a.txt:\n  2: two\n");
    assert_eq!(output("bash"), "one\ntwo\n\n(Exit code 3.)");
    assert!(output("list").contains("a.txt"));
    assert!(transcript.kinds().contains(&"todo.updated"));
}

#[tokio::test]
async fn prompts_for_a_busy_session_join_its_queue() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@delay 30\n@chunk 2\n@text The first answer takes a while.").await.unwrap();
    watch.until_answering().await;
    let second = stack.api.prompt(&session, "@text second").await.unwrap();
    let third = stack.api.prompt(&session, "@text third").await.unwrap();
    assert_eq!(third.inputs_ahead, second.inputs_ahead + 1);
    assert_eq!(watch.until_idle().await, "done");
    let talk = stack.api.conversation(&session).await;
    let last = talk.last().unwrap();
    assert_eq!(last.0["parentID"], third.message_id, "one answer, to the newest of the queued prompts");
    let texts: Vec<_> =
        talk.iter().flat_map(|(_, parts)| parts).filter(|part| part["type"] == "text").collect();
    assert_eq!(texts.last().unwrap()["text"], "third");
}

#[tokio::test]
async fn a_repeated_prompt_with_the_same_key_is_the_same_prompt() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let request = |text: &str| v1::AcceptPromptRequest {
        session_id: session.clone(),
        text: text.to_owned(),
        idempotency_key: "k1".to_owned(),
        ..Default::default()
    };
    let first = stack.api.prompts().accept_prompt(request("@text once")).await.unwrap().into_inner();
    let again = stack.api.prompts().accept_prompt(request("@text once")).await.unwrap().into_inner();
    assert_eq!(first.message_id, again.message_id);
    // What the session adds to a prompt may change between two attempts.
    let update = v1::UpdateSessionRequest {
        session_id: session.clone(),
        update_mask: Some(prost_types::FieldMask { paths: vec!["agent".to_owned()] }),
        agent: "plan".to_owned(),
        ..Default::default()
    };
    stack.api.sessions().update_session(update).await.unwrap();
    let again = stack.api.prompts().accept_prompt(request("@text once")).await.unwrap().into_inner();
    assert_eq!(first.message_id, again.message_id);
    let other = stack.api.prompts().accept_prompt(request("@text twice")).await.unwrap_err();
    assert_eq!(e2e::api::code(&other), "idempotency_conflict");
    Watch::start(&stack.api, &session).await.until_idle().await;
    assert_eq!(stack.api.conversation(&session).await.len(), 2);
}
