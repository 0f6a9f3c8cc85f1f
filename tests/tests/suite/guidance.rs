//! The guidance that a repository gives its agents, over the whole stack: instructions, skills, agents, rules.

use e2e::{
    Stack,
    api::assert_refused,
    turn::{Watch, run},
};
use serde_json::{Value, json};
use tonic::Code;

/// Returns the model requests of a session.
pub(crate) fn of_session(stack: &Stack, session: &str) -> Vec<Value> {
    let requests = stack.model.journal.requests().into_iter();
    let is_its = |request: &model_script::journal::Request| {
        request.headers.get("x-session-id").is_some_and(|id| id == session)
    };
    requests.filter(is_its).map(|request| request.body).collect()
}

/// Returns the system prompt of each model call of a session.
pub(crate) fn systems(stack: &Stack, session: &str) -> Vec<String> {
    let text = |body: &Value| {
        let messages = body["messages"].as_array().unwrap().iter();
        let system = messages.filter(|message| message["role"] == "system");
        system
            .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    };
    of_session(stack, session).iter().map(text).collect()
}

pub(crate) fn tool(name: &str, input: &Value) -> String {
    format!("@tool {name} {input}")
}

pub(crate) async fn run_to_end(stack: &Stack, session: &str, prompt: &str) {
    let (outcome, transcript) = run(&stack.api, session, prompt).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
}

#[tokio::test]
async fn instructions_are_reread_in_each_turn_and_near_used_files() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[
        ("AGENTS.md", "Be brief.\n"),
        ("docs/AGENTS.md", "Docs are in English.\n"),
        ("docs/deep/CLAUDE.md", "Deep rules.\n"),
        ("docs/deep/page.md", "page\n"),
        ("docs/deep/other.md", "other\n"),
    ]);
    let session = stack.session_on(&repository).await;
    run_to_end(&stack, &session, "@text one").await;
    let first = systems(&stack, &session).pop().unwrap();
    assert!(first.contains("Instructions from: /workspace/AGENTS.md\nBe brief."), "{first}");
    assert!(!first.contains("Docs are"), "{first}");

    let write = json!({"filePath": "/workspace/AGENTS.md", "content": "Be thorough.\n"});
    run_to_end(&stack, &session, &format!("{}\n@text two", tool("write", &write))).await;
    run_to_end(&stack, &session, "@text three").await;
    let system_prompts = systems(&stack, &session);
    assert!(
        system_prompts[2].contains("Be brief."),
        "a turn has one set of instructions: {}",
        system_prompts[2]
    );
    let last = system_prompts.last().unwrap();
    assert!(last.contains("Be thorough.") && !last.contains("Be brief."), "{last}");

    let read = |path: &str| tool("read", &json!({"filePath": format!("/workspace/{path}")}));
    let prompt = format!(
        "{}\n{}\n@text four",
        read("docs/deep/page.md"),
        "@tools\n".to_owned() + &read("docs/deep/other.md")
    );
    run_to_end(&stack, &session, &prompt).await;
    run_to_end(&stack, &session, &format!("{}\n@text five", read("docs/deep/page.md"))).await;
    let calls = stack.api.tool_calls(&session).await;
    let reads: Vec<&str> =
        calls.iter().filter(|call| call.result.contains("1: ")).map(|call| call.result.as_str()).collect();
    let reminder = "<system-reminder>\nInstructions from: /workspace/docs/deep/CLAUDE.md\nDeep rules.\n</system-reminder>\n\n\
                    <system-reminder>\nInstructions from: /workspace/docs/AGENTS.md\nDocs are in English.\n</system-reminder>";
    assert!(reads[0].contains(reminder), "{}", reads[0]);
    assert!(reads[1..].iter().all(|output| !output.contains("<system-reminder>")), "shown once: {reads:?}");
}

#[tokio::test]
async fn instructions_written_into_an_empty_workspace_take_effect() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run_to_end(&stack, &session, "@text nothing").await;
    let write = json!({"filePath": "/workspace/AGENTS.md", "content": "Written later.\n"});
    run_to_end(&stack, &session, &format!("{}\n@text written", tool("write", &write))).await;
    run_to_end(&stack, &session, "@text now").await;
    let system_prompts = systems(&stack, &session);
    assert!(
        !system_prompts[0].contains("Instructions from")
            && system_prompts.last().unwrap().contains("Written later."),
        "{system_prompts:?}"
    );
}

