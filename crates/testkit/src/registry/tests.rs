#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{
    Registry,
    rules::{Fault, Login},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The whole answer to a GET, headers included.
async fn get(registry: &Registry, path: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(&registry.host).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: registry\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![];
    // A broken connection is an answer, too.
    let _ = crate::within("the registry answers", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_registry_sends_what_was_pushed_or_fails_on_command() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"one layer"]);
    let manifest = get(&registry, "/v2/app/manifests/latest", "").await;
    assert!(manifest.starts_with("HTTP/1.1 200") && manifest.contains(&image.layers[0]), "{manifest}");
    let blob = format!("/v2/app/blobs/{}", image.layers[0]);
    assert!(get(&registry, &blob, "").await.ends_with("one layer"));
    assert!(get(&registry, "/v2/app/manifests/other", "").await.starts_with("HTTP/1.1 404"));
    for (fault, want) in [
        (Fault::Truncate(3), "one"),
        (Fault::Replace(b"two".to_vec()), "two"),
        (Fault::Status { code: 429, times: 1, retry_after: Some(3) }, "retry-after: 3"),
    ] {
        registry.fail(&image.layers[0], fault.clone());
        let answer = get(&registry, &blob, "").await;
        assert!(answer.contains(want) && !answer.contains("one layer"), "{fault:?}: {answer}");
    }
    assert!(get(&registry, &blob, "").await.ends_with("one layer"), "once means once");
    registry.wait_for_requests("/latest", 1).await;
    assert_eq!(registry.requests().len(), 7);
}

#[tokio::test]
async fn a_registry_wants_the_login_that_it_was_told() {
    let registry = Registry::start().await;
    registry.push_image("app", &[]);
    registry.require(Login::Password("ann:hunter2".to_owned()));
    let path = "/v2/app/manifests/latest";
    let refused = get(&registry, path, "authorization: Bearer wrong\r\n").await;
    assert!(
        refused.starts_with("HTTP/1.1 401") && refused.contains("/token\",service=\"test\""),
        "{refused}"
    );
    let token = "/token?scope=repository%3Aapp%3Apull&service=test";
    let login = "authorization: Basic YW5uOmh1bnRlcjI=\r\n";
    assert!(get(&registry, token, "").await.starts_with("HTTP/1.1 401"));
    assert!(get(&registry, &token.replace("pull", "pull%2Cpush"), login).await.starts_with("HTTP/1.1 401"));
    let granted = get(&registry, token, login).await;
    assert!(granted.contains("\"token\":\"token-of-a-test\""), "{granted}");
    let opened = get(&registry, path, "authorization: Bearer token-of-a-test\r\n").await;
    assert!(opened.starts_with("HTTP/1.1 200"), "{opened}");
}
