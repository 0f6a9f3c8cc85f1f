//! Routes that OpenCode's single user may change but our tenants may not, and routes that always succeed.

use super::super::client::Client;
use reqwest::Method;
use serde_json::{Value, json};

pub(super) async fn check(client: &Client) {
    for (method, path, body) in [
        (Method::PATCH, "/config", json!({"model": "chat/demo"})),
        (Method::PATCH, "/global/config", json!({"model": "chat/demo"})),
        (Method::PUT, "/auth/chat", json!({"type": "api", "key": "secret"})),
        (Method::DELETE, "/auth/chat", Value::Null),
        (Method::POST, "/provider/chat/oauth/authorize", json!({"method": 0})),
        (Method::POST, "/provider/chat/oauth/callback", json!({"method": 0, "code": "c"})),
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
    let listed = client.get("/experimental/tool?provider=chat&model=demo").await;
    let listed = listed.as_array().unwrap().iter();
    let names: Vec<&Value> = listed.clone().map(|tool| &tool["id"]).collect();
    assert_eq!(json!(names), tools);
    let bash = listed.clone().find(|tool| tool["id"] == "bash").unwrap();
    assert_eq!(bash["parameters"]["properties"]["command"]["type"], "string", "{bash}");
    client.expect(400, Method::GET, "/experimental/tool", Value::Null).await;
    let id = client.get("/project/current").await["id"].as_str().unwrap().to_owned();
    let refresh = format!("/experimental/project/{id}/copy/refresh");
    client.expect(204, Method::POST, &refresh, Value::Null).await;
    // OpenCode answers these routes with a web page.
    assert_eq!(client.request(Method::GET, "/").send().await.unwrap().status(), 200);
    client.called.lock().unwrap().insert(("GET".to_owned(), "/".to_owned()));
    let app = client.request(Method::GET, "/app").send().await.unwrap();
    client.called.lock().unwrap().insert(("GET".to_owned(), "/app".to_owned()));
    assert_eq!(app.json::<Value>().await.unwrap()["healthy"], true);
}
