//! Terminals. `ptys` tests their connections.

use super::{super::client::Client, refused};
use reqwest::Method;
use serde_json::{Value, json};

/// An id that belongs to no terminal.
const NOBODY: &str = "/pty/pty_00000000000000000000000000";

/// Calls every route of terminals.
pub(super) async fn check(client: &Client) {
    let shells = client.get("/pty/shells").await;
    assert_eq!(shells[0], json!({"path": "/bin/bash", "name": "bash", "acceptable": true}));
    let terminal = client.post("/pty", json!({"command": "cat", "title": "mine", "env": {"A": "b"}})).await;
    assert_eq!((&terminal["title"], &terminal["status"]), (&json!("mine"), &json!("running")));
    let at = format!("/pty/{}", terminal["id"].as_str().unwrap());
    assert_eq!(client.get(&at).await, terminal);
    assert_eq!(client.get("/pty").await, json!([terminal]));
    let change = json!({"title": "yours", "size": {"rows": 30, "cols": 90}});
    assert_eq!(client.expect(200, Method::PUT, &at, change).await["title"], "yours");
    let no_page = client.expect(403, Method::POST, &format!("{at}/connect-token"), Value::Null).await;
    assert_eq!(no_page["_tag"], "PtyForbiddenError");
    let token = client.request(Method::POST, &format!("{at}/connect-token")).header("x-opencode-ticket", "1");
    let token: Value = token.send().await.unwrap().json().await.unwrap();
    assert_eq!(token["expires_in"], 60, "{token}");
    let no_ticket =
        client.expect(403, Method::GET, &format!("{at}/connect?ticket=guessed"), Value::Null).await;
    assert_eq!(no_ticket["_tag"], "Forbidden");
    let no_socket = client.request(Method::GET, &format!("{at}/connect")).send().await.unwrap();
    assert_eq!(no_socket.status(), 400, "a connection is a WebSocket");
    assert_eq!(no_socket.json::<Value>().await.unwrap()["name"], "BadRequest");
    for bad in ["{", "[]", r#"{"args":7}"#, r#"{"env":["A"]}"#, r#"{"cwd":"/etc"}"#] {
        refused(client, Method::POST, "/pty", bad).await;
    }
    for bad in ["{", r#"{"size":{"rows":-1,"cols":2}}"#, r#"{"size":{"rows":1}}"#] {
        refused(client, Method::PUT, &at, bad).await;
    }
    assert_eq!(client.expect(200, Method::DELETE, &at, Value::Null).await, true);
    for nobody in [at.as_str(), NOBODY, "/pty/nonsense"] {
        for (method, path, body) in [
            (Method::GET, "", Value::Null),
            (Method::PUT, "", json!({"title": "x"})),
            (Method::DELETE, "", Value::Null),
        ] {
            let none = client.expect(404, method, &format!("{nobody}{path}"), body).await;
            assert_eq!(none["_tag"], "PtyNotFoundError", "{nobody}{path}");
        }
        let none = client.expect(404, Method::GET, &format!("{nobody}/connect"), Value::Null).await;
        assert_eq!(none["name"], "NotFoundError", "{nobody}");
    }
}
