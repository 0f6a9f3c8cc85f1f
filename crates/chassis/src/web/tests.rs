#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
use super::*;
use axum::{Router, response::Redirect, routing::get};

const SOON: Duration = Duration::from_secs(20);

fn loopback() -> Web {
    Web::new(vec!["127.0.0.0/8".parse().unwrap()])
}

/// Starts a web server on this machine and returns its address.
async fn server(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[test]
fn only_public_addresses_are_public() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "172.15.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
    ] {
        assert!(is_public(address.parse().unwrap()), "{address}");
    }
    for address in [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:10.0.0.1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "ff02::1",
        "2001:db8::1",
        "2001::1",
        "3fff::1",
    ] {
        assert!(!is_public(address.parse().unwrap()), "{address}");
    }
}

#[tokio::test]
async fn addresses_outside_the_public_web_are_refused_before_connecting() {
    let web = Web::default();
    for (url, want) in [
        ("file:///etc/passwd", "is not a web address"),
        ("ftp://example.com/", "is not a web address"),
        ("https://user:word@example.com/", "is not a web address"),
        ("nonsense", "is not a web address"),
        ("http://127.0.0.1/", "not on the public web"),
        ("http://[::1]/", "not on the public web"),
        ("http://2130706433/", "not on the public web"),
        ("http://0x7f.1/", "not on the public web"),
        ("http://localhost/", "not on the public web"),
        ("http://169.254.169.254/latest/meta-data", "not on the public web"),
        ("http://1.1.1.1:6379/", "port 6379"),
    ] {
        let error = web.get(url, 10, SOON).await.unwrap_err().to_string();
        assert!(error.contains(want), "{url}: {error}");
    }
}

#[tokio::test]
async fn redirects_are_followed_and_checked_each_time() {
    let pages = Router::new()
        .route("/", get(|| async { ([("content-type", "Text/HTML; charset=utf-8")], "<p>hello") }))
        .route("/once", get(|| async { Redirect::temporary("/") }))
        .route("/round", get(|| async { Redirect::temporary("/round") }))
        // Another loopback address than the allowed one, as a rebinding name would resolve to.
        .route("/out", get(|| async { Redirect::temporary("http://10.0.0.1/") }));
    let url = server(pages).await;
    let page = loopback().get(&format!("{url}/once"), 100, SOON).await.unwrap();
    assert_eq!(
        page,
        Page { url: format!("{url}/"), media_type: "text/html".to_owned(), body: b"<p>hello".to_vec() }
    );
    let refused = |path: &'static str| {
        let url = format!("{url}{path}");
        async move { loopback().get(&url, 100, SOON).await.unwrap_err().to_string() }
    };
    assert!(refused("/round").await.contains("more than 5 redirects"));
    assert!(refused("/out").await.contains("10.0.0.1 is not on the public web"));
    assert!(refused("/missing").await.contains("404"));
}

#[tokio::test]
async fn long_and_slow_pages_are_bounded() {
    let pages = Router::new()
        .route("/long", get(|| async { "x".repeat(1_000) }))
        .route("/slow", get(|| async { std::future::pending::<&str>().await }));
    let url = server(pages).await;
    let long = loopback().get(&format!("{url}/long"), 999, SOON).await.unwrap_err();
    assert!(matches!(long, Error::TooLarge(999)), "{long}");
    let slow = loopback().get(&format!("{url}/slow"), 999, Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(slow, Error::Timeout(_)), "{slow}");
}
