//! Prompts with more than a text: files, agents, subtasks, notes, settings and structured answers.

use e2e::{
    Stack,
    api::assert_refused,
    turn::{Watch, bash, run, run_request},
};
use rpc::v1::{self, prompt_part::Kind};
use serde_json::{Value, json};
use tonic::Code;

fn part(kind: Kind) -> v1::PromptPart {
    kind.into()
}

pub(crate) fn file(mime: &str, url: &str) -> v1::PromptPart {
    let (mime, url) = (mime.to_owned(), url.to_owned());
    part(Kind::File(v1::FilePart { mime, filename: "a.txt".to_owned(), url, source_json: String::new() }))
}

fn agent(name: &str) -> v1::PromptPart {
    part(Kind::Agent(v1::AgentPart { name: name.to_owned(), source_json: String::new() }))
}

fn task(prompt: &str) -> v1::PromptPart {
    part(Kind::Subtask(v1::SubtaskPart {
        prompt: prompt.to_owned(),
        description: "a task".to_owned(),
        agent: "general".to_owned(),
        ..Default::default()
    }))
}

fn schema(retry_count: Option<u32>) -> Option<v1::OutputFormat> {
    let schema =
        json!({"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]});
    Some(v1::OutputFormat { json_schema: schema.to_string(), retry_count })
}

fn texts(parts: &[Value]) -> Vec<&str> {
    parts.iter().filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str()).collect()
}

#[tokio::test]
async fn the_content_of_a_file_decides_its_type() {
    let stack = Stack::start().await;
    let files = [
        ("words.png", "only words\n"),
        ("picture.txt", "GIF89a\u{1}\0\u{1}\0\0\0\0;"),
        ("paper", "%PDF-1.4\n1 0 obj\n"),
        ("data.pdf", "\0\u{1}"),
    ];
    let session = stack.session_on(&testkit::git::repository(&files)).await;
    let (outcome, transcript) = run_request(&stack.api, &session, |prompt| {
        prompt.text = "@text seen".to_owned();
        let model = ("chat".to_owned(), "eyes".to_owned());
        prompt.model = Some(v1::ModelRef { provider_id: model.0, model_id: model.1 });
        prompt.parts =
            files.map(|(name, _)| file("image/png", &format!("file:///workspace/{name}"))).to_vec();
    })
    .await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let messages = stack.model.journal.requests()[0].body["messages"].to_string();
    for words in [
        "1: only words",
        "data:image/gif;base64,R0lGODlh",
        "data:application/pdf;base64,JVBERi0",
        "failed to read /workspace/data.pdf with the following error: it is not text, a picture or a PDF document",
    ] {
        assert!(messages.contains(words), "{words}: {messages}");
    }
}

#[tokio::test]
async fn the_model_receives_files_and_agents_once() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[("src/a.txt", "hello\nworld\n")]);
    let session = stack.session_on(&repository).await;
    let (outcome, transcript) = run_request(&stack.api, &session, |prompt| {
        prompt.text = "@text seen\n@step\n@text again".to_owned();
        prompt.parts = vec![
            file("text/plain", "data:text/plain;base64,ZnJvbSBhZmFy"),
            file("text/plain", "file:///workspace/src/a.txt?start=2&end=2"),
            file("application/x-directory", "file:///workspace/src"),
            file("text/plain", "file:///workspace/missing"),
            file("image/gif", "data:image/gif;base64,R0lGODlhAQABAAAAADs="),
            agent("explore"),
        ];
    })
    .await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let messages = stack.model.journal.requests()[0].body["messages"].to_string();
    for words in [
        "from afar",
        "<path>/workspace/src/a.txt</path>\\n<type>file</type>\\n<content>\\n2: world\\n",
        "<type>directory</type>\\n<content>\\na.txt",
        "Read tool failed to read /workspace/missing with the following error: ",
        "ERROR: Cannot read \\\"a.txt\\\" (this model does not support image/gif input)",
        "call the task tool with subagent: explore",
    ] {
        assert!(messages.contains(words), "{words}: {messages}");
    }
    let talk = stack.api.conversation(&session).await;
    let kinds: Vec<_> = talk[0].1.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "file").count(), 5);
    let text_count = texts(&talk[0].1).len();
    run(&stack.api, &session, "@text more").await;
    let talk = stack.api.conversation(&session).await;
    assert_eq!(texts(&talk[0].1).len(), text_count, "files are read once");
    assert_eq!(stack.model.journal.requests()[1].body["messages"].to_string().matches("2: world").count(), 1);
}

