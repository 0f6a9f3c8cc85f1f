//! Long conversations: summaries that replace earlier messages, and old outputs that are pruned.

use e2e::{
    Stack,
    turn::{Transcript, Watch, bash, run, run_request},
};
use rpc::v1::{self, prompt_part::Kind};
use serde_json::{Value, json};

const FULL: &str = "@usage input=90000 cache_read=5000\n@text big";

/// Shows the role, the agent and the special marks of each message of a conversation.
fn shape(talk: &[(Value, Vec<Value>)]) -> Vec<String> {
    let line = |(info, parts): &(Value, Vec<Value>)| {
        let part = |kind: &str| parts.iter().find(|part| part["type"] == kind);
        let role = info["role"].as_str().unwrap();
        let text = part("text").and_then(|part| part["text"].as_str()).unwrap_or_default();
        let text = text.lines().next().unwrap_or_default();
        match part("compaction") {
            Some(wish) => format!("wish overflow={}", wish["overflow"]),
            None if info["summary"] == true => format!("summary {}", info["error"]["name"]),
            None if !info["error"].is_null() => format!("{role} {}", info["error"]["name"]),
            None => format!("{role} {text}"),
        }
    };
    talk.iter().map(line).collect()
}

fn compacted(transcript: &Transcript) -> usize {
    transcript.kinds().into_iter().filter(|kind| *kind == "session.compacted").count()
}

#[tokio::test]
async fn a_full_context_is_summarised_and_the_turn_continues() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run(&stack.api, &session, "@text first answer").await;
    let (outcome, transcript) = run(&stack.api, &session, FULL).await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("done", 1), "{:?}", transcript.error());
    let talk = stack.api.conversation(&session).await;
    let go_on = "user Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed.";
    assert_eq!(
        shape(&talk)[..4],
        [
            "user @text first answer",
            "assistant first answer",
            "user @usage input=90000 cache_read=5000",
            "assistant big"
        ]
    );
    assert_eq!(shape(&talk)[4..7], ["wish overflow=false", "summary null", go_on]);
    assert_eq!(
        (talk.len(), &talk[5].0["agent"], &talk[5].0["mode"]),
        (8, &json!("compaction"), &json!("compaction"))
    );
    assert_eq!(talk[6].1[0]["metadata"]["compaction_continue"], true);

    let requests = stack.model.journal.requests();
    let question = &requests[2].body;
    assert!(question["tools"].is_null(), "the summary agent has no tools");
    let messages = question["messages"].to_string();
    assert!(messages.contains("[Agent]: first answer\\n[Person]: @usage"), "{messages}");
    let later = requests[3].body["messages"].to_string();
    assert!(later.contains("What did we do so far?") && later.contains("A scripted summary."), "{later}");
    assert!(!later.contains("first answer"), "the summary takes its place: {later}");

    // A later summary is based on the earlier one.
    let (outcome, transcript) = run(&stack.api, &session, FULL).await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("done", 2));
    let messages = stack.model.journal.requests()[5].body["messages"].to_string();
    assert!(
        messages.contains("<earlier-summary>\\n## Objective\\nA scripted summary.\\n</earlier-summary>"),
        "{messages}"
    );
}

#[tokio::test]
async fn a_request_that_is_too_long_is_repeated_after_a_summary() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run(&stack.api, &session, "@text first answer").await;
    let (outcome, transcript) = run(&stack.api, &session, "@status 413 times=1\n@text recovered").await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("done", 1), "{:?}", transcript.error());
    assert_eq!(transcript.error().unwrap()["name"], "ContextOverflowError", "the first prompt is still sent");
    let prompt = "user @status 413 times=1";
    let want = [
        prompt,
        "assistant \"ContextOverflowError\"",
        "wish overflow=true",
        "summary null",
        prompt,
        "assistant recovered",
    ];
    assert_eq!(shape(&stack.api.conversation(&session).await)[2..], want);
    let messages = stack.model.journal.requests()[2].body["messages"].to_string();
    assert!(messages.contains("first answer") && !messages.contains("recovered"), "{messages}");

    // If a summary does not help, the turn fails once.
    let (outcome, transcript) = run(&stack.api, &session, "@status 413").await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("failed", 2));
    assert_eq!(run(&stack.api, &session, "@text still here").await.0, "done");
}

#[tokio::test]
async fn a_summary_request_that_is_too_long_ends_the_turn() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let prompt = format!("{FULL}\n@summary @status 413 times=1");
    let (outcome, transcript) = run(&stack.api, &session, &prompt).await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("failed", 0));
    assert_eq!(transcript.error().unwrap()["name"], "ContextOverflowError");
    assert_eq!(
        shape(&stack.api.conversation(&session).await)[1..],
        ["assistant big", "wish overflow=false", "summary \"ContextOverflowError\""]
    );
    // The next prompt finds the context full and causes another summary.
    let (outcome, transcript) = run(&stack.api, &session, "@text after all").await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("done", 1), "{:?}", transcript.error());
    assert_eq!(shape(&stack.api.conversation(&session).await)[5..7], ["wish overflow=false", "summary null"]);
}

