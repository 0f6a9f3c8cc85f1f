//! Providers that refuse, break off, or send invalid answers.

use e2e::{
    Options, Stack,
    turn::{Transcript, Watch, assert_works, run, run_on},
};
use serde_json::Value;
use std::time::{Duration, Instant};
use testkit::model::ScriptedModel;

const PROVIDERS: [&str; 4] = ["chat", "claude", "responses", "gemini"];

/// Returns the model requests of a session.
fn requests(model: &ScriptedModel, session: &str) -> Vec<Value> {
    let of_session = |request: &model_script::journal::Request| {
        request.headers.get("x-session-id").is_some_and(|id| id == session)
    };
    model.journal.requests().into_iter().filter(of_session).map(|request| request.body).collect()
}

/// Returns the announced failed attempts.
fn retries(transcript: &Transcript) -> Vec<u64> {
    let statuses = transcript.events.iter().filter(|event| event.kind == "session.status");
    let retry = |event: &e2e::turn::Event| {
        let status = &event.properties["status"];
        (status["type"] == "retry").then(|| status["attempt"].as_u64().unwrap())
    };
    statuses.filter_map(retry).collect()
}

/// Returns the kinds of the parts of the newest message.
async fn newest_parts(stack: &Stack, session: &str) -> Vec<Value> {
    stack.api.conversation(session).await.pop().unwrap().1
}

