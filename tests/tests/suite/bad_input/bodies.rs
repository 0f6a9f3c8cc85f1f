//! HTTP bodies that exceed the limit.

use e2e::{Stack, turn::assert_works};
use serde_json::Value;

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let stack = Stack::start().await;
    let (client, session) = (reqwest::Client::new(), stack.session().await);
    let post = async |path: &str, text: String| {
        let body = serde_json::json!({"parts": [{"type": "text", "text": text}]}).to_string();
        let request =
            client.post(format!("{}{path}", stack.gateway_url())).basic_auth("x", Some(&stack.api.key));
        let request = request.header("content-type", "application/json");
        let answer = testkit::within("an answer", request.body(body).send()).await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    for bytes in [rpc::MESSAGE_BYTES_MAX, 2 * rpc::MESSAGE_BYTES_MAX] {
        for path in [format!("/session/{session}/message"), "/session".to_owned(), "/pty".to_owned()] {
            let (status, error) = post(&path, "x".repeat(bytes)).await;
            assert_eq!((status, &error["_tag"]), (413, &"InvalidRequestError".into()), "{path}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(&format!("larger than {} bytes", rpc::MESSAGE_BYTES_MAX)), "{message}");
        }
    }
    // Smaller bodies are read, and their content has a separate limit.
    let (status, error) =
        post(&format!("/session/{session}/message"), "x".repeat(rpc::MESSAGE_BYTES_MAX / 2)).await;
    assert!(status == 400 && error["message"].as_str().unwrap().contains("the limit is"), "{status} {error}");
    assert_works(&stack.api, &session).await;
}
