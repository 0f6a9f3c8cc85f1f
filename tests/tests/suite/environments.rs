//! What the settings run in the sandboxes of sessions on the machine's own programs.

use e2e::{Stack, turn::output};
use rpc::v1;
use serde_json::json;

#[tokio::test]
async fn a_start_runs_in_each_sandbox_and_a_failure_is_told_to_the_model_and_to_people() {
    let mut stack = Stack::start().await;
    let environment = json!({"start": "echo $CI >> starts; echo no database; exit 3", "env": {"CI": "1"}});
    stack.api.set_environment("", &environment).await;
    let session = stack.session().await;
    assert_eq!(output(&stack.api, &session, "cat starts").await.unwrap(), "1\n");
    let body = stack.model.journal.requests().pop().unwrap().body.to_string();
    assert!(body.contains("failed with exit code 3") && body.contains("no database"), "{body}");
    let parts = stack.api.conversation(&session).await;
    let parts = parts.iter().flat_map(|(_, parts)| parts);
    let mut shown = parts.filter_map(|part| part["state"]["metadata"]["output"].as_str());
    assert!(shown.next_back().unwrap().contains("failed with exit code 3"), "people read it with the output");
    // It is told once for each sandbox, and runs again in the next one.
    assert_eq!(output(&stack.api, &session, "cat starts").await.unwrap(), "1\n");
    let bodies = |stack: &Stack| stack.model.journal.requests().pop().unwrap().body.to_string();
    assert_eq!(bodies(&stack).matches("failed with exit code 3").count(), 1);
    stack.stop_sandbox().await;
    stack.start_sandbox().await;
    assert_eq!(output(&stack.api, &session, "cat starts").await.unwrap(), "1\n1\n");
    assert_eq!(bodies(&stack).matches("failed with exit code 3").count(), 2);
}

#[tokio::test]
async fn an_install_runs_once_for_the_sessions_of_a_project_and_a_failure_ends_the_turn() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let repository = testkit::git::repository(&[("package-lock.json", "{}"), (".gitignore", "packages/\n")]);
    let install = "echo installing; mkdir packages; echo $RANDOM$RANDOM$CI > packages/id; echo changed > package-lock.json";
    api.set_environment("", &json!({"install": "echo 'no such package' >&2; exit 3"})).await;
    let session = stack.session_on(&repository).await;
    let failed = output(api, &session, "true").await.unwrap_err();
    assert!(failed.contains("install_failed") && failed.contains("no such package"), "{failed}");
    api.set_environment("", &json!({"install": install, "env": {"CI": "-ci"}})).await;
    // The loop that failed has ended, so the next one has the new settings.
    let look = "cat packages/id package-lock.json; git status --short";
    let first = output(api, &session, look).await.unwrap();
    assert!(first.contains("-ci\n{}") && !first.contains("packages"), "{first}");
    let second = stack.session_on(&repository).await;
    assert_eq!(output(api, &second, look).await.unwrap(), first, "it did not run again");
    // A session without a repository needs none.
    let plain = api.session(None).await;
    assert_eq!(output(api, &plain, "ls").await.unwrap(), "(no output)");
    let request = v1::ListEnvironmentsRequest { project_id: String::new() };
    let built = api.environments().list_environments(request).await.unwrap().into_inner().environments;
    let states: Vec<_> = built.iter().map(|built| (built.state(), built.stage())).collect();
    let stage = v1::EnvironmentStage::Install;
    assert_eq!(states, [(v1::EnvironmentState::Ready, stage), (v1::EnvironmentState::Failed, stage)]);
}