fn kinds(parts: &[Value]) -> Vec<&str> {
    parts.iter().map(|part| part["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_refusal_ends_the_turn_after_one_request() {
    let stack = Stack::without_sandbox().await;
    let cases = [
        ("@status 401", "ProviderAuthError", Some(401)),
        ("@status 403", "ProviderAuthError", Some(403)),
        ("@status 404", "APIError", Some(404)),
        ("@status 400", "APIError", Some(400)),
        // The provider asks for a longer pause than the limit, so the turn ends at once.
        ("@status 429 retry-after=7200", "APIError", Some(429)),
        ("@html", "APIError", None),
        ("@garbage 1\n@text This never comes to its end.", "APIError", None),
    ];
    let check = async |provider: &str, (prompt, name, status): (&str, &str, Option<u64>)| {
        let session = stack.session().await;
        let (outcome, transcript) = run_on(&stack.api, &session, provider, prompt).await;
        let error = transcript.error().expect("an error that is shown");
        assert_eq!(
            (outcome.as_str(), error["name"].as_str().unwrap()),
            ("failed", name),
            "{provider} {prompt}"
        );
        assert_eq!(error["data"]["statusCode"].as_u64(), status, "{provider} {prompt}: {error}");
        assert_eq!(error["data"]["providerID"], provider, "{prompt}");
        assert_eq!(requests(&stack.model, &session).len(), 1, "{provider} {prompt}: no second attempt");
        let message = error["data"]["message"].as_str().unwrap();
        assert_eq!(stack.api.get(&session).await.last_error, message);
        if prompt == "@html" {
            assert!(message.contains("HTML page") && !message.contains("<html"), "{message}");
        }
        assert_works(&stack.api, &session).await;
    };
    // The turns run in parallel, because without Redis and NATS each waits for the sweep.
    let both = PROVIDERS.into_iter().flat_map(|provider| cases.map(|case| (provider, case)));
    futures::future::join_all(both.map(|(provider, case)| check(provider, case))).await;
}

#[tokio::test]
async fn a_call_to_a_busy_provider_is_retried_and_answered_once() {
    let stack = Stack::without_sandbox().await;
    for provider in PROVIDERS {
        for (fault, failed) in [
            ("@status 429 retry-after-ms=50 times=2", vec![1, 2]),
            ("@status 500 retry-after-ms=50 times=1", vec![1]),
            ("@status 529 retry-after-ms=50 times=1", vec![1]),
            ("@status 503 retry-after-ms=50 times=3", vec![1, 2, 3]),
        ] {
            let session = stack.session().await;
            let prompt = format!("{fault}\n@text Here it is.");
            let (outcome, transcript) = run_on(&stack.api, &session, provider, &prompt).await;
            assert_eq!(
                (outcome.as_str(), retries(&transcript)),
                ("done", failed.clone()),
                "{provider} {fault}"
            );
            assert_eq!(requests(&stack.model, &session).len(), failed.len() + 1, "{provider} {fault}");
            let parts = newest_parts(&stack, &session).await;
            let mut want = vec!["retry"; failed.len()];
            want.extend(["step-start", "text", "step-finish"]);
            assert_eq!(kinds(&parts), want, "{provider} {fault}: nothing is doubled");
            let attempts: Vec<_> = parts.iter().filter_map(|part| part["attempt"].as_u64()).collect();
            assert_eq!(attempts, failed, "the failed attempts stay");
            assert_eq!(stack.api.conversation(&session).await.len(), 2, "one answer");
            assert!(transcript.error().is_none(), "a successful turn shows no error");
        }
    }
}

#[tokio::test]
async fn a_provider_that_stays_busy_ends_the_turn() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let (outcome, transcript) = run(&stack.api, &session, "@status 503 retry-after-ms=10").await;
    let tries = 1 + domain::limits::MODEL_RETRIES_MAX as usize;
    assert_eq!((outcome.as_str(), requests(&stack.model, &session).len()), ("failed", tries));
    assert_eq!(retries(&transcript), (1..tries as u64).collect::<Vec<_>>());
    assert_eq!(transcript.error().unwrap()["data"]["statusCode"], 503);
    assert_works(&stack.api, &session).await;
}

#[tokio::test]
async fn an_interrupted_answer_is_restarted() {
    let stack = Stack::without_sandbox().await;
    let words = "one two three four five";
    let check = async |provider: &str, fault: &str| {
        let session = stack.session().await;
        let prompt = format!("{fault} times=1\n@chunk 4\n@text {words}");
        let (outcome, transcript) = run_on(&stack.api, &session, provider, &prompt).await;
        assert_eq!((outcome.as_str(), retries(&transcript)), ("done", vec![1]), "{provider} {fault}");
        let parts = newest_parts(&stack, &session).await;
        assert_eq!(kinds(&parts), ["retry", "step-start", "text", "step-finish"], "{provider} {fault}");
        assert_eq!(parts[2]["text"], words);
        let removed = transcript.events.iter().filter(|event| event.kind == "message.part.removed");
        let removed: Vec<_> = removed.map(|event| event.properties["partID"].clone()).collect();
        let begun = transcript.events.iter().filter(|event| event.kind == "message.part.updated");
        let cut = |part: &&Value| part["type"] == "text" && part["messageID"] == parts[0]["messageID"];
        let text = begun.map(|event| &event.properties["part"]).find(cut).unwrap();
        assert!(
            removed.contains(&text["id"]),
            "{provider} {fault}: the cut text is removed from every screen"
        );
        assert_ne!(parts[2]["id"], text["id"]);
        assert_works(&stack.api, &session).await;
    };
    // The turns run in parallel, because each waits for the first back-off.
    tokio::join!(
        check("chat", "@cut 2"),
        check("claude", "@cut 2"),
        check("chat", "@cut 2 clean"),
        check("claude", "@cut 2 clean"),
        check("responses", "@cut 2"),
        check("responses", "@cut 2 clean"),
        check("gemini", "@cut 2"),
        check("gemini", "@cut 2 clean"),
    );
}

#[tokio::test]
async fn an_incomplete_tool_call_does_not_run() {
    let stack = Stack::start().await;
    let check = async |provider: &str, fault: &str, outcome: &str, runs: &str| {
        let session = stack.session().await;
        let prompt = format!("@chunk 4\n{fault}\n@tool bash {{\"command\":\"echo ran >> runs\"}}");
        let (ended, transcript) = run_on(&stack.api, &session, provider, &prompt).await;
        assert_eq!(ended, outcome, "{provider} {fault}: {:?}", transcript.error());
        let look = "@tool bash {\"command\":\"cat runs 2>/dev/null | wc -l\"}";
        assert_eq!(run(&stack.api, &session, look).await.0, "done");
        let calls = stack.api.tool_calls(&session).await;
        assert_eq!(calls.last().unwrap().result.trim(), runs, "{provider} {fault}");
        calls
    };
    let (_, _, cut, length, garbage) = tokio::join!(
        check("chat", "@cut 5 times=1", "done", "1"),
        check("claude", "@cut 5 times=1", "done", "1"),
        check("claude", "@cut 5 clean times=1", "done", "1"),
        async {
            let mut calls = check("chat", "@finish length", "done", "0").await;
            calls.extend(check("claude", "@finish length", "done", "0").await);
            calls
        },
        async {
            let mut calls = check("chat", "@garbage 5", "failed", "0").await;
            calls.extend(check("claude", "@garbage 5", "failed", "0").await);
            calls
        },
    );
    tokio::join!(
        check("responses", "@cut 5 times=1", "done", "1"),
        check("responses", "@finish length", "done", "0"),
        check("gemini", "@cut 5 times=1", "done", "1"),
        check("gemini", "@finish length", "done", "0"),
    );
    assert_eq!(cut.iter().filter(|call| call.status == "completed").count(), 2, "{cut:?}");
    for call in [&length[0], &length[2]] {
        assert_eq!((call.tool.as_str(), call.status.as_str()), ("bash", "error"));
        assert_eq!(call.input["command"], "echo ran >> runs", "the arguments are kept");
        assert!(call.result.contains("cut off before it was complete. It was not executed"), "{call:?}");
    }
    for call in [&garbage[0], &garbage[2]] {
        assert_ne!(call.status, "completed", "{call:?}");
        assert_ne!(call.status, "running", "{call:?}");
        assert_ne!(call.status, "pending", "no turn waits for it any more: {call:?}");
    }
}

#[tokio::test]
async fn a_call_that_was_cut_off_keeps_its_name_and_arguments() {
    let stack = Stack::start().await;
    for provider in PROVIDERS {
        let session = stack.session().await;
        let prompt = "@finish length\n@tool teleport {\"to\":\"moon\"}\n@text I see.";
        let (outcome, transcript) = run_on(&stack.api, &session, provider, prompt).await;
        assert_eq!(outcome, "done", "{provider}: {:?}", transcript.error());
        let call = stack.api.tool_calls(&session).await.remove(0);
        assert_eq!((call.tool.as_str(), call.status.as_str()), ("invalid", "error"), "{provider}");
        assert_eq!(
            (&call.input["tool"], &call.input["arguments"]["to"]),
            (&"teleport".into(), &"moon".into())
        );
        let request = requests(&stack.model, &session)[1].to_string();
        assert!(request.contains("teleport") && request.contains("moon"), "{provider}: {request}");
    }
}

#[tokio::test]
async fn the_model_learns_of_its_mistakes_and_the_turn_continues() {
    let stack = Stack::start().await;
    let prompt = r#"
@tools
@tool bash [1]
@tool bash {"cmd":"true"}
@tool teleport {"to":"moon"}
@tool BASH {"command":"echo any case"}
@tool read {"filePath":["a","b"]}
@tool edit {"filePath":"/workspace/a","oldString":"a"}
@text {{last_tool_result}}"#;
    let want = [
        ("bash", "error", "not a JSON object"),
        ("bash", "error", "do not fit the tool's schema"),
        ("invalid", "completed", "There is no tool \"teleport\". The tools are: apply_patch, bash,"),
        ("bash", "completed", "any case"),
        ("read", "error", "do not fit the tool's schema"),
        ("edit", "error", "newString"),
    ];
    for provider in PROVIDERS {
        let session = stack.session().await;
        let (outcome, transcript) = run_on(&stack.api, &session, provider, prompt).await;
        assert_eq!(outcome, "done", "{provider}: {:?}", transcript.error());
        let calls = stack.api.tool_calls(&session).await;
        assert_eq!(calls.len(), want.len(), "{provider}: {calls:?}");
        let requests = requests(&stack.model, &session);
        assert_eq!(requests.len(), 2, "{provider}");
        let request = requests[1].to_string();
        for (call, (tool, status, text)) in calls.iter().zip(want) {
            assert_eq!((call.tool.as_str(), call.status.as_str()), (tool, status), "{provider}: {call:?}");
            assert!(call.result.contains(text), "{provider}: {call:?}");
            let quoted = serde_json::to_string(call.result.trim_end()).unwrap();
            assert!(
                request.contains(quoted.trim_matches('"')),
                "{provider}: the model receives {quoted} in {request}"
            );
        }
        assert_works(&stack.api, &session).await;
    }
}

/// Zero bytes wherever a model can send them. Postgres accepts none.
const ZEROS: &str = r#"
[[rule]]
match = "zero"
[[rule.step]]
reasoning = "thought\u0000"
text = "said\u0000"
tool = [
    { name = "no\u0000tool", input = { a = "b" } },
    { name = "bash", input = { "comm\u0000and" = "true" } },
    { name = "bash", input = { command = "printf 'a\\0b' | tee file" } },
    { name = "write", input = { filePath = "/workspace/new\u0000", content = "c\u0000" } },
]
[[rule.step]]
tool = [{ name = "edit", input = { filePath = "/workspace/file", oldString = "a", newString = "c" } }]
[[rule.step]]
text = "over"
"#;

#[tokio::test]
async fn zero_bytes_of_a_model_are_removed_before_storing() {
    let stack = Stack::with(Options { script: ZEROS.to_owned(), ..Options::default() }).await;
    for provider in PROVIDERS {
        let session = stack.session().await;
        let (outcome, transcript) = run_on(&stack.api, &session, provider, "say zero").await;
        assert_eq!(outcome, "done", "{provider}: {:?}", transcript.error());
        let calls = stack.api.tool_calls(&session).await;
        let ended: Vec<_> = calls.iter().map(|call| (call.tool.as_str(), call.status.as_str())).collect();
        let want =
            [("invalid", "completed"), ("bash", "error"), ("bash", "completed"), ("write", "completed")];
        assert_eq!(ended[..4], want, "{provider}");
        assert_eq!(ended[4..], [("edit", "completed")], "{provider}: {calls:?}");
        assert!(calls[0].result.contains("There is no tool \"no\u{fffd}tool\""), "{provider}: {calls:?}");
        assert_eq!(calls[2].result, "a\u{fffd}b", "{provider}");
        let talk = stack.api.conversation(&session).await;
        assert!(talk[1].1.iter().any(|part| part["text"] == "said\u{fffd}"), "{provider}: {talk:?}");
        assert_eq!(transcript.events.iter().filter(|event| event.kind == "flotilla.loop.started").count(), 1);
        assert_works(&stack.api, &session).await;
    }
}

#[tokio::test]
async fn a_truncated_answer_is_an_error() {
    let stack = Stack::without_sandbox().await;
    for provider in PROVIDERS {
        for (finish, name) in
            [("length", "MessageOutputLengthError"), ("content-filter", "ContentFilterError")]
        {
            let session = stack.session().await;
            let prompt = format!("@text The beginning of\n@finish {finish}");
            let (outcome, transcript) = run_on(&stack.api, &session, provider, &prompt).await;
            let error = transcript.error().map(|error| error["name"].clone());
            assert_eq!((outcome.as_str(), error), ("failed", Some(name.into())), "{provider} {finish}");
            let parts = newest_parts(&stack, &session).await;
            assert!(parts.iter().any(|part| part["text"] == "The beginning of"), "the received text is kept");
            assert_eq!(requests(&stack.model, &session).len(), 1);
            assert_works(&stack.api, &session).await;
        }
    }
}

#[tokio::test]
async fn a_repeated_identical_call_needs_permission() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let again = "@tool bash {\"command\":\"echo again\"}\n".repeat(5);
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &again).await.unwrap();
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    assert_eq!(stack.api.tool_calls(&session).await.len(), domain::limits::DOOM_LOOP_CALLS);
    assert_eq!(requests(&stack.model, &session).len(), domain::limits::DOOM_LOOP_CALLS);
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    assert_works(&stack.api, &session).await;
    let counting = "@tool bash {\"command\":\"echo x >> n; wc -l < n\"}\n".repeat(5);
    let (outcome, _) = run(&stack.api, &session, &counting).await;
    assert_eq!(outcome, "done", "the same call with different results is not a loop");
}

