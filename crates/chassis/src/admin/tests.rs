//! The admin port over real HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

async fn get_text(url: String) -> (u16, String) {
    let response = crate::http::client().unwrap().get(url).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test]
async fn readiness_follows_the_components() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (health, stop) = (Health::default(), CancellationToken::new());
    let server = tokio::spawn(serve(listener, health.clone(), recorder(), stop.clone()));
    assert_eq!(get_text(format!("{url}/healthz")).await.0, 200);
    assert_eq!(get_text(format!("{url}/readyz")).await.0, 503, "a service without components is not ready");

    health.set("postgres", Err("connection refused".to_owned()));
    health.set("nats", Ok(()));
    let expected = r#"{"ready":false,"components":{"nats":{"ok":true,"message":""},"postgres":{"ok":false,"message":"connection refused"}}}"#;
    assert_eq!(get_text(format!("{url}/readyz")).await, (503, expected.to_owned()));
    health.set("postgres", Ok(()));
    health.set_optional("nats", Err("refused".to_owned()));
    let expected = r#"{"ready":true,"components":{"nats":{"ok":false,"message":"refused","optional":true},"postgres":{"ok":true,"message":""}}}"#;
    assert_eq!(get_text(format!("{url}/readyz")).await, (200, expected.to_owned()));

    recorder(); // a second install changes nothing
    metrics::counter!("chassis_test_total").increment(3);
    let (status, text) = get_text(format!("{url}/metrics")).await;
    assert_eq!((status, text.contains("chassis_test_total 3")), (200, true), "{text}");
    stop.cancel();
    server.await.unwrap();
}