#[tokio::test]
async fn skills_are_listed_and_loaded_on_demand() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[
        (".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: reads PDF\n---\nUse pdftotext.\n"),
        (".claude/skills/pdf/scripts/run.sh", "true\n"),
    ]);
    let session = stack.session_on(&repository).await;
    let load = |name: &str| tool("skill", &json!({"name": name}));
    run_to_end(&stack, &session, &format!("{}\n{}\n@text done", load("pdf"), load("xls"))).await;
    let calls = stack.api.tool_calls(&session).await;
    let want = "<skill name=\"pdf\" directory=\"/workspace/.claude/skills/pdf\">\nUse pdftotext.\n<files>\n\
                /workspace/.claude/skills/pdf/scripts/run.sh\n</files>\n</skill>";
    assert_eq!(calls[0].result, want);
    assert_eq!(calls[1].result, "There is no skill \"xls\". Available skills: pdf.");
    let tools = |session: &str| of_session(&stack, session).remove(0)["tools"].to_string();
    assert!(tools(&session).contains("- pdf: reads PDF"));
    let without = stack.session().await;
    run_to_end(&stack, &without, "@text x").await;
    assert!(!tools(&without).contains("\"skill\""), "without skills there is no skill tool");
}

const SETTINGS: &str = r#"{
  // The rules of this repository.
  "permission": {"bash": {"*": "allow", "rm *": "deny"}},
  "instructions": ["docs/*.md"],
  "agent": {
    "review": {"prompt": "You only review.", "mode": "all", "model": "claude/demo", "temperature": 0.25, "steps": 2,
               "permission": {"edit": "deny"}, "description": "reviews changes"},
  },
}"#;

pub(crate) async fn prompt_as(
    stack: &Stack,
    session: &str,
    agent: &str,
    text: &str,
) -> (String, e2e::turn::Transcript) {
    let request = rpc::v1::AcceptPromptRequest {
        session_id: session.to_owned(),
        agent: agent.to_owned(),
        text: text.to_owned(),
        ..Default::default()
    };
    let mut watch = Watch::start(&stack.api, session).await;
    let idle = |transcript: &e2e::turn::Transcript| {
        transcript.events.iter().filter(|event| event.kind == "session.idle").count()
    };
    let before =
        stack.api.conversation(session).await.iter().filter(|(info, _)| info["role"] == "user").count();
    stack.api.prompts().accept_prompt(request).await.unwrap();
    let mut outcome = String::new();
    while idle(&watch.transcript) <= before {
        outcome = watch.until_idle().await;
    }
    (outcome, watch.transcript)
}

#[tokio::test]
async fn an_agent_cannot_change_the_agents_and_rules_of_its_repository() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[
        ("opencode.jsonc", SETTINGS),
        ("docs/rules.md", "Mind the docs.\n"),
        ("a", "a\n"),
    ]);
    let session = stack.session_on(&repository).await;
    let bash = |command: &str| tool("bash", &json!({"command": command}));
    let loosen = json!({"filePath": "/workspace/opencode.jsonc", "content": "{}"});
    run_to_end(&stack, &session, &format!("{}\n@text loosened", tool("write", &loosen))).await;
    let first = systems(&stack, &session).remove(0);
    assert!(first.contains("Instructions from: /workspace/docs/rules.md\nMind the docs."), "{first}");
    run_to_end(&stack, &session, &format!("{}\n@text tried", bash("git commit -qam x; rm a"))).await;
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(
        calls.last().unwrap().result,
        "The user has specified a rule which prevents you from using this specific tool call. Do the work without it."
    );

    let write = json!({"filePath": "/workspace/b", "content": "b"});
    let text = format!("{}\n@text over", tool("write", &write));
    let (outcome, _) = prompt_as(&stack, &session, "review", &text).await;
    assert_eq!(outcome, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(
        calls.last().unwrap().result,
        "The user has specified a rule which prevents you from using this specific tool call. Do the work without it."
    );
    let requests: Vec<Value> = of_session(&stack, &session);
    let review = &requests[requests.len() - 2..];
    assert!(
        review[0]["system"].to_string().contains("You only review."),
        "its prompt: {}",
        review[0]["system"]
    );
    assert_eq!(review[0]["temperature"], json!(0.25));
    assert!(
        review[0]["tools"].to_string().contains("\"bash\"")
            && !review[0]["tools"].to_string().contains("\"write\"")
    );
    // The tools stay in the request, so that the provider's cache holds, but calls of them are refused.
    assert_eq!(
        review[1]["tool_choice"]["type"], "none",
        "its last step allows no calls: {}",
        review[1]["tool_choice"]
    );
    assert!(review[1]["messages"].to_string().contains("maximum number of steps"));
    let talk = stack.api.conversation(&session).await;
    assert_eq!(
        (&talk.last().unwrap().0["providerID"], &talk.last().unwrap().0["agent"]),
        (&json!("claude"), &json!("review"))
    );
}

