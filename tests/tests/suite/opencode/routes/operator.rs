//! What OpenCode lets its one user change and many users may not, and what is always in order.

use super::super::client::Client;
use reqwest::Method;
use serde_json::{Value, json};

/// Calls every such route.
pub(super) async fn check(client: &Client) {
    for (method, path, body) in [
        (Method::PATCH, "/config", json!({"model": "chat/demo"})),
        (Method::PATCH, "/global/config", json!({"model": "chat/demo"})),
        (Method::PUT, "/auth/chat", json!({"type": "api", "key": "secret"})),
        (Method::DELETE, "/auth/chat", Value::Null),
    ] {
        let refused = client.expect(403, method, path, body).await;
        assert_eq!(refused["_tag"], "ForbiddenError", "{path}");
        assert!(refused["message"].as_str().is_some_and(|why| !why.is_empty()), "{path}");
    }
    for path in ["/instance/dispose", "/global/dispose"] {
        assert_eq!(client.post(path, Value::Null).await, true, "{path}");
    }
    assert_eq!(client.post("/global/upgrade", json!({})).await["success"], false);
    let tools = client.get("/experimental/tool/ids").await;
    assert!(tools.as_array().unwrap().contains(&json!("bash")), "{tools}");
    // OpenCode itself answers this one with a page of the web.
    let app = client.request(Method::GET, "/app").send().await.unwrap();
    client.called.lock().unwrap().insert(("GET".to_owned(), "/app".to_owned()));
    assert_eq!(app.json::<Value>().await.unwrap()["healthy"], true);
}
