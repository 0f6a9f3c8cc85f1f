//! OpenCode's clients name a directory when they ask for files, changes and terminals. They get those of the session that they work with.

use super::client::Client;
use domain::ids::pty::PtyId;
use e2e::{Stack, is_without, turn::bash};
use reqwest::Method;
use rpc::v1;
use serde_json::{Value, json};

/// A client with another key of the tenant.
async fn colleague(stack: &Stack, client: &Client) -> Client {
    let (tenant_id, name) = (stack.api.tenant_id.clone(), "colleague".to_owned());
    let request = v1::CreateKeyRequest { tenant_id, name, role: v1::KeyRole::Admin.into() };
    let key = stack.operator().tenants().create_key(request).await.unwrap().into_inner().secret;
    Client { key, ..client.clone() }
}

/// Creates a session that writes a file.
async fn session_with(client: &Client, file: &str) -> String {
    let session = client.session(json!({})).await;
    client.prompt(&session, &format!("{}\n@text done", bash(&format!("echo text > {file}")))).await;
    session
}

/// The files that each answer names, of `files`.
async fn named(client: &Client, files: &[&'static str]) -> Vec<Vec<&'static str>> {
    let mut named = vec![];
    for path in [
        "/file?path=.",
        "/find/file?query=.txt",
        "/find?pattern=text",
        "/vcs/status",
        "/vcs/diff?mode=git",
        "/api/fs/list",
        "/api/fs/find?query=.txt",
    ] {
        let answer = client.get(path).await.to_string();
        named.push(files.iter().copied().filter(|file| answer.contains(file)).collect());
    }
    named
}

/// Whether every answer is about the session with `file`.
async fn shows(client: &Client, file: &'static str) {
    let all = named(client, &["alpha.txt", "beta.txt", "gamma.txt"]).await;
    assert!(all.iter().all(|files| *files == [file]), "{file}: {all:?}");
}

/// The session of a new terminal.
async fn terminal_session(client: &Client) -> String {
    let terminal = client.post("/pty", json!({"command": "cat"})).await;
    let id: PtyId = terminal["id"].as_str().unwrap().parse().unwrap();
    assert!(client.get("/pty").await.to_string().contains(id.as_str()), "the list has it");
    id.session().to_string()
}

#[tokio::test]
async fn each_client_gets_the_files_and_terminals_of_its_own_session() {
    if e2e::is_left_out(&["redis"], "visits are in Redis") {
        return;
    }
    let stack = Stack::start().await;
    let mine = Client::new(&stack, "/home/me/duo");
    let theirs = colleague(&stack, &mine).await;
    let alpha = session_with(&mine, "alpha.txt").await;
    let beta = session_with(&theirs, "beta.txt").await;
    shows(&mine, "alpha.txt").await;
    shows(&theirs, "beta.txt").await;
    assert_eq!(
        (terminal_session(&mine).await, terminal_session(&theirs).await),
        (alpha.clone(), beta.clone())
    );
    let patch = "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n";
    mine.post("/vcs/apply", json!({"patch": patch})).await;
    let is_patched = |session: &str| stack.workspace(session).join("tree/new").exists();
    assert!(is_patched(&alpha) && !is_patched(&beta));

    // A client that reads the messages of another session shows that one, at every gateway.
    let gateway = stack.second_gateway().await;
    let elsewhere = Client { url: gateway.url.clone(), ..mine.clone() };
    elsewhere.get(&format!("/session/{beta}/message")).await;
    shows(&mine, "beta.txt").await;
    // Reading a subtask, and a session of another directory, changes nothing here.
    let other = Client { directory: "/home/me/other".to_owned(), ..mine.clone() };
    let gamma = session_with(&other, "gamma.txt").await;
    shows(&mine, "beta.txt").await;
    shows(&other, "gamma.txt").await;
    mine.expect(200, Method::DELETE, &format!("/session/{gamma}"), Value::Null).await;
    mine.expect(200, Method::DELETE, &format!("/session/{beta}"), Value::Null).await;
    shows(&mine, "alpha.txt").await;
}

/// A page loads the messages of further sessions in advance. It reads the to-do list of the one that it shows.
#[tokio::test]
async fn a_page_visits_the_session_that_it_shows() {
    if e2e::is_left_out(&["redis"], "visits are in Redis") {
        return;
    }
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/duo");
    let alpha = session_with(&client, "alpha.txt").await;
    let beta = session_with(&client, "beta.txt").await;
    let page = |path: String| {
        let request = client.request(Method::GET, &path).header("sec-fetch-site", "same-origin");
        async { assert_eq!(request.send().await.unwrap().status(), 200) }
    };
    page(format!("/session/{alpha}/message")).await;
    shows(&client, "beta.txt").await;
    page(format!("/session/{alpha}/todo")).await;
    shows(&client, "alpha.txt").await;
    page(format!("/session/{beta}/todo")).await;
    shows(&client, "beta.txt").await;
}

#[tokio::test]
async fn without_visits_the_newest_session_counts() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/duo");
    session_with(&client, "alpha.txt").await;
    session_with(&client, "beta.txt").await;
    let reader = colleague(&stack, &client).await;
    shows(&reader, "beta.txt").await;
    if !is_without("redis") {
        shows(&client, "beta.txt").await;
    }
}