#[tokio::test]
async fn a_subtask_can_use_an_agent_of_the_repository() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[("opencode.jsonc", SETTINGS)]);
    let session = stack.session_on(&repository).await;
    let write = json!({"filePath": "/workspace/b", "content": "b"});
    let prompt = format!(
        "{}\n@text over",
        e2e::turn::task_for("review", &format!("{}\n@text reviewed", tool("write", &write)))
    );
    run_to_end(&stack, &session, &prompt).await;
    let child = stack.api.children(&session).await.remove(0).id;
    let calls = stack.api.tool_calls(&child).await;
    assert_eq!(
        calls[0].result,
        "The user has specified a rule which prevents you from using this specific tool call. Do the work without it."
    );
    let tools = of_session(&stack, &session).remove(0)["tools"].to_string();
    assert!(tools.contains("review: reviews changes"), "{tools}");
}

#[tokio::test]
async fn an_invalid_configuration_ends_the_turn_only_if_it_affects_permissions() {
    let stack = Stack::start().await;
    let wrong = "{\n  \"agent\": {\"x\": {\"steps\": \"many\"}}\n}";
    let session = stack.session_on(&testkit::git::repository(&[("opencode.json", wrong)])).await;
    let (outcome, transcript) = run(&stack.api, &session, "@text on").await;
    assert_eq!(outcome, "done");
    let error = transcript
        .events
        .iter()
        .find(|event| event.kind == "session.error")
        .expect("the error is reported")
        .properties
        .to_string();
    assert!(
        error.contains("config_invalid")
            && error.contains("opencode.json:2:")
            && error.contains("agent.x.steps"),
        "{error}"
    );

    let wrong = "{\"permission\": {\"bash\": \"denny\"}}";
    let session = stack.session_on(&testkit::git::repository(&[("opencode.json", wrong)])).await;
    let (outcome, transcript) = run(&stack.api, &session, "@text on").await;
    assert_eq!(outcome, "failed");
    assert!(transcript.error().unwrap().to_string().contains("permission.bash"), "{:?}", transcript.error());
    assert!(of_session(&stack, &session).is_empty(), "there was no model call");

    let session = stack.session_on(&testkit::git::repository(&[("a", "a")])).await;
    let (outcome, transcript) = prompt_as(&stack, &session, "nobody", "@text on").await;
    assert_eq!(outcome, "failed");
    assert!(transcript.error().unwrap().to_string().contains("agent_not_found"), "{:?}", transcript.error());
}

#[tokio::test]
async fn people_and_the_model_learn_of_files_that_are_too_large_to_be_read() {
    let stack = Stack::start().await;
    let text = "x".repeat(300 * 1024);
    let files = [("AGENTS.md", text.as_str()), (".opencode/command/greet.md", &text)];
    let session = stack.session_on(&testkit::git::repository(&files)).await;
    let (outcome, transcript) = run(&stack.api, &session, "@text on").await;
    assert_eq!(outcome, "done");
    let error = transcript.events.iter().find(|event| event.kind == "session.error").expect("it is reported");
    assert_eq!(error.properties["error"]["data"]["ref"], "config_too_large", "{error:?}");
    let system = systems(&stack, &session).remove(0);
    let told = error.properties.to_string() + &system;
    for path in ["AGENTS.md: it is larger than 65536 bytes", ".opencode/command/greet.md: it is too large"] {
        assert_eq!(told.matches(path).count(), 2, "{path} for people and the model: {told}");
    }

    // A file that may restrict agents is not left out.
    let settings = format!("{{\"permission\": {{\"bash\": \"deny\"}}}}{}", " ".repeat(300 * 1024));
    let session = stack.session_on(&testkit::git::repository(&[("opencode.json", &settings)])).await;
    let (outcome, transcript) = run(&stack.api, &session, "@text on").await;
    assert_eq!(outcome, "failed");
    let error = transcript.error().unwrap().to_string();
    assert!(error.contains("config_invalid") && error.contains("opencode.json: it is too large"), "{error}");
}

