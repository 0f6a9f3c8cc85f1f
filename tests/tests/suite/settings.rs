//! Settings that tenants and projects store, over the whole stack.

use e2e::{
    Stack,
    api::assert_refused,
    turn::{Watch, run, run_on, task},
};
use rpc::v1;
use serde_json::{Value, json};
use tonic::Code;

async fn set(stack: &Stack, project: &str, document: &Value) {
    let request = v1::SetSettingsRequest { project_id: project.to_owned(), document: document.to_string() };
    stack.api.settings().set_settings(request).await.unwrap();
}

async fn explained(stack: &Stack, session: &str) -> v1::ExplainSettingsResponse {
    let request = v1::ExplainSettingsRequest { session_id: session.to_owned() };
    stack.api.settings().explain_settings(request).await.unwrap().into_inner()
}

/// Formats each setting as `path = value (level file:line)`.
fn rows(explained: &v1::ExplainSettingsResponse) -> Vec<String> {
    let row = |setting: &v1::Setting| {
        let origin = setting.origin.clone().unwrap();
        format!("{} = {} ({} {}:{})", origin.path, setting.value, origin.level, origin.file, origin.line)
    };
    explained.settings.iter().map(row).collect()
}

fn bash(command: &str) -> String {
    format!("@tool bash {}\n@text after", json!({"command": command}))
}

const FORBIDDEN: &str = "The user has specified a rule which prevents you from using this specific tool call. Do the work without it.";

#[tokio::test]
async fn each_level_of_settings_binds_lower_levels_and_values_show_their_origin() {
    let stack = Stack::start().await;
    let (tenant, project) = (String::new(), stack.api.project_id.clone());
    set(
        &stack,
        &tenant,
        &json!({"permission": {"bash": {"*": "allow", "rm *": "deny"}}, "model": "gemini/demo"}),
    )
    .await;
    set(&stack, &project, &json!({"default_agent": "plan", "model": "claude/demo"})).await;
    let wide = json!({"permission": {"bash": "allow"}, "default_agent": "build"});
    let repository = testkit::git::repository(&[("opencode.json", &wide.to_string()), ("a", "a")]);
    let session = stack.session_on(&repository).await;
    let (outcome, transcript) = run(&stack.api, &session, &bash("rm a")).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    assert_eq!(stack.api.tool_calls(&session).await[0].result, FORBIDDEN);
    let talk = stack.api.conversation(&session).await;
    let answer = &talk.last().unwrap().0;
    assert_eq!((&answer["providerID"], &answer["agent"]), (&json!("claude"), &json!("build")));

    let rows = rows(&explained(&stack, &session).await);
    for want in [
        "model = \"claude/demo\" (project project.json:1)",
        "default_agent = \"build\" (repository opencode.json:1)",
        "permission.bash.\"rm *\" = \"deny\" (tenant tenant.json:1)",
        "permission.bash = \"allow\" (repository opencode.json:1)",
    ] {
        assert!(rows.iter().any(|row| row == want), "{want} in {rows:?}");
    }

    // They apply without a repository as well, and a change applies to the next prompt.
    let empty = stack.session().await;
    run(&stack.api, &empty, &bash("rm -f a")).await;
    assert_eq!(stack.api.tool_calls(&empty).await[0].result, FORBIDDEN);
    let none = v1::SetSettingsRequest::default();
    stack.api.settings().set_settings(none).await.unwrap();
    let answer = stack.api.settings().get_settings(v1::GetSettingsRequest::default()).await.unwrap();
    assert_eq!(answer.into_inner().settings, None);
    run(&stack.api, &empty, &bash("rm -f a")).await;
    assert_ne!(stack.api.tool_calls(&empty).await[1].result, FORBIDDEN);
}

