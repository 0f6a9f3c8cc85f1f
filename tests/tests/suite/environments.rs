//! What the settings run in the sandboxes of sessions on the machine's own programs.

use e2e::{
    Stack,
    turn::{Watch, output},
};
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

/// What a session in which nothing runs has told people.
async fn notices(stack: &Stack, session: &str) -> Vec<String> {
    let mut watch = Watch::start(&stack.api, session).await;
    watch.until(|event| event.kind == "session.idle").await;
    let events = watch.transcript.events.iter().filter(|event| event.kind == "session.error");
    events.map(|event| event.properties.to_string()).collect()
}

/// The notes for people in the conversation of a session.
async fn notes(stack: &Stack, session: &str) -> Vec<String> {
    let talk = stack.api.conversation(session).await;
    let parts = talk.iter().filter(|(info, _)| info["role"] == "user").flat_map(|(_, parts)| parts);
    let notes = parts.filter(|part| part["ignored"] == true);
    notes.map(|part| part["text"].as_str().unwrap().to_owned()).collect()
}

async fn decide(stack: &Stack, digest: &str, verdict: v1::EnvironmentVerdict) -> v1::ProposedEnvironment {
    let project_id = stack.api.project_id.clone();
    let request =
        v1::DecideEnvironmentRequest { project_id, digest: digest.to_owned(), verdict: verdict.into() };
    stack.api.environments().decide_environment(request).await.unwrap().into_inner().environment.unwrap()
}

async fn proposals(stack: &Stack) -> Vec<v1::ProposedEnvironment> {
    let request = v1::ListProposedEnvironmentsRequest {
        project_id: stack.api.project_id.clone(),
        digest: String::new(),
    };
    stack.api.environments().list_proposed_environments(request).await.unwrap().into_inner().environments
}

/// The lines of what an admin has allowed, in the explained settings of a session.
async fn lines(stack: &Stack, session: &str) -> Vec<u32> {
    let request = v1::ExplainSettingsRequest { session_id: session.to_owned() };
    let explained = stack.api.settings().explain_settings(request).await.unwrap().into_inner();
    let origins = explained.settings.into_iter().filter_map(|setting| setting.origin);
    let origins = origins.filter(|origin| origin.level == "environment");
    origins
        .map(|origin| {
            assert_eq!(origin.file, ".flotilla/config.yaml");
            origin.line
        })
        .collect()
}

#[tokio::test]
async fn an_environment_of_a_repository_counts_when_an_admin_has_allowed_it() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let config = |value: &str| {
        format!("environment:\n  env: {{LEVEL: {value}}}\n  install: mkdir kept; echo $LEVEL > kept/level\n")
    };
    let repository = testkit::git::repository(&[(".flotilla/config.yaml", &config("main"))]);
    let look = "echo \"[$LEVEL]\"; cat kept/level 2>&1";
    let first = stack.session_on(&repository).await;
    let before = output(api, &first, look).await.unwrap();
    assert!(before.starts_with("[]\n") && before.contains("No such file"), "{before}");
    let also = stack.session_on(&repository).await;
    assert!(output(api, &also, look).await.unwrap().starts_with("[]\n"), "it waits, and is known");
    let waiting = proposals(&stack).await;
    let digest = waiting[0].digest.clone();
    assert_eq!(
        (waiting.len(), waiting[0].verdict(), &waiting[0].session_id),
        (1, v1::EnvironmentVerdict::Unspecified, &first)
    );
    let told = notices(&stack, &first).await;
    assert!(told[0].contains("environment_not_allowed") && told[0].contains(&digest[..12]), "{told:?}");

    let allowed = decide(&stack, &digest, v1::EnvironmentVerdict::Allowed).await;
    assert_eq!(
        (allowed.verdict(), allowed.file.as_str()),
        (v1::EnvironmentVerdict::Allowed, ".flotilla/config.yaml")
    );
    let second = stack.session_on(&repository).await;
    assert_eq!(output(api, &second, look).await.unwrap(), "[main]\nmain\n");
    assert_eq!(notices(&stack, &second).await, [""; 0]);

    assert_eq!(lines(&stack, &second).await, [2, 3], "the lines of the file");

    // A branch that changes the environment works with the one that was allowed, until its own is.
    std::fs::write(repository.path().join(".flotilla/config.yaml"), config("branch")).unwrap();
    repository.git(&["commit", "--quiet", "--all", "--message=branch"]);
    let branch = stack.session_on(&repository).await;
    assert_eq!(output(api, &branch, look).await.unwrap(), "[main]\nmain\n");
    assert!(notices(&stack, &branch).await[0].contains("the one that was allowed last"));
    assert_eq!(lines(&stack, &branch).await, [0, 0], "another file was allowed");
    let proposed = proposals(&stack).await;
    assert_eq!(proposed.len(), 2);
    decide(&stack, &proposed[0].digest, v1::EnvironmentVerdict::Allowed).await;
    let again = stack.session_on(&repository).await;
    assert_eq!(output(api, &again, look).await.unwrap(), "[branch]\nbranch\n");
    // A session keeps what it began with.
    assert_eq!(output(api, &second, look).await.unwrap(), "[main]\nmain\n");

    for digest in &proposed {
        decide(&stack, &digest.digest, v1::EnvironmentVerdict::Denied).await;
    }
    let denied = stack.session_on(&repository).await;
    assert!(output(api, &denied, look).await.unwrap().starts_with("[]\n"));
    assert!(notices(&stack, &denied).await[0].contains("has denied it"));
}

