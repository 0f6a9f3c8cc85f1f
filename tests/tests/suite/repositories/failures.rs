//! Private repositories that cannot be had: the turn fails and says why.

use super::{HOST, Testbed, URL, session, store};
use e2e::{
    Options, Stack,
    doors::door,
    turn::{output, run},
};
use rpc::v1;
use serde_json::json;
use testkit::git_server::rules::GitFault;

/// The error of a turn on a new session.
async fn failure(testbed: &Testbed) -> String {
    let session = testbed.session().await;
    output(&testbed.stack.api, &session, "true").await.unwrap_err()
}

#[tokio::test]
async fn a_turn_fails_with_the_secret_and_the_setting_that_help() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    for (value, code, text) in [
        ("hunter2", "repository_unauthorized", "git.example.com refuses the secret TOKEN"),
        ("two words", "repository_unauthorized", "the secret TOKEN is neither a token nor user:password"),
    ] {
        api.set_secret("TOKEN", value).await;
        let error = failure(&testbed).await;
        assert!(error.contains(code) && error.contains(text) && !error.contains(value), "{error}");
        assert!(error.contains("flotilla secret set TOKEN"), "{error}");
    }
    store(api, &json!({format!("https://{HOST}/acme/"): "MISSING"})).await;
    let error = failure(&testbed).await;
    assert!(error.contains("secret_not_found") && error.contains("flotilla secret set MISSING"), "{error}");
    assert!(error.contains("environment.git.credentials"), "{error}");

    // With the right one the same session works.
    let session = testbed.session().await;
    output(api, &session, "true").await.unwrap_err();
    api.set_secret("MISSING", &format!("x-access-token:{}", super::TOKEN)).await;
    assert_eq!(output(api, &session, "cat file").await.unwrap(), "private\n");
    // The next change counts at once, for the agent too.
    api.set_secret("MISSING", "revoked").await;
    let told = output(api, &session, "git fetch 2>&1").await.unwrap();
    assert!(told.contains("refuses the secret MISSING") && told.contains("(git_unauthorized)"), "{told}");
}

#[tokio::test]
async fn what_a_server_answers_is_told() {
    let testbed = Testbed::start().await;
    let at = "app.git/info/refs";
    let moved = format!("https://{HOST}/acme/moved.git/info/refs?service=git-upload-pack");
    for (fault, code, text) in [
        (GitFault::Status(404), "repository_not_found", "has no such repository"),
        (GitFault::Status(429), "repository_unreachable", "too many requests"),
        (
            GitFault::Redirect(moved),
            "repository_unreachable",
            "redirects to https://git.example.com/acme/moved.git",
        ),
        (GitFault::Page, "repository_unreachable", "does not answer as a server of git"),
    ] {
        testbed.server.fail(at, fault);
        let error = failure(&testbed).await;
        assert!(error.contains(code) && error.contains(text), "{error}");
    }
    testbed.server.heal(at);
    let session = testbed.session().await;
    assert_eq!(output(&testbed.stack.api, &session, "cat file").await.unwrap(), "private\n");
}

#[tokio::test]
async fn a_broker_that_dies_in_the_middle_of_a_clone_leaves_nothing_half() {
    let mut testbed = Testbed::start().await;
    let session = testbed.session().await;
    testbed.server.fail("app.git/git-upload-pack", GitFault::Hold(40));
    let api = testbed.stack.api.clone();
    let own = session.clone();
    let turn = tokio::spawn(async move { run(&api, &own, "@text over").await });
    testbed.server.wait_for_request("app.git/git-upload-pack").await;
    testbed.stack.crash_broker();
    let (outcome, transcript) = turn.await.unwrap();
    let error = transcript.error().unwrap().to_string();
    assert!(outcome == "failed" && error.contains("repository_unreachable"), "{outcome}: {error}");
    testbed.server.release();
    testbed.stack.start_broker().await;
    let look = "cat file; git fsck 2>&1; ls -A";
    assert_eq!(output(&testbed.stack.api, &session, look).await.unwrap(), "private\n.git\nfile\n");
}

#[tokio::test]
async fn while_a_repository_is_cloned_its_door_leads_to_no_host() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    let credentials = json!({format!("https://{HOST}/acme/"): "TOKEN"});
    let environment = json!({"git": {"credentials": credentials}, "network": {"allow": ["pypi.org"]}});
    api.set_environment("", &environment).await;
    let session = testbed.session().await;
    let rules = || {
        let file = door(&testbed.stack, &session).with_file_name("rules.json");
        serde_json::from_slice::<serde_json::Value>(&std::fs::read(file).unwrap()).unwrap()
    };
    testbed.server.fail("app.git/git-upload-pack", GitFault::Hold(40));
    let turn = output(api, &session, "cat file");
    let look = async {
        testbed.server.wait_for_request("app.git/git-upload-pack").await;
        let early = rules();
        testbed.server.release();
        early
    };
    let (turn, early) = tokio::join!(turn, look);
    assert_eq!(turn.unwrap(), "private\n");
    // The settings of the repository could forbid every host, and are not known before its files.
    assert_eq!(early["lists"][0]["entries"], json!([]));
    assert_eq!(early["git"]["credentials"], json!({format!("https://{HOST}/acme/"): "TOKEN"}));
    assert_eq!(rules()["lists"][0]["entries"], json!(["pypi.org"]));
    assert_eq!(rules()["git"], early["git"]);
}

#[tokio::test]
async fn without_a_broker_the_error_says_so() {
    let stack = Stack::with(Options::default()).await;
    store(&stack.api, &json!({format!("https://{HOST}/acme/"): "TOKEN"})).await;
    let session = session(&stack.api, URL).await;
    let error = output(&stack.api, &session, "true").await.unwrap_err();
    assert!(
        error.contains("broker_unavailable") && error.contains("has no broker that could use it"),
        "{error}"
    );
}

#[tokio::test]
async fn another_tenant_has_neither_the_secret_nor_the_door() {
    let testbed = Testbed::start().await;
    let other = testbed.stack.other_tenant().await;
    // The same settings, but no secret of this name.
    store(&other, &json!({format!("https://{HOST}/acme/"): "TOKEN"})).await;
    let stolen = session(&other, URL).await;
    let error = output(&other, &stolen, "true").await.unwrap_err();
    assert!(error.contains("secret_not_found"), "{error}");
    assert_eq!(testbed.server.requests(), [], "no request without a credential");
    // A project may have a secret of its own.
    let request = v1::SetSecretRequest {
        name: "TOKEN".to_owned(),
        project_id: other.project_id.clone(),
        value: format!("x-access-token:{}", super::TOKEN).into_bytes(),
        urls: vec![],
    };
    other.secrets().set_secret(request).await.unwrap();
    assert_eq!(output(&other, &stolen, "cat file").await.unwrap(), "private\n");
}
