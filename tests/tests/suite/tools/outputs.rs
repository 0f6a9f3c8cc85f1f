//! Long tool outputs: truncated for the model, and complete in a file that its tools can read.

use super::call;
use e2e::{
    Stack,
    api::{Api, assert_refused},
};
use rpc::v1;
use serde_json::{Value, json};
use tonic::Code;

/// Returns the metadata of the newest tool call.
async fn facts(api: &Api, session: &str) -> Value {
    let talk = api.conversation(session).await;
    let mut parts = talk.iter().flat_map(|(_, parts)| parts);
    parts.rfind(|part| part["type"] == "tool").unwrap()["state"]["metadata"].clone()
}

/// Returns the output of a completed call.
async fn call_output(api: &Api, session: &str, tool: &str, input: Value) -> String {
    let (status, output) = call(api, session, tool, &input).await;
    assert_eq!(status, "completed", "{tool} {input}: {output}");
    output
}

#[tokio::test]
async fn a_long_output_is_truncated_for_the_model_and_complete_on_disk() {
    let stack = Stack::start().await;
    let (api, session) = (&stack.api, stack.session().await);
    // Ninety lines of 1900 bytes: more than the limit of one output.
    let long = "x=$(head -c 1900 /dev/zero | tr '\\0' x); for i in $(seq 89); do echo $x; done > long; \
                echo xneedle >> long";
    call_output(api, &session, "bash", json!({"command": long})).await;
    let output =
        call_output(api, &session, "grep", json!({"pattern": "^x", "path": "/workspace/long"})).await;
    let facts = facts(api, &session).await;
    let path = facts["outputPath"].as_str().unwrap();
    assert_eq!((&facts["truncated"], facts["matches"].as_u64()), (&json!(true), Some(90)));
    assert!(output.len() < domain::limits::TOOL_OUTPUT_BYTES_MAX + 500 && !output.contains("needle"));
    assert!(output.contains("(Cut: the whole answer has 91 lines") && output.contains(path), "{output:?}");
    let found = call_output(api, &session, "grep", json!({"pattern": "needle", "path": path})).await;
    assert!(found.contains("91:   90: xneedle"), "{found}");
    let read = call_output(api, &session, "read", json!({"filePath": path, "offset": 91})).await;
    assert!(read.starts_with("91:   90: xneedle"), "{read}");
    let get = |path: &str| v1::GetToolOutputRequest { session_id: session.clone(), path: path.to_owned() };
    let whole = api.sessions().get_tool_output(get(path)).await.unwrap().into_inner().data;
    assert!(String::from_utf8(whole).unwrap().ends_with("  90: xneedle\n"), "a person can read it as well");
    let refused = api.sessions().get_tool_output(get("/etc/passwd")).await;
    assert_refused(refused, Code::NotFound, "file_not_found");
    let command = format!("wc -l < {path}; git status --porcelain");
    assert_eq!(call_output(api, &session, "bash", json!({"command": command})).await, "91\n?? long\n");
}

#[tokio::test]
async fn a_repository_configures_the_length_of_outputs() {
    let stack = Stack::start().await;
    let settings = r#"{"tool_output": {"max_lines": 10, "max_bytes": 2000}}"#;
    let repository = testkit::git::repository(&[("opencode.json", settings), ("a.txt", "x\n")]);
    let (api, session) = (&stack.api, stack.session_on(&repository).await);
    let output = call_output(api, &session, "bash", json!({"command": "seq 100; seq 100 > many"})).await;
    let numbers: Vec<&str> = output.lines().filter(|line| line.parse::<u32>().is_ok()).collect();
    assert_eq!((numbers.len(), numbers[0], numbers.last()), (8, "1", Some(&"100")), "{output}");
    assert!(output.contains("the whole output is in /run/sbx/out/"), "{output}");
    assert!(output.contains(facts(api, &session).await["outputPath"].as_str().unwrap()), "{output}");
    let output = call_output(api, &session, "read", json!({"filePath": "/workspace/many"})).await;
    assert!(output.contains("10: 10\n\n(There is more: continue with offset 11.)"), "{output}");
    let output = call_output(api, &session, "grep", json!({"pattern": "1", "path": "/workspace/many"})).await;
    assert!(output.contains("(Cut: the whole answer has 21 lines"), "{output}");
    assert_eq!(
        output.lines().filter(|line| line.starts_with("  ")).count(),
        9,
        "below the file's name: {output}"
    );
}
