//! Requests that a provider refuses because of their content, and answers without content: the session goes on, or says why not.

use e2e::{
    Stack,
    turn::{bash, run, run_on, run_request, task_for},
};
use rpc::v1::{self, prompt_part::Kind};
use serde_json::{Value, json};

/// An image of one pixel.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A prompt with a picture for a model that reads pictures, whose provider refuses this one.
async fn prompt_with_picture(stack: &Stack, session: &str, provider: &str, text: &str) {
    let (outcome, transcript) = run_request(&stack.api, session, |prompt| {
        prompt.text = text.to_owned();
        prompt.model = Some(v1::ModelRef { provider_id: provider.to_owned(), model_id: "eyes".to_owned() });
        let url = format!("data:image/png;base64,{DOT}");
        let (mime, filename) = ("image/png".to_owned(), "shot.png".to_owned());
        let file = v1::FilePart { mime, filename, url, source_json: String::new() };
        prompt.parts = vec![Kind::File(file).into()];
    })
    .await;
    assert_eq!(outcome, "done", "{provider}: {:?}", transcript.error());
}

fn requests(stack: &Stack, session: &str) -> Vec<String> {
    let requests = stack.model.journal.requests().into_iter();
    let is_its = |request: &model_script::journal::Request| {
        request.headers.get("x-session-id").is_some_and(|id| id == session)
    };
    requests.filter(is_its).map(|request| request.body.to_string()).collect()
}

#[tokio::test]
async fn a_refused_picture_leaves_later_requests_and_the_session_goes_on() {
    let stack = Stack::start().await;
    for provider in ["chat", "claude", "responses", "gemini"] {
        let session = stack.session().await;
        prompt_with_picture(&stack, &session, provider, "@blind\n@text I cannot see it").await;
        let bodies = || requests(&stack, &session);
        let sent = bodies();
        let has_picture: Vec<bool> = sent.iter().map(|body| body.contains(DOT)).collect();
        assert_eq!(has_picture, [true, false], "{provider}: it is repeated once, without the picture");
        let told = "Left out because the provider of the model refused it; tell the person if it matters: \\\"shot.png\\\" (image/png)";
        assert!(sent[1].contains(told), "{provider}: {}", sent[1]);
        let talk = stack.api.conversation(&session).await;
        let parts = talk.iter().flat_map(|(_, parts)| parts);
        let retries: Vec<&Value> = parts.filter(|part| part["type"] == "retry").collect();
        assert_eq!(retries.len(), 1, "{provider}");
        let data = &retries[0]["error"]["data"];
        assert_eq!(
            (&retries[0]["error"]["name"], &data["ref"]),
            (&json!("APIError"), &json!("media_refused"))
        );
        assert!(data["message"].as_str().unwrap().contains("Could not process image"), "{data}");

        // A later turn, and a worker that knows only what is stored, do not send it again.
        let (outcome, _) = run_request(&stack.api, &session, |prompt| {
            prompt.text = "@blind\n@text still here".to_owned();
            prompt.model =
                Some(v1::ModelRef { provider_id: provider.to_owned(), model_id: "eyes".to_owned() });
        })
        .await;
        assert_eq!((outcome.as_str(), bodies().len()), ("done", 3), "{provider}");
        assert!(!bodies()[2].contains(DOT), "{provider}");
        // A new picture gets its own attempt.
        prompt_with_picture(&stack, &session, provider, "@text a dot").await;
        let sent = bodies();
        assert_eq!((sent.len(), sent[3].matches(DOT).count()), (4, 1), "{provider}");
    }
}

#[tokio::test]
async fn a_refused_picture_of_a_tool_leaves_later_requests() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let read = json!({"filePath": "/workspace/dot.png"});
    let dot: String = DOT.chars().rev().collect();
    let text = format!(
        "{}\n@tool read {read}\n@blind\n@text seen",
        bash(&format!("echo {dot} | rev | base64 -d > dot.png"))
    );
    let (outcome, transcript) = run_request(&stack.api, &session, |prompt| {
        prompt.text = text;
        prompt.model = Some(v1::ModelRef { provider_id: "claude".to_owned(), model_id: "eyes".to_owned() });
    })
    .await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let sent = requests(&stack, &session);
    assert!(sent[sent.len() - 2].contains(DOT) && !sent[sent.len() - 1].contains(DOT));
}

#[tokio::test]
async fn an_empty_answer_is_repeated_once_and_then_fails() {
    let stack = Stack::start().await;
    for provider in ["chat", "claude"] {
        let session = stack.session().await;
        let (outcome, transcript) = run_on(&stack.api, &session, provider, "@finish stop").await;
        assert_eq!(outcome, "failed", "{provider}");
        assert_eq!(transcript.error().unwrap()["data"]["ref"], "answer_empty", "{provider}");
        assert_eq!(requests(&stack, &session).len(), 2, "{provider}");
        let (outcome, _) = run_on(&stack.api, &session, provider, "@text on").await;
        assert_eq!(outcome, "done", "{provider}: the session goes on");
    }
}

#[tokio::test]
async fn a_model_may_have_nothing_to_say_about_the_answers_of_its_calls() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let (outcome, _) = run(&stack.api, &session, &format!("{}\n@step\n@finish stop", bash("true"))).await;
    assert_eq!(outcome, "done");
    let (outcome, _) = run(&stack.api, &session, "@usage output=40\n@finish stop").await;
    assert_eq!(outcome, "done", "the model wrote something that we do not show");
}

#[tokio::test]
async fn a_subtask_with_an_empty_answer_fails_for_its_parent() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let prompt = format!("{}\n@text over", task_for("general", "@finish stop"));
    let (outcome, _) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls[0].status, "error", "{calls:?}");
    assert!(calls[0].result.contains("without a text or a tool call"), "{calls:?}");
}