#[tokio::test]
async fn a_repository_configures_the_default_agent() {
    let stack = Stack::start().await;
    let repository = |model: &str| {
        let settings = json!({"model": model, "default_agent": "review",
                              "agent": {"review": {"mode": "primary", "prompt": "You review."}}});
        testkit::git::repository(&[("opencode.json", &settings.to_string())])
    };
    let answered_by = async |session: &str| {
        let talk = stack.api.conversation(session).await;
        let (info, word) = (&talk.last().unwrap().0, |key: &str| talk.last().unwrap().0[key].to_string());
        assert!(info["error"].is_null(), "{info}");
        (word("providerID"), word("agent"))
    };
    let who = |provider: &str, agent: &str| (format!("{provider:?}"), format!("{agent:?}"));
    let valid_repository = repository("claude/demo");
    let session = stack.session_on(&valid_repository).await;
    run_to_end(&stack, &session, "@text one").await;
    assert_eq!(answered_by(&session).await, who("claude", "review"));
    assert!(stack.model.journal.requests()[0].body.to_string().contains("You review."));
    e2e::turn::run_on(&stack.api, &session, "gemini", "@text two").await;
    assert_eq!(answered_by(&session).await, who("gemini", "review"), "the prompt chose");

    let unknown = stack.session_on(&repository("claude/none")).await;
    run_to_end(&stack, &unknown, "@text one").await;
    assert_eq!(answered_by(&unknown).await, who("chat", "review"), "an unavailable model");

    let bundle_id = stack.api.upload(&valid_repository.bundle()).await;
    let request = rpc::v1::CreateSessionRequest {
        project_id: stack.api.project_id.clone(),
        title: "test".to_owned(),
        agent: "build".to_owned(),
        model: Some(rpc::v1::ModelRef { provider_id: "chat".to_owned(), model_id: "demo".to_owned() }),
        source: Some(rpc::v1::Source {
            from: Some(rpc::v1::source::From::BundleId(bundle_id)),
            revision: String::new(),
        }),
        ..Default::default()
    };
    let chosen = stack.api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id;
    run_to_end(&stack, &chosen, "@text one").await;
    assert_eq!(answered_by(&chosen).await, who("chat", "build"), "the creator of the session chose");
}

#[tokio::test]
async fn a_subagent_cannot_answer_a_prompt() {
    let stack = Stack::start().await;
    let settings =
        json!({"default_agent": "helper", "agent": {"helper": {"mode": "subagent", "prompt": "You help."}}});
    let repository = testkit::git::repository(&[("opencode.json", &settings.to_string())]);
    let session = stack.session_on(&repository).await;
    let (outcome, transcript) = e2e::turn::run(&stack.api, &session, "@text one").await;
    let error = transcript.error().unwrap();
    assert_eq!((outcome.as_str(), error["data"]["ref"].as_str()), ("failed", Some("agent_not_found")));
    assert!(stack.model.journal.requests().is_empty());
}

/// Until these files are open, the gateway lets every name pass, and the worker ends the turn with `agent_not_found`.
#[tokio::test]
async fn an_agent_that_the_repository_does_not_have_is_refused_when_its_files_are_open() {
    let stack = Stack::start().await;
    let settings = json!({"agent": {"review": {"mode": "all", "prompt": "You review."}}});
    let repository = testkit::git::repository(&[("opencode.json", &settings.to_string())]);
    let session = stack.session_on(&repository).await;
    run_to_end(&stack, &session, "@text one").await;
    let before = stack.api.get(&session).await.event_seq;

    let set_agent = |prompt: &mut rpc::v1::AcceptPromptRequest| {
        (prompt.text, prompt.agent) = ("@text on".to_owned(), "nobody".to_owned());
    };
    let mention = |prompt: &mut rpc::v1::AcceptPromptRequest| {
        let agent = rpc::v1::AgentPart { name: "nobody".to_owned(), ..Default::default() };
        let part = rpc::v1::PromptPart {
            kind: Some(rpc::v1::prompt_part::Kind::Agent(agent)),
            ..Default::default()
        };
        (prompt.text, prompt.parts) = ("@text on".to_owned(), vec![part]);
    };
    let refused = stack.api.prompt_with(&session, set_agent).await;
    let message = assert_refused(refused, Code::InvalidArgument, "agent_unknown");
    assert_eq!(message, "no such agent: \"nobody\"; available: build, plan, general, explore, review");
    let refused = stack.api.prompt_with(&session, mention).await;
    let message = assert_refused(refused, Code::InvalidArgument, "agent_unknown");
    assert_eq!(message, "no such subagent: \"nobody\"; available: general, explore, review");
    let prompt = json!({"agent": "nobody", "parts": [{"type": "text", "text": "@text on"}]});
    for (path, body) in [
        (format!("/session/{session}/message"), prompt.clone()),
        (format!("/session/{session}/prompt_async"), prompt),
        (format!("/session/{session}/shell"), json!({"agent": "nobody", "command": "true"})),
        (format!("/api/session/{session}/agent"), json!({"agent": "nobody"})),
    ] {
        let call = reqwest::Client::new().post(format!("{}{path}", stack.gateway_url())).json(&body);
        let answer = call.bearer_auth(&stack.api.key).send().await.unwrap();
        let code = answer.headers().get("x-flotilla-code").map(|code| code.to_str().unwrap().to_owned());
        assert_eq!((answer.status().as_u16(), code.as_deref()), (400, Some("agent_unknown")), "{path}");
    }
    assert_eq!(stack.api.get(&session).await.event_seq, before, "a refused prompt is not stored");

    let (outcome, _) = prompt_as(&stack, &session, "review", "@text two").await;
    assert_eq!(outcome, "done");
    assert!(of_session(&stack, &session).pop().unwrap().to_string().contains("You review."));
}