#[tokio::test]
async fn a_trial_has_what_its_commit_proposes_and_only_an_admin_begins_one() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let config = |install: &str| format!("environment:\n  install: {install}\n");
    let repository = testkit::git::repository(&[(".flotilla/config.yaml", &config("exit 7"))]);
    let request = async || {
        let from = Some(v1::source::From::BundleId(api.upload(&repository.bundle()).await));
        v1::CreateSessionRequest {
            project_id: api.project_id.clone(),
            source: Some(v1::Source { from, revision: String::new() }),
            tries_environment: true,
            ..Default::default()
        }
    };
    let role = v1::KeyRole::Member.into();
    let key = v1::CreateKeyRequest { name: "member".to_owned(), role, ..Default::default() };
    let member = api.of_key(&api.tenants().create_key(key).await.unwrap().into_inner().secret);
    let refused = member.sessions().create_session(request().await).await.unwrap_err();
    assert_eq!(rpc::status::code_of(&refused).as_deref(), Some("scope_missing"));
    let begin = async || {
        let created = api.sessions().create_session(request().await).await.unwrap();
        created.into_inner().session.unwrap().id
    };
    let of_session = async |session: &str| {
        let request = v1::GetSessionEnvironmentRequest { session_id: session.to_owned() };
        api.environments().get_session_environment(request).await.map(|found| found.into_inner().environment)
    };

    // What was allowed last is broken. The trial of a commit that mends it never runs that.
    let broken = begin().await;
    let missing = of_session(&broken).await.unwrap_err();
    assert_eq!(rpc::status::code_of(&missing).as_deref(), Some("workspace_missing"));
    assert!(output(api, &broken, "true").await.unwrap_err().contains("install_failed"));
    decide(&stack, &proposals(&stack).await[0].digest, v1::EnvironmentVerdict::Allowed).await;
    std::fs::write(
        repository.path().join(".flotilla/config.yaml"),
        config("mkdir kept; echo 2 > kept/version"),
    )
    .unwrap();
    repository.git(&["commit", "--quiet", "--all", "--message=mended"]);
    let trial = begin().await;
    let look = "cat kept/version";
    assert_eq!(output(api, &trial, look).await.unwrap(), "2\n");
    assert_eq!(notices(&stack, &trial).await, [""; 0]);
    let proposed = of_session(&trial).await.unwrap().unwrap();
    assert_eq!((proposed.verdict(), &proposed.session_id), (v1::EnvironmentVerdict::Unspecified, &trial));
    assert_eq!(lines(&stack, &trial).await, [2], "the settings of the trial");
    let other = stack.session_on(&repository).await;
    assert!(
        output(api, &other, "true").await.unwrap_err().contains("install_failed"),
        "the one that is allowed"
    );
    decide(&stack, &proposed.digest, v1::EnvironmentVerdict::Allowed).await;
    let allowed = stack.session_on(&repository).await;
    assert_eq!(output(api, &allowed, look).await.unwrap(), "2\n");
    let plain = testkit::git::repository(&[("a", "b")]);
    let plain = stack.session_on(&plain).await;
    output(api, &plain, "true").await.unwrap();
    assert_eq!(of_session(&plain).await.unwrap(), None);
}

