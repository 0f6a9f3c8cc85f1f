//! Paths with parameters that are not UTF-8.

use super::super::client::Client;
use reqwest::{Method, header};
use serde_json::Value;

/// Calls every reading operation with such parameters. They name nothing, and the refusal has the shape of the others.
pub(super) async fn check(client: &Client) {
    let own = client.own().await;
    let mut called = 0;
    for (method, route) in own.listed() {
        if method != "GET" || !route.contains('{') {
            continue;
        }
        let pieces = route.split('/').map(|piece| if piece.starts_with('{') { "%ff%fe" } else { piece });
        let path = pieces.collect::<Vec<_>>().join("/");
        let response = client.request(Method::GET, &path).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        // OpenCode counts a path without a file as a mistake in the query.
        let want = if route.starts_with("/api/fs/") { 400 } else { 404 };
        assert_eq!(status, want, "{path}: {text}");
        assert!(status == 400 || headers.contains_key("x-flotilla-code"), "{path}: {text}");
        let kind = headers.get(header::CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap());
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        own.check((method.as_str(), &path), status, (kind, &body));
        called += 1;
    }
    assert!(called > 15, "only {called} operations have parameters");
}