#[tokio::test]
async fn settings_that_other_programs_wrote_take_nothing_along_and_restrict() {
    let stack = Stack::start().await;
    let settings = json!({
        "mode": {"build": {"tools": {"bash": false}}}, "instructions": ["docs/rules.md"],
        "agent": {"planner": {"mode": "primary", "prompt": "{file:./prompts/planner.txt}"},
                  "lost": {"prompt": "{file:prompts/none.txt}", "description": "has no text"}},
    });
    let repository = testkit::git::repository(&[
        ("opencode.json", &settings.to_string()),
        ("prompts/planner.txt", "You plan it all.\n"),
        ("docs/rules.md", "Mind the docs.\n"),
        (
            ".opencode/agent/reviewer.md",
            "---\ndescription: Reviews\ntools: Read, Grep, Glob\nmodel: sonnet\n---\nYou review.",
        ),
        (
            ".opencode/command/ship.md",
            "---\nargument-hint: [issue] [priority]\nallowed-tools: Bash(git:*)\n---\n@text shipped $1",
        ),
        (".opencode/mode/strict.md", "---\ntools:\n  write: false\n---\nYou are strict."),
        (".claude/settings.json", r#"{"permissions": {"deny": ["Read(./secret.txt)"]}}"#),
        ("secret.txt", "hush\n"),
    ]);
    let session = stack.session_on(&repository).await;
    let bash = tool("bash", &json!({"command": "echo BASH RAN"}));
    let read = tool("read", &json!({"filePath": "/workspace/secret.txt"}));
    let (outcome, transcript) = run(&stack.api, &session, &format!("{bash}\n{read}\n@text over")).await;
    assert_eq!(outcome, "done");
    let told = transcript.events.iter().find(|event| event.kind == "session.error").expect("it is told");
    let told = told.properties.to_string();
    for part in ["agent.lost.prompt", "prompts/none.txt is no file of the commit", "agent.reviewer.model"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("planner") && !told.contains("ship"), "{told}");
    let refused = "The user has specified a rule which prevents you from using this specific tool call. Do the work without it.";
    let calls = stack.api.tool_calls(&session).await;
    let results: Vec<&str> = calls.iter().map(|call| call.result.as_str()).collect();
    assert_eq!(results, [refused; 2]);

    let requests = || of_session(&stack, &session);
    for (agent, text, tools) in [
        ("planner", "You plan it all.", ["bash", "edit"].as_slice()),
        ("reviewer", "You review.", &["read", "grep", "glob"]),
        ("strict", "You are strict.", &["bash", "read"]),
    ] {
        let (outcome, _) = prompt_as(&stack, &session, agent, "@text on").await;
        assert_eq!(outcome, "done", "{agent}");
        let request = requests().pop().unwrap();
        let system = request["messages"].to_string() + &request["system"].to_string();
        assert!(system.contains(text) && system.contains("Mind the docs."), "{agent}: {system}");
        let offered = request["tools"].to_string();
        for name in ["bash", "edit", "read", "grep", "glob"] {
            let is_offered = offered.contains(&format!("\"{name}\""));
            assert!(!tools.contains(&name) || is_offered, "{agent} has {name}: {offered}");
        }
        assert_eq!(offered.contains("\"write\""), agent == "planner", "{agent}: {offered}");
        assert_eq!(offered.contains("\"bash\""), agent != "reviewer", "{agent}: {offered}");
    }
}
