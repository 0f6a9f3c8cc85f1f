//! The newer API and the MCP routes refuse in the shapes that OpenCode's description declares. The calls come from that description.

use super::super::{client::Client, contract};
use futures::{StreamExt as _, stream};
use reqwest::{Method, header};
use serde_json::Value;

const AT_ONCE: usize = 8;

/// Calls every operation of the description with ids of nothing, and with a body that is not JSON.
pub(super) async fn check(client: &Client) {
    let Some(contract) = contract::find() else { return };
    let operations = contract.listed().into_iter().filter(|(_, path)| {
        let begins = |part: &str| path.starts_with(part);
        (begins("/api/") || begins("/mcp/")) && !path.ends_with("/event")
    });
    let calls = operations.flat_map(|(method, path)| {
        let concrete = path
            .replace("{sessionID}", "ses_00000000000000000000000000")
            .replace("{ptyID}", "pty_00000000000000000000000000")
            .replace("/*", "/nothing")
            .replace(['{', '}'], "");
        let bodies: &[&str] = match (method.as_str(), path.contains('{')) {
            ("GET" | "DELETE", _) => &[""],
            (_, true) => &["{}", "{"],
            (_, false) => &["{"],
        };
        bodies.iter().map(move |body| (method.clone(), concrete.clone(), *body)).collect::<Vec<_>>()
    });
    let refused = stream::iter(calls).map(|(method, path, body)| async move {
        let request = client.request(Method::from_bytes(method.as_bytes()).unwrap(), &path);
        let request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if (200..300).contains(&status) {
            return 0;
        }
        assert!(status != 405 && !text.contains("no such path"), "{method} {path}: {status} {text}");
        let kind = headers.get(header::CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap());
        contract.check((&method, &path), status, (kind, &body));
        1
    });
    let refused: usize = refused.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().sum();
    assert!(refused > 50, "{refused} calls were refused");
}
