//! Secrets of installs: a script brings what only a token opens, and sessions have what it brought without the token.

use super::{list, set};
use domain::egress::secrets::{AnswerError, decode};
use e2e::{
    Options, Stack,
    doors::{connect, door},
    settings::Outside,
    turn::{Watch, bash, output, run},
};
use rpc::v1;
use serde_json::json;
use testkit::git_server::GitServer;
use tokio::io::AsyncReadExt as _;

const HOST: &str = "git.example.com";
const TOKEN: &str = "dep-4711-token";

/// Prints the token and brings a private package with it, as package managers do: over TLS, through the proxy.
const INSTALL: &str = "echo login with $DEP_TOKEN
    login=$(printf x-access-token:$DEP_TOKEN | base64 -w0)
    git -c http.sslVerify=false -c http.extraHeader=\"Authorization: Basic $login\" clone -q https://git.example.com/acme/dep.git dep
    rm -rf dep/.git";

/// The environment with the newest build.
async fn newest(stack: &Stack) -> Option<v1::Environment> {
    let request = v1::ListEnvironmentsRequest { project_id: String::new() };
    let built = stack.api.environments().list_environments(request).await.unwrap().into_inner();
    built.environments.into_iter().next()
}

async fn log(stack: &Stack) -> String {
    let request = v1::GetEnvironmentLogRequest { key: newest(stack).await.unwrap().key };
    let log = stack.api.environments().get_environment_log(request).await.unwrap().into_inner().log;
    String::from_utf8(log).unwrap()
}

/// What a program of a session gets at its door.
async fn ask_door(stack: &Stack, session: &str) -> Result<Vec<(String, String)>, AnswerError> {
    let mut answer = vec![];
    connect(stack, session, "secrets").await.read_to_end(&mut answer).await.unwrap();
    decode(&answer)
}

/// Starts a session whose install has its secrets, and waits until [`let_go`].
async fn begin_install(stack: &Stack) -> (String, Watch) {
    let api = &stack.api;
    set(api, "", "PRIVATE", TOKEN.as_bytes()).await.unwrap();
    let install = "until [ -e /run/egress/go ]; do sleep 0.05; done; mkdir kept";
    api.set_environment("", &json!({"install": install, "secrets": {"DEP_TOKEN": "PRIVATE"}})).await;
    let repository = testkit::git::repository(&[("package-lock.json", "{}")]);
    let session = stack.session_on(&repository).await;
    let watch = Watch::start(api, &session).await;
    api.prompt(&session, &format!("{}\n@text over", bash("true"))).await.unwrap();
    // The secret is used when the script begins.
    testkit::eventually("the install has its secrets", async || {
        let request = v1::ListSecretsRequest { project_id: String::new(), page: None };
        let secrets = api.secrets().list_secrets(request).await.unwrap().into_inner().secrets;
        secrets[0].last_used_at_ms > 0
    })
    .await;
    (session, watch)
}

fn let_go(stack: &Stack, session: &str) {
    std::fs::write(door(stack, session).join("go"), "").unwrap();
}

#[tokio::test]
async fn a_broker_that_is_killed_during_an_install_gives_no_secrets_afterwards() {
    let mut stack = Stack::with(Options { broker: true, ..Options::default() }).await;
    let (session, mut watch) = begin_install(&stack).await;
    stack.crash_broker();
    stack.start_broker().await;
    assert!(matches!(ask_door(&stack, &session).await, Err(AnswerError::Passing(_))));
    let_go(&stack, &session);
    assert_eq!(watch.until_idle().await, "done");
    assert!(matches!(ask_door(&stack, &session).await, Err(AnswerError::Passing(_))));
}

/// The task that opened the door for an install no longer runs when the files are opened.
#[tokio::test]
async fn an_aborted_install_leaves_no_secrets_at_the_door() {
    let stack = Stack::with(Options { broker: true, ..Options::default() }).await;
    let (session, mut watch) = begin_install(&stack).await;
    let api = &stack.api;
    assert!(api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    assert!(ask_door(&stack, &session).await.is_ok(), "until the next turn, no program of the session runs");
    let_go(&stack, &session);
    testkit::eventually("the install ends", async || {
        newest(&stack).await.unwrap().state() == v1::EnvironmentState::Ready
    })
    .await;
    assert_eq!(run(api, &session, "@text hello").await.0, "done");
    assert!(
        matches!(ask_door(&stack, &session).await, Err(AnswerError::Passing(_))),
        "no tool asked for files"
    );
    assert_eq!(run(api, &session, &format!("{}\n@text over", bash("true"))).await.0, "done");
    assert!(stack.workspace(&session).join("tree/package-lock.json").is_file(), "the files are open");
    assert!(matches!(ask_door(&stack, &session).await, Err(AnswerError::Passing(_))));
}

#[tokio::test]
async fn an_install_brings_private_packages_and_sessions_have_no_token() {
    let server = GitServer::start(&[HOST]).await;
    server.push("acme/dep.git", &testkit::git::repository(&[("file", "private\n")]));
    server.require(&format!("x-access-token:{TOKEN}"));
    let hosts = vec![format!("{HOST}={}", server.address)];
    let outside = Outside { hosts, ..Outside::default() };
    let stack = Stack::with(Options { broker: true, outside, ..Options::default() }).await;
    let (api, project) = (&stack.api, stack.api.project_id.as_str());
    let environment = json!({
        "install": INSTALL, "secrets": {"DEP_TOKEN": "PRIVATE"}, "network": {"setup": [HOST]},
    });
    api.set_environment("", &environment).await;
    let repository = testkit::git::repository(&[("package-lock.json", "{}"), (".gitignore", "dep/\n")]);
    let look = "cat dep/file; echo ${DEP_TOKEN-none}; env | grep -c 4711 || true";
    let missing = output(api, &stack.session_on(&repository).await, look).await.unwrap_err();
    assert!(
        missing.contains("secret_not_found") && missing.contains("flotilla secret set PRIVATE"),
        "{missing}"
    );
    assert_eq!(server.requests().len(), 0);

    set(api, "", "PRIVATE", b"of another project").await.unwrap();
    set(api, project, "PRIVATE", TOKEN.as_bytes()).await.unwrap();
    let session = stack.session_on(&repository).await;
    assert_eq!(output(api, &session, look).await.unwrap(), "private\nnone\n0\n");
    assert!(matches!(ask_door(&stack, &session).await, Err(AnswerError::Passing(_))));
    assert_eq!(log(&stack).await, "login with ***\n");
    let request = v1::ListSecretsRequest { project_id: project.to_owned(), page: None };
    let used = api.secrets().list_secrets(request).await.unwrap().into_inner().secrets;
    assert!(used[0].last_used_at_ms > 0, "people see that it is used");
    let brought = server.requests().len();
    assert_eq!(output(api, &stack.session_on(&repository).await, look).await.unwrap(), "private\nnone\n0\n");
    assert_eq!(server.requests().len(), brought, "another session needs no install");

    // A changed secret is another environment, and one that is refused fails with the output of the script.
    set(api, project, "PRIVATE", b"revoked-4711").await.unwrap();
    assert_eq!(list(api, project).await.unwrap()[0].2, 3);
    let failed = output(api, &stack.session_on(&repository).await, look).await.unwrap_err();
    assert!(failed.contains("install_failed") && failed.contains("login with ***"), "{failed}");
    assert!(!failed.contains("revoked-4711") && server.requests().len() > brought, "{failed}");
}