#[tokio::test]
async fn a_note_starts_no_turn_and_is_part_of_the_next_one() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let note = async || {
        let note = stack.api.prompt_with(&session, |prompt| {
            (prompt.text, prompt.no_reply) = ("the colour is red".to_owned(), true);
            prompt.message_id = "msg_note".to_owned();
        });
        note.await.unwrap()
    };
    let first = note().await;
    assert_eq!(note().await.message_id, first.message_id, "it is stored once");
    let state = stack.api.get(&session).await;
    assert_eq!((state.state(), state.event_seq), (v1::SessionState::Idle, 3));
    let (outcome, transcript) = run(&stack.api, &session, "@text seen").await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let requests = stack.model.journal.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].body["messages"].to_string().contains("the colour is red"));
    // A message after an answer is not a prompt either.
    let mut watch = Watch::start(&stack.api, &session).await;
    let text = format!("{}\n@text over", bash("sleep 0.3"));
    let prompt = stack.api.prompt(&session, &text).await.unwrap().message_id;
    watch.until_tool("running").await;
    let late = |prompt: &mut v1::AcceptPromptRequest| {
        (prompt.text, prompt.no_reply) = ("too late".to_owned(), true);
    };
    stack.api.prompt_with(&session, late).await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let requests = stack.model.journal.requests();
    assert!(requests[2].body["messages"].to_string().contains("too late"), "the running turn sees it");
    assert_eq!(requests.len(), 3, "no turn answers a note");
    let talk = stack.api.conversation(&session).await;
    let answer = talk.iter().rev().find(|(info, _)| info["role"] == "assistant").unwrap();
    assert_eq!(answer.0["parentID"], prompt, "the answer belongs to the prompt");
}

#[tokio::test]
async fn a_repeated_message_id_is_the_same_prompt() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let ask = async |text: &str, part: &str| {
        let (text, part) = (text.to_owned(), part.to_owned());
        let prompt = |prompt: &mut v1::AcceptPromptRequest| {
            prompt.message_id = "msg_mine".to_owned();
            prompt.parts = vec![v1::PromptPart { id: part, kind: Some(Kind::Text(text)) }];
        };
        stack.api.prompt_with(&session, prompt).await
    };
    let first = ask("@text one", "prt_mine").await.unwrap();
    assert_eq!(first.message_id, "msg_mine");
    assert_eq!(ask("@text one", "prt_mine").await.unwrap().message_id, "msg_mine");
    assert_refused(ask("@text two", "prt_mine").await, Code::AlreadyExists, "idempotency_conflict");
    assert_refused(ask("@text one", "prt_other").await, Code::AlreadyExists, "idempotency_conflict");
    let mut watch = Watch::start(&stack.api, &session).await;
    assert_eq!(watch.until_idle().await, "done");
    let talk = stack.api.conversation(&session).await;
    assert_eq!((talk.len(), talk[0].1[0]["id"].as_str()), (2, Some("prt_mine")));
    // A client cannot replace a message of the agent.
    let id = talk[1].0["id"].as_str().unwrap().to_owned();
    let stolen = stack
        .api
        .prompt_with(&session, |prompt| (prompt.text, prompt.message_id) = ("x".to_owned(), id))
        .await;
    assert_refused(stolen, Code::AlreadyExists, "idempotency_conflict");
}

#[tokio::test]
async fn unsupported_parts_are_refused() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    type Change = fn(&mut v1::AcceptPromptRequest);
    let cases: [(&str, Change); 15] = [
        ("prompt_empty", |prompt| prompt.parts = vec![part(Kind::Text(" ".to_owned()))]),
        ("part_empty", |prompt| prompt.parts = vec![v1::PromptPart::default()]),
        ("parts_too_many", |prompt| prompt.parts = vec![agent("explore"); 65]),
        ("part_id_invalid", |prompt| {
            prompt.parts = vec![v1::PromptPart { id: "x".to_owned(), ..agent("explore") }];
        }),
        ("part_id_duplicate", |prompt| {
            prompt.parts = vec![v1::PromptPart { id: "prt_1".to_owned(), ..agent("explore") }; 2];
        }),
        ("message_id_invalid", |prompt| prompt.message_id = "ses_1".to_owned()),
        ("mime_not_allowed", |prompt| prompt.parts = vec![file("audio/mp3", "data:audio/mp3;base64,AA==")]),
        ("file_url_invalid", |prompt| prompt.parts = vec![file("image/png", "https://example.com/a.png")]),
        ("files_too_large", |prompt| {
            prompt.parts = vec![file("text/plain", &format!("data:,{}", "x".repeat(5 << 20))); 2];
        }),
        ("agent_unknown", |prompt| prompt.parts = vec![agent("build")]),
        ("no_reply_task", |prompt| (prompt.parts, prompt.no_reply) = (vec![task("x")], true)),
        ("variant_unknown", |prompt| prompt.variant = "loud".to_owned()),
        ("tool_name_invalid", |prompt| prompt.tools.extend([(String::new(), false)])),
        ("schema_invalid", |prompt| {
            let json_schema = "{\"type\":\"array\"}".to_owned();
            prompt.format = Some(v1::OutputFormat { json_schema, retry_count: None });
        }),
        ("retries_too_many", |prompt| prompt.format = schema(Some(11))),
    ];
    for (code, change) in cases {
        let answer = stack.api.prompt_with(&session, |prompt| {
            if code != "prompt_empty" {
                prompt.text = "@text never".to_owned();
            }
            change(prompt);
        });
        assert_refused(answer.await, Code::InvalidArgument, code);
    }
    assert_eq!(stack.api.get(&session).await.event_seq, 1, "nothing is stored");
}