#[tokio::test]
async fn settings_decide_the_model_and_its_context_size() {
    let stack = Stack::start().await;
    set(&stack, "", &json!({"disabled_providers": ["gemini"]})).await;
    let session = stack.session().await;
    let (outcome, transcript) = run_on(&stack.api, &session, "gemini", "@text never").await;
    assert_eq!(outcome, "failed");
    let error = transcript.error().unwrap().to_string();
    assert!(error.contains("model_not_found") && error.contains("do not allow"), "{error}");
    assert!(stack.model.journal.requests().is_empty());

    // A context that one answer fills: the next turn starts with a summary.
    let narrow = json!({"model": "claude/demo",
                        "provider": {"claude": {"models": {"demo": {"limit": {"context": 40_000}}}}}});
    let repository = testkit::git::repository(&[("opencode.json", &narrow.to_string())]);
    let session = stack.session_on(&repository).await;
    run(&stack.api, &session, "@usage input=35000 output=10\n@text long").await;
    run(&stack.api, &session, "@text next").await;
    let talk = stack.api.conversation(&session).await;
    let summaries = talk.iter().filter(|(info, _)| info["summary"] == json!(true)).count();
    assert_eq!(summaries, 1, "{talk:?}");
}

#[tokio::test]
async fn settings_limit_the_depth_of_subtasks() {
    let stack = Stack::start().await;
    set(&stack, "", &json!({"subagent_depth": 1})).await;
    let session = stack.session().await;
    run(&stack.api, &session, &task(&format!("{}\n@text passed on", task("@text too deep")))).await;
    let children = stack.api.children(&session).await;
    let refused = stack.api.tool_calls(&children[0].id).await;
    assert_eq!(children.len(), 1);
    assert!(refused[0].result.contains("limited to 1"), "{refused:?}");
    assert!(stack.api.children(&children[0].id).await.is_empty());
}

#[tokio::test]
async fn invalid_settings_are_refused_with_their_position_and_change_nothing() {
    let stack = Stack::gateway_alone().await;
    set(&stack, "", &json!({"model": "chat/demo"})).await;
    let refused = async |document: &str| {
        let request = v1::SetSettingsRequest { project_id: String::new(), document: document.to_owned() };
        let refused = stack.api.settings().set_settings(request).await;
        assert_refused(refused, Code::InvalidArgument, "settings_invalid")
    };
    for (document, want) in [
        ("{\n \"modle\": 1}", "tenant.json:2:2: modle"),
        ("{\"model\": \"{env:HOME}/x\"}", "model"),
        ("{", "tenant.json:1:"),
        ("{\"model\": \"a\\u0000/b\"}", "NUL"),
        (&format!("{{\"model\": \"a/{}\"}}", "x".repeat(300_000)), "at most 262144 bytes"),
    ] {
        let message = refused(document).await;
        assert!(message.contains(want), "{want}: {message}");
    }
    let answer =
        stack.api.settings().get_settings(v1::GetSettingsRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.settings.unwrap().document, "{\"model\":\"chat/demo\"}");
}

#[tokio::test]
async fn agents_of_stored_settings_work_without_a_repository() {
    let stack = Stack::start().await;
    set(&stack, "", &json!({"agent": {"critic": {"prompt": "You only criticize.", "mode": "all"}}})).await;
    let session = stack.session().await;
    let ask = async |agent: &str, parts: Vec<v1::PromptPart>| {
        let change = |prompt: &mut v1::AcceptPromptRequest| {
            (prompt.text, prompt.agent, prompt.parts) = ("@text Hm.".to_owned(), agent.to_owned(), parts);
        };
        stack.api.prompt_with(&session, change).await
    };
    let mention = |name: &str| v1::PromptPart {
        kind: Some(v1::prompt_part::Kind::Agent(v1::AgentPart {
            name: name.to_owned(),
            ..Default::default()
        })),
        ..Default::default()
    };
    let mut watch = Watch::start(&stack.api, &session).await;
    ask("critic", vec![mention("critic")]).await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let request = stack.model.journal.requests()[0].body.to_string();
    assert!(request.contains("You only criticize.") && request.contains("critic"), "{request}");
    for (agent, parts) in [("pirate", vec![]), ("", vec![mention("pirate")]), ("", vec![mention("title")])] {
        assert_refused(ask(agent, parts).await, Code::InvalidArgument, "agent_unknown");
    }
}