#[tokio::test]
async fn a_summary_calls_no_tools() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let call = format!("@summary @text sums up\n@summary {}", bash("touch /workspace/never"));
    let (outcome, transcript) = run(&stack.api, &session, &format!("{FULL}\n{call}")).await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("done", 1), "{:?}", transcript.error());
    let call = &stack.api.tool_calls(&session).await[0];
    assert!(call.status == "error" && call.result.contains("Not executed"), "{call:?}");
}

#[tokio::test]
async fn a_summary_is_repeated_after_a_crash_of_its_worker() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let prompt = format!("{FULL}\n@summary @stall times=1");
    stack.api.prompt(&session, &prompt).await.unwrap();
    watch.until(|event| event.properties["info"]["summary"] == true).await;
    stack.model.journal.wait_for(2).await;
    stack.add_worker().await;
    stack.crash_worker(0);
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    assert_eq!(compacted(&watch.transcript), 1);
    let talk = stack.api.conversation(&session).await;
    assert_eq!(shape(&talk)[2..4], ["wish overflow=false", "summary null"]);
    assert_eq!(talk.len(), 6, "one request, one summary, one continuation");
}

#[tokio::test]
async fn a_person_can_request_a_summary() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run(&stack.api, &session, "@text first answer").await;
    let (outcome, transcript) = run_request(&stack.api, &session, |prompt| {
        prompt.parts = vec![Kind::Compaction(v1::CompactionPart {}).into()];
    })
    .await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("done", 1), "{:?}", transcript.error());
    assert_eq!(stack.api.conversation(&session).await.len(), 4, "no turn follows automatically");
    run(&stack.api, &session, "@text more").await;
    let later = stack.model.journal.requests()[2].body["messages"].to_string();
    assert!(later.contains("A scripted summary.") && !later.contains("first answer"), "{later}");
}

#[tokio::test]
async fn old_outputs_are_pruned_from_requests_but_stay_readable() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let long = |number| bash(&format!("head -c 49000 /dev/zero | tr '\\0' x; echo {number}"));
    let calls: Vec<_> = (0..6).map(long).collect();
    run(&stack.api, &session, &format!("@tools\n{}\n@text over", calls.join("\n"))).await;
    run(&stack.api, &session, "@text two").await;
    let pruned = async || {
        let talk = stack.api.conversation(&session).await;
        let parts = talk.into_iter().flat_map(|(_, parts)| parts);
        let compacted = parts.filter(|part| part["state"]["time"]["compacted"].is_number());
        compacted.collect::<Vec<_>>()
    };
    assert_eq!(pruned().await.len(), 0, "the last two turns are kept");
    run(&stack.api, &session, "@text three").await;
    let parts = pruned().await;
    assert_eq!(parts.len(), 3, "the newest outputs are kept");
    assert!(parts.iter().all(|part| part["state"]["output"].as_str().unwrap().len() > 40_000));
    run(&stack.api, &session, "@text four").await;
    let messages = stack.model.journal.requests().last().unwrap().body["messages"].to_string();
    assert_eq!(messages.matches("[Old tool result content cleared]").count(), 3);
}

#[tokio::test]
async fn a_repository_can_disable_summaries() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[("opencode.json", r#"{"compaction": {"auto": false}}"#)]);
    let session = stack.session_on(&repository).await;
    run(&stack.api, &session, "@text first answer").await;
    let (outcome, transcript) = run(&stack.api, &session, FULL).await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("done", 0), "{:?}", transcript.error());
    let (outcome, transcript) = run(&stack.api, &session, "@status 413\n@text never").await;
    let error = transcript.error().unwrap()["name"].as_str().unwrap().to_owned();
    assert_eq!(
        (outcome.as_str(), error.as_str(), compacted(&transcript)),
        ("failed", "ContextOverflowError", 0)
    );
    let shapes = shape(&stack.api.conversation(&session).await);
    assert!(!shapes.iter().any(|line| line.starts_with("wish")), "{shapes:?}");
}

#[tokio::test]
async fn a_repository_configures_the_agent_and_prompt_of_summaries() {
    let stack = Stack::start().await;
    let agent = r#"{"agent": {"compaction": {"model": "claude/demo", "prompt": "You sum up in verse."}}}"#;
    let session = stack.session_on(&testkit::git::repository(&[("opencode.json", agent)])).await;
    run(&stack.api, &session, "@text first answer").await;
    let (outcome, transcript) = run(&stack.api, &session, FULL).await;
    assert_eq!((outcome.as_str(), compacted(&transcript)), ("done", 1), "{:?}", transcript.error());
    let summed: Vec<_> =
        stack.model.journal.requests().into_iter().filter(|request| request.path == "/v1/messages").collect();
    assert_eq!(summed.len(), 1, "only the summary");
    assert!(summed[0].body["system"].to_string().contains("You sum up in verse."), "{}", summed[0].body);
    let talk = stack.api.conversation(&session).await;
    let summary = talk.iter().find(|(info, _)| info["summary"] == json!(true)).unwrap();
    assert_eq!(summary.0["providerID"], "claude");
    assert_eq!(talk.last().unwrap().0["providerID"], "chat", "no other agent has it");
}