#[tokio::test]
async fn variants_and_tool_switches_reach_the_model() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let (outcome, _) = run_request(&stack.api, &session, |prompt| {
        prompt.text = format!("{}\n@text over", bash("echo never"));
        prompt.variant = "high".to_owned();
        prompt.tools.insert("bash".to_owned(), false);
    })
    .await;
    assert_eq!(outcome, "done");
    let body = &stack.model.journal.requests()[0].body;
    assert_eq!(body["reasoning_effort"], "high");
    let tools = body["tools"].to_string();
    assert!(!tools.contains("\"bash\"") && tools.contains("\"read\""), "{tools}");
    assert!(stack.api.tool_calls(&session).await[0].result.contains("specified a rule"));
    let talk = stack.api.conversation(&session).await;
    assert_eq!((&talk[0].0["model"]["variant"], &talk[1].0["variant"]), (&json!("high"), &json!("high")));
    // The switches hold for that prompt only, the effort until a prompt names another.
    run(&stack.api, &session, &format!("{}\n@text over", bash("echo now"))).await;
    assert_eq!(stack.api.tool_calls(&session).await[1].result, "now\n");
    for (variant, want) in
        [("", json!("high")), ("low", json!("low")), ("", json!("low")), ("default", Value::Null)]
    {
        let before = stack.model.journal.requests().len();
        run_request(&stack.api, &session, |prompt| {
            prompt.text = "@text thought".to_owned();
            prompt.variant = variant.to_owned();
        })
        .await;
        assert_eq!(stack.model.journal.requests()[before].body["reasoning_effort"], want, "{variant:?}");
    }
}

#[tokio::test]
async fn a_structured_answer_fits_its_schema_or_the_turn_fails() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let misfit = "@tool StructuredOutput {\"answer\":\"x\"}";
    let ask = async |text: String, retries| {
        run_request(&stack.api, &session, |prompt| (prompt.text, prompt.format) = (text, schema(retries)))
            .await
    };
    let fits = format!("{misfit}\n@tool StructuredOutput {{\"answer\":42}}\n@text never said");
    let (outcome, transcript) = ask(fits, None).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let requests = stack.model.journal.requests();
    assert_eq!((requests.len(), &requests[0].body["tool_choice"]), (2, &json!("required")));
    assert!(requests[0].body["messages"].to_string().contains("The person wants a structured answer"));
    let talk = stack.api.conversation(&session).await;
    assert_eq!((&talk[1].0["structured"], &talk[2].0["structured"]), (&Value::Null, &json!({"answer": 42})));
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[0].status == "error" && calls[0].result.contains("does not fit the schema"), "{calls:?}");

    for (text, retries, failed) in
        [(format!("{misfit}\n{misfit}\n{misfit}"), 1, 1), ("@text plain".to_owned(), 1, 0)]
    {
        let (outcome, transcript) = ask(text, Some(retries)).await;
        assert_eq!(outcome, "failed");
        let error = transcript.error().unwrap();
        assert_eq!(
            (&error["name"], &error["data"]["retries"]),
            (&json!("StructuredOutputError"), &json!(failed))
        );
    }
    assert_eq!(run(&stack.api, &session, "@text plain again").await.0, "done");
}

#[tokio::test]
async fn a_subtask_of_a_prompt_runs_before_the_first_model_call() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let (outcome, transcript) = run_request(&stack.api, &session, |prompt| {
        prompt.text = "@text skipped\n@step\n@text It says: {{last_tool_result}}".to_owned();
        prompt.parts = vec![task("@text the child is done"), task("@text so is the other")];
    })
    .await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let talk = stack.api.conversation(&session).await;
    let agents: Vec<_> = talk.iter().map(|(info, _)| info["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["build", "general", "build"]);
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!((calls.len(), calls[0].tool.as_str(), calls[0].status.as_str()), (2, "task", "completed"));
    assert!(calls[0].result.contains("the child is done") && calls[1].result.contains("so is the other"));
    assert!(texts(&talk[2].1)[0].contains("so is the other"), "{:?}", talk[2].1);
    assert_eq!(stack.model.journal.requests().len(), 3, "two children and one step");
}
