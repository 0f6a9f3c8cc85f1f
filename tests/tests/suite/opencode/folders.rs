//! What OpenCode's web app calls to open a project: a person browses the folders below the home directory.

use super::{client::Client, directories::created_at};
use e2e::Stack;
use reqwest::Method;
use serde_json::{Value, json};

/// The web app makes paths of what it finds, without a second slash.
fn joined(folder: &str, path: &str) -> String {
    format!("{}/{}", folder.trim_end_matches('/'), path.trim_matches('/'))
}

/// A call of a page.
async fn of_page(client: &Client, path: &str) -> Value {
    let request = client.request(Method::GET, path).header("sec-fetch-site", "same-origin");
    request.send().await.unwrap().json().await.unwrap()
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry.as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_folders_below_home_lead_to_the_projects() {
    let stack = Stack::start().await;
    created_at(&stack, "my-project", "/src/my-project").await;
    created_at(&stack, "/home/me/app", "").await;
    let named = Client::new(&stack, "my-project");
    named.post("/experimental/worktree", json!({"name": "fix"})).await;
    let home = Client::new(&stack, "/");
    assert_eq!(home.get("/path").await["home"], "/");
    let found = home.get("/find/file?query=&dirs=true&limit=50").await;
    // The stack has a project of its own.
    let all = ["my-project/", "home/me/app/", "my-project.worktrees/fix/"];
    assert_eq!(strings(&found), [&["project/"][..], &all[..]].concat(), "the shortest first");
    for (query, want) in [("MPJ", &[all[0], all[2]][..]), ("hma", &[all[1]]), ("none", &[])] {
        let found = home.get(&format!("/find/file?query={query}&dirs=true&limit=50")).await;
        assert_eq!(strings(&found), want, "{query}");
    }
    assert_eq!(home.get("/find/file?query=&type=file").await, json!([]));
    let found = home.get("/api/fs/find?query=app").await;
    assert_eq!(found["data"][0], json!({"path": "home/me/app", "type": "directory"}));
    let folders = |nodes: &Value| {
        let nodes = nodes.as_array().unwrap().iter();
        nodes
            .map(|node| format!("{} {}", node["type"], node["absolute"]).replace('"', ""))
            .collect::<Vec<_>>()
    };
    let root = home.get("/file?path=").await;
    let names = ["home", "my-project", "my-project.worktrees", "project"];
    assert_eq!(folders(&root), names.map(|name| format!("directory /{name}")));
    assert_eq!(root[0]["path"], "home/");
    assert_eq!(folders(&home.get("/file?path=home/me").await), ["directory /home/me/app"]);
    let below = Client::new(&stack, "/home");
    assert_eq!(folders(&below.get("/file?path=.").await), ["directory /home/me"]);

    // The chosen folder is the project.
    for path in strings(&home.get("/find/file?query=&dirs=true&limit=50").await) {
        let chosen = Client::new(&stack, &joined("/", path));
        let session = chosen.post("/session", json!({})).await;
        let listed = chosen.get("/session").await;
        assert_eq!(listed[0]["id"], session["id"], "{path}");
        let own = session["directory"].as_str().unwrap();
        assert_eq!(own, path.trim_end_matches('/').replace("home/me", "/home/me"));
    }
    // A page goes on with the name of the project, which events have.
    let listed = of_page(&home, "/project").await;
    let project =
        listed.as_array().unwrap().iter().find(|project| project["worktree"] == "my-project").unwrap();
    assert_eq!(project["sandboxes"], json!(["my-project.worktrees/fix", "/my-project"]));
    assert!(!home.get("/project").await.to_string().contains("\"/my-project\""), "only a page needs it");
    let stranger = Client { key: stack.other_tenant().await.key, ..home.clone() };
    assert_eq!(stranger.get("/find/file?query=&dirs=true").await, json!(["project/"]), "its own one");
}

#[tokio::test]
async fn the_address_of_the_gateway_leads_a_person_on() {
    let stack = Stack::gateway_alone().await;
    let response = reqwest::get(stack.gateway_url()).await.unwrap();
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(response.status(), 200, "without a key");
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert!(header("content-security-policy").starts_with("default-src 'none'"));
    let page = response.text().await.unwrap();
    for text in [
        "opencode attach URL --dir my-project",
        "opencode run --attach URL --dir my-project",
        "href=\"/doc\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("<script") && !page.contains(&stack.api.key));
}

/// OpenCode's TUI reads the directories of a project again before it offers to move a session.
#[tokio::test]
async fn a_session_is_not_moved_but_the_directories_are_listed() {
    let stack = Stack::gateway_alone().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({})).await;
    let id = client.get("/project/current").await["id"].as_str().unwrap().to_owned();
    client.expect(204, Method::POST, &format!("/experimental/project/{id}/copy/refresh"), Value::Null).await;
    let listed = client.get(&format!("/project/{id}/directories")).await;
    assert_eq!(listed, json!([{"directory": "/home/me/project"}]));
    let body = json!({"sessionID": session, "destination": {"directory": "/home/me/other"}});
    let refused = client.request(Method::POST, "/experimental/control-plane/move-session").json(&body);
    let refused = refused.send().await.unwrap();
    let (status, body): (u16, Value) = (refused.status().as_u16(), refused.json().await.unwrap());
    let want = json!({"name": "MoveSessionError", "data": {"message": "sessions cannot be moved"}});
    assert_eq!((status, body), (400, want));
}