#[tokio::test]
async fn an_allowance_follows_the_repository_and_not_the_project() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let config = "environment:\n  install: mkdir kept; echo 1 > kept/version\n";
    let repository = testkit::git::repository(&[(".flotilla/config.yaml", config)]);
    let bundle = api.upload(&repository.bundle()).await;
    let other = v1::CreateProjectRequest { name: "other".to_owned(), ..Default::default() };
    let other = api.projects().create_project(other).await.unwrap().into_inner().project.unwrap().id;
    let begin = async |project_id: &str, remote: &str| {
        let request = v1::CreateSessionRequest {
            project_id: project_id.to_owned(),
            source: Some(v1::Source {
                from: Some(v1::source::From::BundleId(bundle.clone())),
                revision: String::new(),
            }),
            remote: remote.to_owned(),
            ..Default::default()
        };
        api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id
    };
    let has_it = async |session: &str| output(api, session, "ls kept 2>&1").await.unwrap() == "version\n";
    let first = begin(&api.project_id, "git@git.acme.dev:acme/app.git").await;
    assert!(!has_it(&first).await);
    let digest = proposals(&stack).await.remove(0).digest;
    decide(&stack, &digest, v1::EnvironmentVerdict::Allowed).await;
    assert!(has_it(&begin(&other, "https://ann@GIT.acme.dev/acme/app").await).await, "the same repository");
    assert!(!has_it(&begin(&other, "https://git.acme.dev/acme/fork.git").await).await);
    assert!(!has_it(&begin(&other, "").await).await);
    // An admin decides for the project by itself, named by the beginning of the digest, although another project got the proposal.
    let third = v1::CreateProjectRequest { name: "third".to_owned(), ..Default::default() };
    let third = api.projects().create_project(third).await.unwrap().into_inner().project.unwrap().id;
    let list =
        v1::ListProposedEnvironmentsRequest { project_id: third.clone(), digest: digest[..12].to_owned() };
    let listed = api.environments().list_proposed_environments(list).await.unwrap().into_inner().environments;
    assert_eq!((listed.len(), listed[0].verdict()), (1, v1::EnvironmentVerdict::Unspecified));
    let verdict = v1::EnvironmentVerdict::Allowed.into();
    let decision = v1::DecideEnvironmentRequest { project_id: third.clone(), digest, verdict };
    api.environments().decide_environment(decision).await.unwrap();
    assert!(has_it(&begin(&third, "").await).await);
    // Secrets belong to a project, so one that has some decides for itself.
    let fourth = v1::CreateProjectRequest { name: "fourth".to_owned(), ..Default::default() };
    let fourth = api.projects().create_project(fourth).await.unwrap().into_inner().project.unwrap().id;
    api.set_environment(&fourth, &json!({"secrets": {"TOKEN": "TOKEN"}})).await;
    assert!(!has_it(&begin(&fourth, "https://git.acme.dev/acme/app.git").await).await);
}