#[tokio::test]
async fn an_abort_ends_a_wait_for_the_provider_at_once() {
    let stack = Stack::without_sandbox().await;
    for (prompt, waits_for) in [
        ("@status 429 retry-after-ms=20000\n@text never", "session.status"),
        ("@stall\n@text never", "message.part.updated"),
        ("@stall 1\n@chunk 4\n@text never whole", "message.part.updated"),
    ] {
        let session = stack.session().await;
        let mut watch = Watch::start(&stack.api, &session).await;
        let request_count = stack.model.journal.requests().len();
        stack.api.prompt(&session, prompt).await.unwrap();
        let waiting = watch.until(|event| match waits_for {
            "session.status" => event.properties["status"]["type"] == "retry",
            kind => event.kind == kind && event.properties["part"]["type"] == "step-start",
        });
        waiting.await;
        stack.model.journal.wait_for(request_count + 1).await;
        let asked_at = Instant::now();
        assert!(stack.api.abort(&session).await.unwrap(), "a turn was active");
        assert_eq!(watch.until_idle().await, "aborted", "{prompt}");
        assert!(asked_at.elapsed() < Duration::from_secs(2), "{prompt}: {:?}", asked_at.elapsed());
        assert_eq!(watch.transcript.error().unwrap()["name"], "MessageAbortedError");
        watch.transcript.assert_gap_free();
        assert_works(&stack.api, &session).await;
    }
    stack.model.journal.wait_until_idle().await;
}
