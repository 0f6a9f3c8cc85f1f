//! Secrets over the public API, with a real broker.

mod agents;
mod key_changes;
mod key_service;
mod leaks;
mod process;
mod scripts;
mod vault;

use e2e::{
    Options, Stack,
    api::{Api, assert_refused},
    turn::assert_works,
};
use rpc::v1;
use tonic::{Code, Status};

async fn set(api: &Api, project_id: &str, name: &str, value: &[u8]) -> Result<v1::Secret, Status> {
    let request = v1::SetSecretRequest {
        name: name.to_owned(),
        project_id: project_id.to_owned(),
        value: value.to_vec(),
        urls: vec![],
    };
    Ok(api.secrets().set_secret(request).await?.into_inner().secret.unwrap())
}

/// Lists names, projects and versions.
async fn list(api: &Api, project_id: &str) -> Result<Vec<(String, String, u64)>, Status> {
    let request = v1::ListSecretsRequest { project_id: project_id.to_owned(), page: None };
    let secrets = api.secrets().list_secrets(request).await?.into_inner().secrets;
    Ok(secrets.into_iter().map(|secret| (secret.name, secret.project_id, secret.version)).collect())
}

async fn remove(api: &Api, project_id: &str, name: &str) -> Result<(), Status> {
    let request = v1::DeleteSecretRequest { name: name.to_owned(), project_id: project_id.to_owned() };
    api.secrets().delete_secret(request).await.map(|_| ())
}

fn entry(name: &str, project_id: &str, version: u64) -> (String, String, u64) {
    (name.to_owned(), project_id.to_owned(), version)
}

#[tokio::test]
async fn secrets_are_set_listed_and_removed() {
    let stack = Stack::with(Options { broker: true, workers: 0, sandbox: false, ..Options::default() }).await;
    let (api, project) = (&stack.api, stack.api.project_id.as_str());
    let first = set(api, "", "NPM_TOKEN", b"one").await.unwrap();
    assert_eq!((first.version, first.created_by.as_str(), first.last_used_at_ms), (1, "test", 0));
    assert!(first.created_at_ms > 0);
    assert_eq!(set(api, project, "NPM_TOKEN", &[0xff; 64 * 1024]).await.unwrap().version, 2);
    assert_eq!(set(api, "", "NPM_TOKEN", b"two").await.unwrap().version, 3);
    let all = [entry("NPM_TOKEN", "", 3), entry("NPM_TOKEN", project, 2)];
    assert_eq!(list(api, "").await.unwrap(), all);
    assert_eq!(list(api, project).await.unwrap(), all[1..]);
    let request = v1::ListSecretsRequest {
        project_id: String::new(),
        page: Some(v1::Page { limit: 1, cursor: String::new() }),
    };
    let page = api.secrets().list_secrets(request).await.unwrap().into_inner();
    assert_eq!((page.secrets[0].version, page.next_cursor.as_str()), (3, "/NPM_TOKEN"));

    let other = stack.other_tenant().await;
    assert_eq!(list(&other, "").await.unwrap(), []);
    for refused in
        [set(&other, project, "X", b"x").await.map(|_| ()), list(&other, project).await.map(|_| ())]
    {
        assert_refused(refused, Code::NotFound, "project_not_found");
    }
    assert_refused(remove(&other, "", "NPM_TOKEN").await, Code::NotFound, "secret_not_found");

    remove(api, "", "NPM_TOKEN").await.unwrap();
    assert_refused(remove(api, "", "NPM_TOKEN").await, Code::NotFound, "secret_not_found");
    assert_eq!(set(api, "", "NPM_TOKEN", b"three").await.unwrap().version, 4, "a version never repeats");
    let request = v1::DeleteProjectRequest { project_id: project.to_owned() };
    api.projects().delete_project(request).await.unwrap();
    assert_eq!(list(api, "").await.unwrap(), [entry("NPM_TOKEN", "", 4)]);
}

#[tokio::test]
async fn only_admins_change_secrets_and_mistakes_are_named() {
    let stack = Stack::with(Options { broker: true, workers: 0, sandbox: false, ..Options::default() }).await;
    let api = &stack.api;
    set(api, "", "TOKEN", b"one").await.unwrap();
    for role in [v1::KeyRole::Member, v1::KeyRole::Viewer] {
        let request =
            v1::CreateKeyRequest { name: "other".to_owned(), role: role.into(), ..Default::default() };
        let key = api.tenants().create_key(request).await.unwrap().into_inner().secret;
        let api = api.of_key(&key);
        assert_refused(set(&api, "", "TOKEN", b"x").await, Code::PermissionDenied, "scope_missing");
        assert_refused(remove(&api, "", "TOKEN").await, Code::PermissionDenied, "scope_missing");
        assert_eq!(list(&api, "").await.unwrap(), [entry("TOKEN", "", 1)]);
    }
    for (name, value, code) in [
        ("", &b"x"[..], "secret_name_invalid"),
        ("npm", b"x", "secret_name_invalid"),
        ("1A", b"x", "secret_name_invalid"),
        ("A\0", b"x", "secret_name_invalid"),
        ("TOKEN=hunter2", b"x", "secret_name_invalid"),
        (&"A".repeat(101), b"x", "secret_name_invalid"),
        ("TOKEN", b"", "secret_empty"),
        ("TOKEN", &[1; 64 * 1024 + 1], "secret_too_large"),
    ] {
        let message = assert_refused(set(api, "", name, value).await, Code::InvalidArgument, code);
        assert!(!message.contains("hunter2"), "{message}");
    }
    for project in ["prj_1", "nonsense", "\0"] {
        assert_refused(set(api, project, "TOKEN", b"x").await, Code::NotFound, "project_not_found");
    }
    assert_refused(remove(api, "", "x/y").await, Code::InvalidArgument, "secret_name_invalid");
    let cursor = Some(v1::Page { limit: 0, cursor: "forged".to_owned() });
    let request = v1::ListSecretsRequest { project_id: String::new(), page: cursor };
    assert_refused(api.secrets().list_secrets(request).await, Code::InvalidArgument, "cursor_invalid");

    let mut connection = testkit::database::connect(&stack.database.migrator_url).await;
    let sql =
        "insert into secret (tenant_id, scope, name, version, key_id, sealed_key, ciphertext, created_by)
               select id, '', 'A' || n, n, 'k', '', '', 'ann' from tenant, generate_series(2, 1000) n";
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    assert_refused(set(api, "", "ONE_MORE", b"x").await, Code::ResourceExhausted, "secrets_too_many");
    set(api, "", "TOKEN", b"another value").await.unwrap();
}

#[tokio::test]
async fn without_the_broker_only_setting_a_secret_fails() {
    let mut stack = Stack::start().await;
    let away = async |stack: &Stack| {
        let refused = set(&stack.api, "", "TOKEN", b"hunter2").await;
        let message = assert_refused(refused, Code::Unavailable, "broker_unavailable");
        assert!(!message.contains("hunter2"));
    };
    away(&stack).await;
    stack.start_broker().await;
    let set_again = async || set(&stack.api, "", "TOKEN", b"one").await.is_ok();
    testkit::eventually("the gateway reaches the broker again", set_again).await;
    stack.stop_broker().await;
    away(&stack).await;
    assert_eq!(list(&stack.api, "").await.unwrap().len(), 1);
    assert_works(&stack.api, &stack.session().await).await;
    remove(&stack.api, "", "TOKEN").await.unwrap();
    assert_eq!(list(&stack.api, "").await.unwrap(), []);
}