#[tokio::test]
async fn people_and_the_model_learn_which_environment_a_session_has_while_another_one_waits() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let config = |install: &str| format!("environment:\n  install: {install}\n");
    let repository = testkit::git::repository(&[(".flotilla/config.yaml", &config("exit 7"))]);
    let commit = |install: &str| {
        std::fs::write(repository.path().join(".flotilla/config.yaml"), config(install)).unwrap();
        repository.git(&["commit", "--quiet", "--all", "--message=change"]);
    };
    let newest = async || proposals(&stack).await.remove(0).digest;
    let system = || stack.model.journal.requests().pop().unwrap().body.to_string();
    let first = stack.session_on(&repository).await;
    output(api, &first, "true").await.unwrap();
    assert!(system().contains("Your sandbox has the environment of the settings"), "{}", system());
    let broken = newest().await;
    decide(&stack, &broken, v1::EnvironmentVerdict::Allowed).await;

    // What fails is the one that was allowed before, and the repository has mended it already.
    commit("mkdir kept; echo 1 > kept/version");
    let failing = stack.session_on(&repository).await;
    assert!(output(api, &failing, "true").await.unwrap_err().contains("install_failed"));
    let told = notices(&stack, &failing).await;
    assert!(told[0].contains("environment_not_allowed") && told[0].contains(&broken[..12]), "{told:?}");
    let mended = newest().await;
    decide(&stack, &mended, v1::EnvironmentVerdict::Allowed).await;

    commit("mkdir kept; echo 2 > kept/version");
    let session = stack.session_on(&repository).await;
    output(api, &session, "true").await.unwrap();
    let waiting = newest().await;
    // A note in the conversation says so once; the model reads it in each turn.
    output(api, &session, "true").await.unwrap();
    let notes = notes(&stack, &session).await;
    assert_eq!(notes.len(), 1, "{notes:?}");
    let system = system();
    for text in [&notes[0], &system] {
        for part in [&mended[..12], &waiting[..12], "flotilla env show", "no admin has allowed it yet"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    assert!(
        !system.contains("This session does not use the environment"),
        "the note is for people: {system}"
    );
}

#[tokio::test]
async fn a_devcontainer_is_proposed_and_a_mistake_is_told_with_its_line() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let devcontainer = json!({"containerEnv": {"TEAM": "shop"}, "features": {}}).to_string();
    let repository = testkit::git::repository(&[(".devcontainer/devcontainer.json", &devcontainer)]);
    let first = stack.session_on(&repository).await;
    assert_eq!(output(api, &first, "echo [$TEAM]").await.unwrap(), "[]\n");
    let proposal = proposals(&stack).await.remove(0);
    assert_eq!(proposal.document, r#"{"environment":{"env":{"TEAM":"shop"}}}"#);
    assert!(proposal.unused[0].starts_with("features"), "{:?}", proposal.unused);
    decide(&stack, &proposal.digest, v1::EnvironmentVerdict::Allowed).await;
    // A terminal before the first prompt must not open the files without it.
    let second = stack.session_on(&repository).await;
    let request = v1::CreatePtyRequest { session_id: second.clone(), ..Default::default() };
    let refused = api.ptys().create_pty(request).await.unwrap_err();
    assert_eq!(rpc::status::code_of(&refused).as_deref(), Some("workspace_missing"));
    assert_eq!(output(api, &second, "echo [$TEAM]").await.unwrap(), "[shop]\n");

    let wrong = testkit::git::repository(&[(".devcontainer.json", "{\n\"image\": 5}")]);
    let session = stack.session_on(&wrong).await;
    assert_eq!(output(api, &session, "echo works").await.unwrap(), "works\n");
    let told = notices(&stack, &session).await;
    assert!(
        told[0].contains("environment_invalid") && told[0].contains(".devcontainer.json:2:10"),
        "{told:?}"
    );

    let wrong = testkit::git::repository(&[(".flotilla/config.yaml", "environment:\n  imagee: x\n")]);
    let session = stack.session_on(&wrong).await;
    assert_eq!(output(api, &session, "echo works").await.unwrap(), "works\n");
    let told = notices(&stack, &session).await;
    assert!(told[0].contains(".flotilla/config.yaml:2:3"), "{told:?}");
}

#[tokio::test]
async fn options_of_the_settings_reach_the_sandbox_and_a_failure_names_the_setting() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let leak = "echo 'int main() { volatile char *p = __builtin_malloc(9); p = 0; }' > l.c; gcc -fsanitize=leak -o l l.c; ./l 2>&1";
    let closed = output(api, &stack.session().await, leak).await.unwrap();
    assert!(closed.contains("environment.allow_ptrace"), "{closed}");
    api.set_environment("", &json!({"allow_ptrace": true})).await;
    let open = output(api, &stack.session().await, leak).await.unwrap();
    assert!(open.contains("detected memory leaks") && !open.contains("allow_ptrace"), "{open}");
    // A machine offers this only where its operator says so.
    api.set_environment("", &json!({"allow_user_namespaces": true})).await;
    let refused = output(api, &stack.session().await, "true").await.unwrap_err();
    assert!(
        refused.contains("options_unsupported") && refused.contains("FLOTILLA_SANDBOX_OPTIONS"),
        "{refused}"
    );
}

