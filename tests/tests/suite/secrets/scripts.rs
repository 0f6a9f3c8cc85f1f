//! Secrets of installs: a script brings what only a token opens, and sessions have what it brought without the token.

use super::{list, set};
use e2e::{Options, Stack, settings::Outside, turn::output};
use rpc::v1;
use serde_json::json;
use testkit::git_server::GitServer;

const HOST: &str = "git.example.com";
const TOKEN: &str = "dep-4711-token";

/// Prints the token and brings a private package with it, as package managers do: over TLS, through the proxy.
const INSTALL: &str = "echo login with $DEP_TOKEN
    login=$(printf x-access-token:$DEP_TOKEN | base64 -w0)
    git -c http.sslVerify=false -c http.extraHeader=\"Authorization: Basic $login\" clone -q https://git.example.com/acme/dep.git dep
    rm -rf dep/.git";

async fn log(stack: &Stack) -> String {
    let request = v1::ListEnvironmentsRequest { project_id: String::new() };
    let built = stack.api.environments().list_environments(request).await.unwrap().into_inner();
    let request = v1::GetEnvironmentLogRequest { key: built.environments[0].key.clone() };
    let log = stack.api.environments().get_environment_log(request).await.unwrap().into_inner().log;
    String::from_utf8(log).unwrap()
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
    assert_eq!(output(api, &stack.session_on(&repository).await, look).await.unwrap(), "private\nnone\n0\n");
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
