//! Both generations of OpenCode's SDK, called from a small program.

use super::{client::Client, installed};
use e2e::Stack;
use serde_json::json;
use std::{path::Path, time::Duration};
use tokio::process::Command;

async fn check(generation: &str) {
    let Some(sdk) = installed::find("@opencode-ai/sdk") else { return };
    let stack = Stack::start().await;
    super::store_settings(&stack, &json!({"permission": {"bash": "ask"}})).await;
    let client = Client::new(&stack, "/home/me/project");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/opencode/sdk.mjs");
    let mut command = Command::new("node");
    command
        .arg(program)
        .args([generation, sdk.to_str().unwrap(), &client.url, &client.key])
        .kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = ended.expect("a program that ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), "everything is as it should be\n");
}

#[tokio::test]
async fn the_first_sdk_works_unchanged() {
    check("v1").await;
}

#[tokio::test]
async fn the_second_sdk_works_unchanged() {
    check("v2").await;
}
