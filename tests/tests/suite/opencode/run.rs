//! The real `opencode run --attach`.

use super::{client::Client, directories::created_at, installed::find_opencode};
use e2e::{Options, Stack, opencode::OpenCode};
use serde_json::{Value, json};
use std::process::Stdio;

/// The script of the model. The program quotes prompts of several words, so each prompt is one word.
const SCRIPT: &str = r#"
[[rule]]
match = "look"
[[rule.step]]
reasoning = "Hm."
text = "Look:"
tool = [{ name = "bash", input = { command = "echo hi" } }]
[[rule.step]]
text = "Bye."

[[rule]]
match = "read"
[[rule.step]]
tool = [{ name = "bash", input = { command = "cat a.txt" } }]
[[rule.step]]
text = "Bye."

[[rule]]
match = "fail"
[[rule.step]]
fault = [{ status = 400 }]
"#;

/// Returns the output of one run: a line of `kind text` for each event with a text.
async fn run(client: &Client, opencode: &OpenCode, prompt: &str) -> Vec<String> {
    let arguments = ["run", "--attach", &client.url, "-p", &client.key, "--format", "json", prompt];
    let mut command = opencode.command(&arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), child.wait_with_output()).await;
    let output = ended.expect("a run that ends").unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let (part, state) = (&event["part"], &event["part"]["state"]);
        let texts = [&part["text"], &state["output"], &state["error"], &event["error"]["data"]["message"]];
        let text = texts.into_iter().find_map(Value::as_str).unwrap_or_default();
        format!("{} {text}", event["type"].as_str().unwrap()).trim().to_owned()
    };
    assert!(!lines.is_empty(), "it said nothing: {}", String::from_utf8_lossy(&output.stderr));
    lines.lines().map(line).collect()
}

#[tokio::test]
async fn opencode_run_prints_what_the_agent_does() {
    let Some(opencode) = find_opencode() else { return };
    let stack = Stack::with(Options { script: SCRIPT.to_owned(), ..Options::default() }).await;
    let client = Client::new(&stack, opencode.directory().to_str().unwrap());
    let printed = run(&client, &opencode, "look").await;
    let steps =
        ["step_start", "text Look:", "tool_use hi", "step_finish", "step_start", "text Bye.", "step_finish"];
    assert!(printed[0].starts_with("text this session has no files, because the project"), "{printed:?}");
    assert_eq!(printed[1..], steps);
    let failed = run(&client, &opencode, "fail").await;
    assert!(failed.last().unwrap().starts_with("error "), "{failed:?}");

    // Without `--dir`, it works in the only project with files, which says nothing about missing ones.
    created_at(&stack, "app", "/home/me/app").await;
    let read = run(&client, &opencode, "read").await;
    assert_eq!(read[..2], ["step_start", "tool_use from the project"]);

    super::store_settings(&stack, &json!({"permission": {"bash": "ask"}})).await;
    let refused = run(&client, &opencode, "look").await;
    assert!(
        refused.iter().any(|line| line.starts_with("tool_use") && line.contains("rejected permission")),
        "{refused:?}"
    );
}
