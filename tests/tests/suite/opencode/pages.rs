//! Web pages of other sites, for which a browser sends the password that a person typed at the gateway. They can change
//! nothing. The routes come from the gateway's list, so new routes are tested automatically.

use super::{client::Client, strangers::ResourceIds};
use e2e::Stack;
use reqwest::{Method, RequestBuilder, StatusCode};

const FOREIGN: &str = "https://evil.example";
/// Routes that change something although their method is that of a read.
const ACTING_READS: [&str; 2] = ["/pty/{id}/connect", "/tui/control/next"];

/// Returns the status and the stable code of the answer, whose body may have no end.
async fn status(request: RequestBuilder) -> (StatusCode, String) {
    let answer = request.send().await.unwrap();
    let code = answer.headers().get("x-flotilla-code").map(|code| code.to_str().unwrap().to_owned());
    (answer.status(), code.unwrap_or_default())
}

#[tokio::test]
async fn a_page_of_another_site_can_only_read() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let nothing = ResourceIds::of_nothing();
    let mut wrong = vec![];
    for (method, route) in client.own().await.listed() {
        let path = nothing.path(&route).unwrap_or_else(|| route.replace(['{', '}'], ""));
        let acts = method != "GET" || ACTING_READS.contains(&&*route);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let call = || client.request(method.clone(), &path);
        let refused = (StatusCode::FORBIDDEN, "origin_forbidden".to_owned());
        // A form or a script of the page, and a picture, whose request has no origin.
        for request in [call().header("origin", FOREIGN), call().header("sec-fetch-site", "cross-site")] {
            let got = status(request).await;
            // A connection is refused in its own words.
            let connects = route.ends_with("/connect");
            let is_refused = if connects { got.0 == StatusCode::FORBIDDEN } else { got == refused };
            if is_refused != (acts || connects) {
                wrong.push(format!("{method} {path}: {got:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for origin in [client.url.as_str(), "http://localhost:3000", "tauri://localhost"] {
        let request = client.request(Method::POST, "/session").header("origin", origin);
        assert_eq!(status(request).await.0, StatusCode::OK, "{origin}");
    }
    let call = reqwest::Client::new()
        .post(format!("{}/flotilla.v1.SessionService/ListSessions", client.url))
        .bearer_auth(&client.key)
        .header("content-type", "application/grpc-web+proto")
        .header("origin", FOREIGN)
        .body(vec![0; 5]);
    assert_eq!(call.send().await.unwrap().headers()["grpc-status"], "7");
}

#[tokio::test]
async fn a_body_that_is_not_declared_as_json_changes_nothing() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let (nothing, own) = (ResourceIds::of_nothing(), client.own().await);
    let mut reading = 0;
    for (method, route) in own.listed() {
        if own.document["paths"][&route][method.to_lowercase()]["requestBody"].is_null() {
            continue;
        }
        let path = nothing.path(&route).unwrap_or_else(|| route.replace(['{', '}'], ""));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let call = || client.request(method.clone(), &path);
        // The kinds that a page may send without the consent of the server.
        let kinds = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"];
        let declared = kinds.map(|kind| call().header("content-type", kind));
        for request in declared.into_iter().chain([call()]) {
            let (status, code) = status(request.body("{}")).await;
            // Some routes are refused whatever their body is.
            let is_refused = (status, code.as_str())
                == (StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type_invalid")
                || code == "operator_only";
            assert!(is_refused, "{method} {path}: {status} {code}");
        }
        let (status, code) = status(call()).await;
        assert_ne!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{method} {path} without a body: {code}");
        reading += 1;
    }
    assert!(reading > 12, "only {reading} routes read a body");
}
