//! Calls every operation of the API with every role. What a role does not allow is refused before its body is read.

use e2e::{Stack, api::Api};
use reqwest::{Client, Method};
use rpc::v1::{self, KeyRole, Scope};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Waits up to ten minutes for a command, as its role allows.
const LONG_POLL: &str = "/tui/control/next";
/// Needs more of a caller whose directory has no project yet.
const CREATES: &str = "/project/git/init";
const ROLES: [KeyRole; 3] = [KeyRole::Viewer, KeyRole::Member, KeyRole::Admin];

async fn keys(stack: &Stack) -> Vec<(KeyRole, String)> {
    let mut keys = vec![];
    for role in ROLES {
        let request = v1::CreateKeyRequest {
            name: role.as_str_name().to_owned(),
            role: role.into(),
            ..Default::default()
        };
        keys.push((role, stack.api.tenants().create_key(request).await.unwrap().into_inner().secret));
    }
    keys
}

/// Whether the description of the roles in docs/operations.md gives a role the scope.
fn allows(role: KeyRole, scope: Scope) -> bool {
    match scope {
        Scope::Read => true,
        Scope::Write => role != KeyRole::Viewer,
        Scope::Manage => role == KeyRole::Admin,
        Scope::Operate | Scope::Unspecified => false,
    }
}

/// The scope that the description of an operation names; `None`: its handler decides.
fn scope(operation: &Value) -> Option<Scope> {
    let name = operation.get("x-flotilla-scope")?.as_str().unwrap();
    Some(Scope::from_str_name(&format!("SCOPE_{}", name.to_uppercase())).unwrap())
}

#[tokio::test]
async fn each_operation_over_http_is_refused_to_roles_without_its_scope() {
    let stack = Stack::without_sandbox().await;
    let (client, keys) = (Client::new(), keys(&stack).await);
    let url = |path: &str| format!("{}{path}", stack.gateway_url());
    let document = client.get(url("/doc")).bearer_auth(&stack.api.key).send().await.unwrap();
    let document: Value = document.json().await.unwrap();
    let (mut refused, mut served, mut wrong) = (0, 0, vec![]);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let Some(scope) = scope(operation).filter(|_| path != LONG_POLL && path != CREATES) else {
                continue;
            };
            // The braces of a parameter are no id, so nothing is changed by a call that is allowed.
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            for (role, key) in &keys {
                let call = client.request(method.clone(), url(path)).bearer_auth(key);
                let call = call.header("content-type", "application/json").body("{");
                let answer = testkit::within("an answer", call.send()).await.unwrap();
                let code = answer.headers().get("x-flotilla-code").map(|code| code.to_str().unwrap());
                let is_refused = code == Some("scope_missing");
                if is_refused == allows(*role, scope) {
                    wrong.push(format!("{method} {path} {role:?} {code:?}"));
                }
                *(if is_refused { &mut refused } else { &mut served }) += 1;
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(refused > 50 && served > 200, "{refused} {served}");
}

#[tokio::test]
async fn each_method_over_grpc_is_refused_to_roles_without_its_scope() {
    let stack = Stack::without_sandbox().await;
    let (client, keys) = (Client::new(), keys(&stack).await);
    // The status is in the head of an answer without a message.
    let call = async |path: &str, key: &str| {
        let call = client.post(format!("{}{path}", stack.gateway_url())).bearer_auth(key);
        let call = call.header("content-type", "application/grpc-web+proto").body(vec![0; 5]);
        let answer = testkit::within("an answer", call.send()).await.unwrap();
        let status = answer.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
        status.as_deref() == Some("7")
    };
    let (methods, mut wrong) = (rpc::access::methods().unwrap(), vec![]);
    for (path, access) in &methods {
        for (role, key) in &keys {
            if call(path, key).await == allows(*role, access.scope()) {
                wrong.push(format!("{path} {role:?}"));
            }
        }
        if call(path, &stack.operator().key).await {
            wrong.push(format!("{path} by the operator"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(methods.len() > 60, "{methods:?}");
}

/// Sends the head of a call and never its body, and returns the beginning of the answer.
async fn answer_without_body(api: &Api, url: &str, line: &str, kind: &str) -> String {
    let address = url.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: {kind}\r\ncontent-length: 100\r\n\r\n",
        api.key
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let read = testkit::within("a refusal", connection.read(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer[..read]).to_lowercase()
}

#[tokio::test]
async fn a_role_is_checked_before_the_body_is_read() {
    let stack = Stack::without_sandbox().await;
    let viewer = stack.api.of_key(&keys(&stack).await[0].1);
    let url = stack.gateway_url();
    let apply = answer_without_body(&viewer, url, "POST /vcs/apply", "application/json").await;
    assert!(apply.starts_with("http/1.1 403") && apply.contains("scope_missing"), "{apply}");
    let prompt = "POST /flotilla.v1.PromptService/AcceptPrompt";
    let prompt = answer_without_body(&viewer, url, prompt, "application/grpc-web+proto").await;
    assert!(prompt.contains("grpc-status: 7"), "{prompt}");
}
