//! The reasoning effort of OpenCode's prompts.

use super::client::{Client, text_prompt};
use e2e::Stack;
use serde_json::{Value, json};

/// As in OpenCode: the session shows it, and each prompt names its own.
#[tokio::test]
async fn a_session_shows_the_variant_of_its_model() {
    let stack = Stack::without_sandbox().await;
    let client = Client::new(&stack, "variants");
    let model = |variant: &str| json!({"providerID": "chat", "id": "demo", "variant": variant});
    let created = client.post("/session", json!({"title": "effort", "model": model("high")})).await;
    assert_eq!(created["model"]["variant"], "high", "{created}");
    let session = created["id"].as_str().unwrap();
    assert_eq!(client.get(&format!("/session/{session}")).await["model"], created["model"]);
    // Over gRPC a prompt without a variant takes that of its session.
    e2e::turn::run(&stack.api, session, "@text thought").await;
    assert_eq!(stack.model.journal.requests()[0].body["reasoning_effort"], "high");
    let plain = client.post("/session", json!({"model": model("default")})).await;
    assert_eq!(plain["model"]["variant"], Value::Null, "{plain}");
    client.expect(400, reqwest::Method::POST, "/session", json!({"model": model("endless")})).await;
}

#[tokio::test]
async fn a_prompt_without_a_variant_uses_the_providers_default() {
    let stack = Stack::without_sandbox().await;
    let client = Client::new(&stack, "variants");
    // A title of its own: no call for a title comes between.
    let session = client.session(json!({"title": "effort"})).await;
    for (variant, want) in [(json!("high"), json!("high")), (Value::Null, Value::Null)] {
        let before = stack.model.journal.requests().len();
        let mut body = text_prompt("@text thought");
        if !variant.is_null() {
            body["variant"] = variant.clone();
        }
        client.post(&format!("/session/{session}/message"), body).await;
        let requests = stack.model.journal.requests();
        assert_eq!(requests[before].body["reasoning_effort"], want, "{variant}");
    }
}
