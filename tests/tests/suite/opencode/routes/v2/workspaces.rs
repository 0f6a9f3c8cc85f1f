//! Files and terminals of a directory in the newer API.

use super::super::{super::client::Client, refused};
use e2e::turn::bash;
use reqwest::{Method, header};
use serde_json::{Value, json};

/// Calls every route of files and terminals.
pub(super) async fn check(client: &Client) {
    let client = Client { directory: "/home/me/found".to_owned(), ..client.clone() };
    let session = client.session(json!({})).await;
    let write = "mkdir -p src/alpha; echo Hi > src/alpha/one.txt; echo two > two.txt; printf '\\377' > bytes";
    client.prompt(&session, &format!("{}\n@text done", bash(write))).await;
    files(&client).await;
    terminals(&client).await;
}

async fn files(client: &Client) {
    let place = client.get("/api/location").await;
    let entry = |path: &str, kind: &str| json!({"path": path, "type": kind});
    for (query, want) in [
        ("?query=al&limit=20", json!([entry("src/alpha", "directory"), entry("src/alpha/one.txt", "file")])),
        ("?query=al&type=file", json!([entry("src/alpha/one.txt", "file")])),
        ("?query=al&type=directory", json!([entry("src/alpha", "directory")])),
        ("?query=two&limit=1", json!([entry("two.txt", "file")])),
        ("?query=nothing", json!([])),
    ] {
        let found = client.get(&format!("/api/fs/find{query}")).await;
        assert_eq!((&found["location"], &found["data"]), (&place, &want), "{query}");
    }
    for bad in ["", "?query=a&type=cake", "?query=a&limit=x"] {
        refused(client, Method::GET, &format!("/api/fs/find{bad}"), "").await;
    }
    let listed = client.get("/api/fs/list?path=src").await;
    assert_eq!(listed, json!({"location": place, "data": [entry("src/alpha", "directory")]}));
    let root = client.get("/api/fs/list").await;
    assert!(root["data"].as_array().unwrap().contains(&entry("two.txt", "file")), "{root}");
    for (path, bytes) in [("src/alpha/one.txt", &b"Hi\n"[..]), ("bytes", b"\xff")] {
        let read = client.request(Method::GET, &format!("/api/fs/read/{path}")).send().await.unwrap();
        assert_eq!(read.headers()[header::CONTENT_TYPE], "application/octet-stream", "never a page");
        assert_eq!(read.bytes().await.unwrap(), bytes, "{path}");
    }
    client.expect(200, Method::GET, "/api/fs/read/two.txt", Value::Null).await;
    for bad in ["none", "src", "..%2f..%2fetc%2fpasswd"] {
        refused(client, Method::GET, &format!("/api/fs/read/{bad}"), "").await;
    }
    let empty = Client { directory: "/home/me/empty".to_owned(), ..client.clone() };
    assert_eq!(empty.get("/api/fs/find?query=a").await["data"], json!([]));
    refused(&empty, Method::GET, "/api/fs/read/a", "").await;
}

async fn terminals(client: &Client) {
    let answer = client.post("/api/pty", json!({"command": "cat", "title": "mine"})).await;
    let terminal = &answer["data"];
    assert_eq!((&terminal["title"], &terminal["status"]), (&json!("mine"), &json!("running")));
    let at = format!("/api/pty/{}", terminal["id"].as_str().unwrap());
    assert_eq!(client.get(&at).await, answer);
    assert_eq!(client.get("/api/pty").await["data"], json!([terminal]));
    let renamed = client.expect(200, Method::PUT, &at, json!({"title": "yours"})).await;
    assert_eq!(renamed["data"]["title"], "yours");
    let no_page = client.expect(403, Method::POST, &format!("{at}/connect-token"), Value::Null).await;
    assert_eq!(no_page["_tag"], "ForbiddenError");
    let token = client.request(Method::POST, &format!("{at}/connect-token")).header("x-opencode-ticket", "1");
    let token: Value = token.send().await.unwrap().json().await.unwrap();
    assert_eq!(token["data"]["expires_in"], 60, "{token}");
    let no_ticket =
        client.expect(403, Method::GET, &format!("{at}/connect?ticket=guessed"), Value::Null).await;
    assert_eq!(no_ticket["_tag"], "ForbiddenError");
    refused(client, Method::POST, "/api/pty", "{").await;
    client.expect(204, Method::DELETE, &at, Value::Null).await;
    for path in [at.as_str(), &format!("{at}/connect")] {
        assert_eq!(
            client.expect(404, Method::GET, path, Value::Null).await["_tag"],
            "PtyNotFoundError",
            "{path}"
        );
    }
}
