//! Content that costs more than it may: its call ends with the name of the bound, and the other sessions of the worker go on.

use super::{PAGE, check, stack_with_page};
use e2e::{
    Stack,
    api::Api,
    turn::{Watch, bash, run, run_request},
};
use rpc::v1;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time in which a turn ends whose call reaches a bound: one second of processor time, on a machine that may be busy. Without the
/// bound it takes minutes.
const ATTACK_MAX: Duration = Duration::from_secs(15);

/// Runs a turn of another session during an attack, and asserts that both end in time.
async fn assert_bounded(api: &Api, other: &str, attack: impl Future<Output = ()>) {
    let begun = Instant::now();
    let attack = async {
        attack.await;
        begun.elapsed()
    };
    let work = async {
        let (outcome, _) = run(api, other, &format!("{}\n@text over", bash("echo works"))).await;
        assert_eq!(outcome, "done");
        begun.elapsed()
    };
    let (attack, work) = tokio::join!(attack, work);
    assert!(
        attack < ATTACK_MAX && work < ATTACK_MAX,
        "the attack took {attack:?}, the other session {work:?}"
    );
}

/// In HTML `</x>` closes nothing: each of the 582,000 elements contains the rest.
fn unclosed_page() -> String {
    "<div></x>".repeat(582_000) + "the end"
}

#[tokio::test]
async fn a_page_of_unclosed_elements_ends_within_a_second() {
    let stack = stack_with_page(unclosed_page()).await;
    let (api, session, other) = (&stack.api, stack.session().await, stack.session().await);
    let input = json!({"url": PAGE});
    let attack =
        check(api, &session, ("webfetch", input), ("completed", &["conversion_too_slow", "the end"]));
    assert_bounded(api, &other, attack).await;
}

#[tokio::test]
async fn an_edit_of_a_huge_file_delays_no_other_session() {
    let stack = Stack::start().await;
    let (api, session, other) = (&stack.api, stack.session().await, stack.session().await);
    let make = json!({"command": "yes ab | head -c 3000000 > big"});
    check(api, &session, ("bash", make), ("completed", &[])).await;
    let quote = "ab\n".repeat(4_000) + "zz";
    let input = json!({"filePath": "/workspace/big", "oldString": quote, "newString": "x"});
    let attack = check(api, &session, ("edit", input), ("error", &["conversion_too_slow"]));
    assert_bounded(api, &other, attack).await;
    let size = json!({"command": "stat -c %s big"});
    check(api, &session, ("bash", size), ("completed", &["3000000"])).await;
}

/// Checks a value of the wrong type 2^30 times.
fn exponential_schema() -> Value {
    let next = |level: usize| json!({"$ref": format!("#/$defs/d{}", level + 1)});
    let pair = |level: usize| (format!("d{level}"), json!({"anyOf": [next(level), next(level)]}));
    let mut definitions: serde_json::Map<String, Value> = (0..30).map(pair).collect();
    definitions.insert("d30".to_owned(), json!({"type": "number"}));
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions})
}

#[tokio::test]
async fn a_schema_cannot_hold_a_worker() {
    let stack = Stack::start().await;
    let (api, session, other) = (&stack.api, stack.session().await, stack.session().await);
    let format = v1::OutputFormat { json_schema: exponential_schema().to_string(), retry_count: Some(0) };
    let attack = async {
        let (outcome, transcript) = run_request(api, &session, |prompt| {
            prompt.text = "@tool StructuredOutput {\"a\":\"x\"}".to_owned();
            prompt.format = Some(format);
        })
        .await;
        let error = transcript.error().unwrap();
        assert_eq!((outcome.as_str(), &error["name"]), ("failed", &json!("StructuredOutputError")));
        assert!(error.to_string().contains("conversion_too_slow"), "{error}");
    };
    assert_bounded(api, &other, attack).await;
}

#[tokio::test]
async fn an_abort_ends_a_conversion() {
    let stack = stack_with_page(unclosed_page()).await;
    let (api, session) = (&stack.api, stack.session().await);
    let input = json!({"url": PAGE});
    let mut watch = Watch::start(api, &session).await;
    api.prompt(&session, &format!("@tool webfetch {input}\n@text over")).await.unwrap();
    watch.until_tool("running").await;
    assert!(api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
}
