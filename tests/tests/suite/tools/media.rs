//! Images and documents in tool results: sent to models that accept them, replaced by a text for others.

use super::check;
use e2e::{
    Stack,
    turn::{run, run_request},
};
use rpc::v1;
use serde_json::{Value, json};

/// An image of one pixel.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Creates an image, a document, an image that is too large, and a file of neither kind.
fn files() -> Value {
    // The base64 text is reversed, so that a request contains the image only if a tool attached it.
    let dot: String = DOT.chars().rev().collect();
    let commands = format!(
        "echo {dot} | rev | base64 -d > dot.png; cp dot.png dot.txt; echo '%PDF-1.4 1 0 obj' > plain.pdf; \
         cp dot.png large.png; truncate -s 4M large.png; head -c 100 /dev/zero > zeros.png"
    );
    json!({"command": commands})
}

/// Returns the last model request.
fn last_request(stack: &Stack) -> String {
    stack.model.journal.requests().pop().unwrap().body.to_string()
}

/// Returns the attachments of the newest tool call.
async fn attachments(stack: &Stack, session: &str) -> Vec<Value> {
    let talk = stack.api.conversation(session).await;
    let mut parts = talk.iter().flat_map(|(_, parts)| parts);
    let tool = parts.rfind(|part| part["type"] == "tool").unwrap();
    tool["state"]["attachments"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn an_image_reaches_models_that_accept_it_and_others_get_a_text() {
    let stack = Stack::start().await;
    let mut images = vec![];
    for provider in ["chat", "claude", "responses", "gemini"] {
        for (model, sees) in [("eyes", true), ("demo", false)] {
            let session = stack.session().await;
            let (outcome, transcript) = run_request(&stack.api, &session, |prompt| {
                let read = json!({"filePath": "/workspace/dot.txt"});
                prompt.text = format!("@tool bash {}\n@tool read {read}\n@text over", files());
                let (provider_id, model_id) = (provider.to_owned(), model.to_owned());
                prompt.model = Some(v1::ModelRef { provider_id, model_id });
            })
            .await;
            assert_eq!(outcome, "done", "{provider}/{model}: {:?}", transcript.error());
            let request = last_request(&stack);
            assert_eq!(request.contains(DOT), sees, "{provider}/{model}: {request}");
            let words = "Cannot read \\\"dot.txt\\\" (this model does not support image/png input)";
            assert_eq!(request.contains(words), !sees, "{provider}/{model}: {request}");
            images.extend(attachments(&stack, &session).await);
        }
    }
    assert_eq!(images.len(), 8);
    let file = &images[0];
    assert_eq!(
        (&file["type"], &file["mime"], &file["filename"], &file["url"]),
        (
            &json!("file"),
            &json!("image/png"),
            &json!("dot.txt"),
            &json!(format!("data:image/png;base64,{DOT}"))
        )
    );
    assert!(file["id"].as_str().unwrap().starts_with("prt_"), "{file}");
}

#[tokio::test]
async fn an_unsupported_file_is_refused_with_the_reason() {
    let stack = Stack::start().await;
    let (api, session) = (&stack.api, stack.session().await);
    check(api, &session, ("bash", files()), ("completed", &[])).await;
    let read = |name: &str| ("read", json!({"filePath": format!("/workspace/{name}")}));
    check(api, &session, read("plain.pdf"), ("completed", &["PDF read successfully"])).await;
    assert_eq!(attachments(&stack, &session).await[0]["mime"], "application/pdf");
    let most = domain::limits::TOOL_MEDIA_BYTES_MAX.to_string();
    check(api, &session, read("large.png"), ("error", &["4194304 bytes", &most])).await;
    check(api, &session, read("zeros.png"), ("error", &["neither text nor a picture"])).await;
    // The images of a batch are those of its calls.
    let one = json!({"tool": "read", "parameters": {"filePath": "/workspace/dot.png"}});
    let calls = json!({"tool_calls": vec![one; domain::limits::STEP_MEDIA_MAX]});
    check(api, &session, ("batch", calls), ("completed", &["Image read successfully"])).await;
    assert_eq!(attachments(&stack, &session).await.len(), domain::limits::STEP_MEDIA_MAX);
    // Parallel calls share the limit of one call.
    let read =
        |offset| format!("@tool read {}\n", json!({"filePath": "/workspace/dot.png", "offset": offset}));
    let reads: String = (0..=domain::limits::STEP_MEDIA_MAX).map(read).collect();
    let side_by_side = format!("@tools\n{reads}@text over");
    assert_eq!(run(api, &session, &side_by_side).await.0, "done");
    let calls = api.tool_calls(&session).await;
    let newest = &calls[calls.len() - domain::limits::STEP_MEDIA_MAX - 1..];
    let refused: Vec<_> = newest.iter().filter(|call| call.status == "error").collect();
    assert!(refused.len() == 1 && refused[0].result.contains("more than one step can return"), "{refused:?}");
    let (outcome, transcript) = run(api, &session, "@text still here").await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
}
