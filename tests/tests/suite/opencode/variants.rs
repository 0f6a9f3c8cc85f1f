//! The reasoning effort of OpenCode's prompts.

use super::client::{Client, text_prompt};
use e2e::Stack;
use serde_json::{Value, json};

#[tokio::test]
async fn a_prompt_without_a_variant_uses_the_providers_default() {
    let stack = Stack::start().await;
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