/// Every file that the schema accepts is one that Flotilla accepts, and the other way round.
#[test]
fn the_schema_says_what_a_file_may_have() {
    let schema: serde_json::Value = serde_json::from_str(settings::proposal::SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let long = "x".repeat(40_000);
    for (is_valid, environment) in [
        (true, json!({})),
        (true, json!(null)),
        (
            true,
            json!({"image": "ghcr.io/acme/dev@sha256:0", "image_credential": "GHCR_LOGIN", "setup": "a\nb"}),
        ),
        (true, json!({"install": "npm ci", "start": "make", "env": {"CI": "1", "_x9": ""}})),
        (true, json!({"network": {"setup": ["preset:npm", "*.acme.dev"], "allow": ["a-b.example.com"]}})),
        (true, json!({"network": {}})),
        (true, json!({"allow_ptrace": true, "allow_user_namespaces": false})),
        (true, json!({"secrets": {"NPM_TOKEN": "NPM_TOKEN", "npm_config__auth": "A"}})),
        (false, json!({"secrets": {"A B": "X"}})),
        (false, json!({"secrets": {"A": "ghp_value"}})),
        (false, json!({"secrets": {"V".repeat(129): "X"}})),
        (false, json!({"allow_ptrace": "yes"})),
        (false, json!(5)),
        (false, json!({"imagee": "x"})),
        (false, json!({"git": {}})),
        (false, json!({"image": ""})),
        (false, json!({"image": "a b"})),
        (false, json!({"setup": "x"})),
        (false, json!({"image_credential": "GHCR_LOGIN"})),
        (false, json!({"image": "x", "image_credential": "ghcr"})),
        (false, json!({"install": " \n"})),
        (false, json!({"install": ["npm", "ci"]})),
        (false, json!({"install": long})),
        (false, json!({"env": {"9": "x"}})),
        (false, json!({"env": {"CI": 1}})),
        (false, json!({"network": ["preset:npm"]})),
        (false, json!({"network": {"allow": ["preset:unknown"]}})),
        (false, json!({"network": {"allow": ["*"]}})),
        (false, json!({"network": {"allow": ["10.0.0.1"]}})),
        (false, json!({"network": {"allow": ["https://a.example"]}})),
        (false, json!({"network": {"allow": vec!["a.example"; 201]}})),
        (false, json!({"network": {"deny": []}})),
    ] {
        let file = json!({ "environment": environment });
        assert_eq!(validator.is_valid(&file), is_valid, "the schema about {file}");
        let found = settings::proposal::find(&[(settings::proposal::FILE, &file.to_string())]);
        assert_eq!(found.is_ok(), is_valid, "{file}: {found:?}");
    }
    let expected = domain::egress::allow::expected();
    let words = expected.split(|c: char| !c.is_ascii_alphanumeric() && c != ':');
    let presets: Vec<_> = words.filter(|word| word.starts_with("preset:")).collect();
    assert_eq!(presets.len(), 8, "{expected}");
    for preset in presets {
        assert!(validator.is_valid(&json!({"environment": {"network": {"allow": [preset]}}})), "{preset}");
    }
}
