//! What an agent wrote runs in no install: neither in the copy for a subtask nor in a fork. So no agent gets the secrets of an install, and none shapes what other
//! sessions get.

use super::set;
use e2e::{
    Options, Stack,
    turn::{bash, output, run, task_for},
};
use rpc::v1;
use serde_json::json;
use testkit::git::Repository;

const TOKEN: &str = "dep-4711-token";
/// What the team runs in an install.
const HONEST: &str = "mkdir -p node_modules; echo honest > node_modules/id";
/// What an agent writes in its place: it hides the secret from the search for its value.
const HOSTILE: &str = "mkdir -p node_modules; echo poisoned > node_modules/id
printf %s \"$DEP_TOKEN\" | base64 | tr 0-9a-zA-Z a-zA-Z0-9 > node_modules/leak";
const LOOK: &str = "cat node_modules/id; ls node_modules
[ ! -e node_modules/leak ] || tr a-zA-Z0-9 0-9a-zA-Z < node_modules/leak | base64 -d";
const INSTALLED: &str = "honest\nid\n";

/// A repository of people, with this lock file.
fn repository(lock: &str) -> Repository {
    let files =
        [("build.sh", HONEST), ("package-lock.json", lock), (".gitignore", "node_modules/\n"), ("a.txt", "")];
    testkit::git::repository(&files)
}

/// What an agent does to the files: `keep` is how it leaves them.
fn attack(lock: &str, keep: &str) -> String {
    format!("printf %s '{HOSTILE}' > build.sh; printf %s '{lock}' > package-lock.json; {keep}")
}

async fn fork(stack: &Stack, session: &str) -> String {
    let request = v1::ForkSessionRequest {
        session_id: session.to_owned(),
        files: v1::ForkFiles::Now.into(),
        ..Default::default()
    };
    stack.api.sessions().fork_session(request).await.unwrap().into_inner().session.unwrap().id
}

/// The number of installs that this machine has made.
async fn installs(stack: &Stack) -> usize {
    let request = v1::ListEnvironmentsRequest { project_id: String::new() };
    let built = stack.api.environments().list_environments(request).await.unwrap().into_inner();
    built.environments.len()
}

#[tokio::test]
async fn an_agents_files_run_in_no_install_and_shape_no_other_session() {
    let stack = Stack::with(Options { broker: true, ..Options::default() }).await;
    let api = &stack.api;
    set(api, "", "PRIVATE", TOKEN.as_bytes()).await.unwrap();
    let settings = json!({
        "agent": {"loner": {"description": "works alone", "mode": "subagent", "files": "fork"}},
        "environment": {"install": "sh ./build.sh", "secrets": {"DEP_TOKEN": "PRIVATE"}},
    });
    let request =
        v1::SetSettingsRequest { project_id: api.project_id.clone(), document: settings.to_string() };
    api.settings().set_settings(request).await.unwrap();
    for (number, (lock, keep)) in [
        ("one", "true"),
        ("two", "git add --all; git commit --quiet --message mine"),
        // Also the first commit of the repository is the agent's then.
        (
            "three",
            "git add --all; git commit --quiet --amend --message mine; git branch --quiet --move other",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let session = stack.session_on(&repository("{}")).await;
        let looker = task_for("loner", &format!("{}\n@text over", bash(LOOK)));
        let prompt = format!("{}\n{looker}\n@text over", bash(&attack(lock, keep)));
        assert_eq!(run(api, &session, &prompt).await.0, "done", "{lock}");
        let child = api.children(&session).await.pop().unwrap().id;
        assert_eq!(api.tool_calls(&child).await.pop().unwrap().result, INSTALLED, "a copy: {lock}");
        let forked = fork(&stack, &session).await;
        assert_eq!(output(api, &forked, LOOK).await.unwrap(), INSTALLED, "a fork: {lock}");
        let again = fork(&stack, &forked).await;
        assert_eq!(output(api, &again, LOOK).await.unwrap(), INSTALLED, "a fork of the fork: {lock}");
        assert_eq!(output(api, &forked, "cat package-lock.json").await.unwrap(), lock, "its files are there");
        assert_eq!(installs(&stack).await, number + 1, "nothing was installed for an agent's files");
        // A person takes the same lock file over.
        let later = stack.session_on(&repository(lock)).await;
        assert_eq!(output(api, &later, LOOK).await.unwrap(), INSTALLED, "a later session: {lock}");
        assert_eq!(installs(&stack).await, number + 2, "its own install");
    }
}

/// What was installed may be gone when its copy is opened.
#[tokio::test]
async fn a_copy_without_what_was_installed_says_so_and_runs_nothing() {
    let stack = Stack::with(Options { broker: true, ..Options::default() }).await;
    let api = &stack.api;
    api.set_environment("", &json!({"install": "sh ./build.sh"})).await;
    let session = stack.session_on(&repository("{}")).await;
    assert_eq!(output(api, &session, LOOK).await.unwrap(), INSTALLED);
    let forked = fork(&stack, &session).await;
    let request = v1::ListEnvironmentsRequest { project_id: String::new() };
    let built = api.environments().list_environments(request).await.unwrap().into_inner().environments;
    let request = v1::RemoveEnvironmentRequest { key: built[0].key.clone() };
    api.environments().remove_environment(request).await.unwrap();
    let (outcome, transcript) = run(api, &forked, &format!("{}\n@text over", bash("ls"))).await;
    assert_eq!(outcome, "done");
    assert_eq!(api.tool_calls(&forked).await.pop().unwrap().result, "a.txt\nbuild.sh\npackage-lock.json\n");
    let told = transcript.error().unwrap().to_string();
    assert!(told.contains("install_not_copied") && told.contains("Nothing is installed"), "{told}");
    let sentence = "Packages that the project installs may be missing here";
    let mut asked = stack.model.journal.requests().into_iter().map(|request| request.body.to_string());
    assert!(asked.any(|body| body.contains(sentence)));
}

/// The files of a session and what was installed are gone, and the source of its fork is the bundle with the agent's files.
#[tokio::test]
async fn after_a_loss_only_a_persons_files_are_installed_for_again() {
    let mut stack = Stack::with(Options { broker: true, ..Options::default() }).await;
    set(&stack.api, "", "PRIVATE", TOKEN.as_bytes()).await.unwrap();
    let environment = json!({"install": "sh ./build.sh", "secrets": {"DEP_TOKEN": "PRIVATE"}});
    stack.api.set_environment("", &environment).await;
    let session = stack.session_on(&repository("{}")).await;
    output(&stack.api, &session, &attack("{}", "true")).await.unwrap();
    let forked = fork(&stack, &session).await;
    stack.stop_sandbox().await;
    stack.lose_sandbox_files();
    stack.start_sandbox().await;
    assert_eq!(output(&stack.api, &forked, "ls").await.unwrap(), "a.txt\nbuild.sh\npackage-lock.json\n");
    assert_eq!(installs(&stack).await, 0, "nothing for the fork");
    let request = v1::RestartWorkspaceRequest { session_id: session.clone() };
    stack.api.sessions().restart_workspace(request).await.unwrap();
    assert_eq!(output(&stack.api, &session, LOOK).await.unwrap(), INSTALLED);
}
