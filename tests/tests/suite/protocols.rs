//! The same job over every provider's protocol, against a model server that refuses what the real one refuses.

use e2e::{
    Stack,
    turn::{assert_works, run_on},
};
use serde_json::{Value, json};
use testkit::model::ScriptedModel;

const PROVIDERS: [&str; 4] = ["chat", "claude", "responses", "gemini"];

/// Returns the model requests of a session.
fn requests(model: &ScriptedModel, session: &str) -> Vec<Value> {
    let of_session = |request: &model_script::journal::Request| {
        request.headers.get("x-session-id").is_some_and(|id| id == session)
    };
    model.journal.requests().into_iter().filter(of_session).map(|request| request.body).collect()
}

/// Returns the reasoning that a model of `provider` receives back, in the words of the protocol.
fn thoughts(provider: &str) -> &'static [&'static str] {
    match provider {
        "chat" => &[],
        "claude" => &["\"signature\""],
        "responses" => &["\"encrypted_content\""],
        _ => &["\"thoughtSignature\":\"c2NyaXB0ZWQ"],
    }
}

#[tokio::test]
async fn reasoning_and_tools_work_the_same_over_every_protocol() {
    let stack = Stack::start().await;
    let prompt = "
@reason I look around first.
@text I write a file.
@tool write {\"filePath\":\"/workspace/a.txt\",\"content\":\"Grüße\"}
@tools
@tool bash {\"command\":\"wc -c < a.txt\"}
@tool read {\"filePath\":\"/workspace/a.txt\"}
@usage input=100 output=20 reasoning=5 cache_read=0 cache_write=0
@text It says: {{last_tool_result}}";
    for provider in PROVIDERS {
        let session = stack.session().await;
        let (outcome, transcript) = run_on(&stack.api, &session, provider, prompt).await;
        assert_eq!(outcome, "done", "{provider}: {:?}", transcript.error());
        let talk = stack.api.conversation(&session).await;
        // Gemini's signature is stored as a reasoning part without text. A snapshot comes when it is there.
        let kinds = |parts: &[Value]| -> Vec<String> {
            let is_visible = |part: &&Value| {
                part["type"] != "snapshot" && (part["type"] != "reasoning" || part["text"] != "")
            };
            let visible_parts = parts.iter().filter(is_visible);
            visible_parts.map(|part| part["type"].as_str().unwrap().to_owned()).collect()
        };
        let steps: Vec<_> = talk[1..].iter().map(|(_, parts)| kinds(parts)).collect();
        let want = [
            &["step-start", "reasoning", "text", "tool", "step-finish", "patch"][..],
            &["step-start", "tool", "tool", "step-finish"],
            &["step-start", "text", "step-finish"],
        ];
        assert_eq!(steps, want, "{provider}");
        for part in talk[1].1.iter().filter(|part| part["type"] == "reasoning") {
            assert!(part["time"]["end"].is_number(), "{provider}: a thought ends when it ends: {part}");
        }
        let calls = stack.api.tool_calls(&session).await;
        let outcomes: Vec<_> = calls.iter().map(|call| (call.tool.as_str(), call.status.as_str())).collect();
        assert_eq!(
            outcomes,
            [("write", "completed"), ("bash", "completed"), ("read", "completed")],
            "{provider}"
        );
        let texts: Vec<_> = talk[3].1.iter().filter_map(|part| part["text"].as_str()).collect();
        assert_eq!(texts, ["It says: 1: Grüße"], "{provider}");
        assert_eq!(talk[2].0["finish"], "tool-calls", "{provider}");
        // Anthropic does not separate the reasoning from the rest of an answer.
        let (output, reasoning) = if provider == "claude" { (25, 0) } else { (20, 5) };
        let tokens = &talk[3].0["tokens"];
        let want = [json!(100), json!(output), json!(reasoning)];
        assert_eq!(["input", "output", "reasoning"].map(|key| tokens[key].clone()), want, "{provider}");
        let requests = requests(&stack.model, &session);
        assert_eq!(requests.len(), 3, "{provider}: nothing was refused");
        for thought in thoughts(provider) {
            assert!(requests[1].to_string().contains(thought), "{provider}: {thought} goes back");
        }
        assert_works(&stack.api, &session).await;
    }
}

#[tokio::test]
async fn a_session_changes_protocols_without_its_signatures() {
    let stack = Stack::start().await;
    for first in PROVIDERS {
        let session = stack.session().await;
        let prompt =
            "@reason hm\n@text I look.\n@tools\n@tool list {}\n@tool glob {\"pattern\":\"*\"}\n@text done";
        assert_eq!(run_on(&stack.api, &session, first, prompt).await.0, "done", "{first}");
        for next in PROVIDERS.into_iter().filter(|next| *next != first) {
            let (outcome, transcript) = run_on(&stack.api, &session, next, "@text still here").await;
            assert_eq!(outcome, "done", "{first} to {next}: {:?}", transcript.error());
            let request = requests(&stack.model, &session).pop().unwrap().to_string();
            assert!(request.contains("I look."), "{first} to {next}: the history came along");
            for thought in thoughts(first).iter().filter(|thought| !thoughts(next).contains(thought)) {
                assert!(!request.contains(thought), "{first} to {next}: {thought}");
            }
        }
        // Back at the first protocol, the model receives its own reasoning again.
        assert_eq!(run_on(&stack.api, &session, first, "@text home").await.0, "done", "{first}");
        let request = requests(&stack.model, &session).pop().unwrap().to_string();
        assert!(thoughts(first).iter().all(|thought| request.contains(thought)), "{first}");
    }
}

#[tokio::test]
async fn ten_thousand_one_byte_deltas_become_one_text() {
    let stack = Stack::without_sandbox().await;
    let text = "0123456789".repeat(1_000);
    for provider in PROVIDERS {
        let session = stack.session().await;
        let prompt = format!("@chunk 1\n@text {text}");
        let (outcome, transcript) = run_on(&stack.api, &session, provider, &prompt).await;
        assert_eq!(outcome, "done", "{provider}: {:?}", transcript.error());
        let talk = stack.api.conversation(&session).await;
        assert_eq!(talk[1].1[1]["text"], text, "{provider}");
        assert!(transcript.events.len() < 50, "{provider}: {} events", transcript.events.len());
    }
}

#[tokio::test]
async fn an_answer_without_calls_ends_the_turn_whatever_its_reason_is_called() {
    let stack = Stack::without_sandbox().await;
    for provider in PROVIDERS {
        for (prompt, want) in [
            ("@text a\n@finish stop", "stop"),
            ("@text a\n@finish tool-calls", "stop"),
            ("@text a\n@finish moon_phase", "other"),
        ] {
            // Responses has no such words: it reports a whole answer or one that was cut.
            if provider == "responses" && want == "other" {
                continue;
            }
            let session = stack.session().await;
            let (outcome, transcript) = run_on(&stack.api, &session, provider, prompt).await;
            assert_eq!(outcome, "done", "{provider}: {:?}", transcript.error());
            assert_eq!(stack.api.conversation(&session).await[1].0["finish"], want, "{provider} {prompt}");
            assert_eq!(requests(&stack.model, &session).len(), 1, "{provider}: there is no further request");
            assert_works(&stack.api, &session).await;
        }
    }
}
