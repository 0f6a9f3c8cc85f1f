//! The newer API, below `/api`.

mod sessions;
mod workspaces;

use super::super::client::Client;
use reqwest::Method;
use serde_json::{Value, json};

/// Calls every route of the newer API.
pub(super) async fn check(client: &Client) {
    catalogue(client).await;
    sessions::check(client).await;
    workspaces::check(client).await;
}

async fn catalogue(client: &Client) {
    assert_eq!(client.get("/api/health").await, json!({"healthy": true}));
    let place = client.get("/api/location").await;
    assert_eq!(
        (&place["directory"], &place["project"]["directory"]),
        (&json!(client.directory), &json!(client.directory))
    );
    for (path, named, member) in [
        ("agent", "build", "id"),
        ("command", "init", "name"),
        ("model", "demo", "id"),
        ("provider", "chat", "id"),
    ] {
        let listing = client.get(&format!("/api/{path}")).await;
        assert_eq!(listing["location"], place, "{path}");
        let mut listed = listing["data"].as_array().unwrap().iter();
        assert!(listed.any(|one| one[member] == named), "{path}: {listing}");
    }
    let provider = client.get("/api/provider/chat").await;
    assert_eq!((&provider["location"], &provider["data"]["id"]), (&place, &json!("chat")), "{provider}");
    let missing = client.expect(404, Method::GET, "/api/provider/nope", Value::Null).await;
    assert_eq!((&missing["_tag"], &missing["providerID"]), (&json!("ProviderNotFoundError"), &json!("nope")));
    for path in ["integration", "reference", "skill"] {
        assert_eq!(client.get(&format!("/api/{path}")).await["data"], json!([]), "{path}");
    }
    let stranger = Client { key: "flk_nobody".to_owned(), ..client.clone() };
    let refused = stranger.expect(401, Method::GET, "/api/agent", Value::Null).await;
    assert_eq!(refused["_tag"], "UnauthorizedError");
}
