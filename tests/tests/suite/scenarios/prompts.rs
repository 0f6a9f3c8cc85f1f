//! The kinds of prompts.

use super::{PLAIN, Scenario, check};
use rpc::v1::{self, prompt_part::Kind};

fn add(prompt: &mut v1::AcceptPromptRequest, kind: Kind) {
    prompt.parts.push(kind.into());
}

#[tokio::test]
async fn simple() {
    let expected = &["user: text(@text hello)", "build stop: text(hello)"];
    check(&Scenario { says: &[|prompt| prompt.text = "@text hello".into()], expected, ..PLAIN }).await;
}

#[tokio::test]
async fn file() {
    check(&Scenario {
        files: &[("a.txt", "content of a\n")],
        says: &[|prompt| {
            prompt.text = "@text seen".into();
            let url = "file:///workspace/a.txt".into();
            let file = v1::FilePart {
                mime: "text/plain".into(),
                filename: "a.txt".into(),
                url,
                ..Default::default()
            };
            add(prompt, Kind::File(file));
            add(prompt, Kind::Agent(v1::AgentPart { name: "explore".into(), ..Default::default() }));
        }],
        expected: &["user: text(@text seen), file(text/plain), agent(explore), told(Use the above message and context to generate a prompt and c), told(Called the Read tool with the following input: {\"filePath\":\"), told(<path>/workspace/a.txt</path>)", "build stop: text(seen)"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn noreply() {
    check(&Scenario {
        says: &[
            |prompt| (prompt.text, prompt.no_reply) = ("context only".into(), true),
            |prompt| prompt.text = "@text seen".into(),
        ],
        expected: &["user: text(context only)", "user: text(@text seen)", "build stop: text(seen)"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn subtask() {
    check(&Scenario {
        says: &[|prompt| {
            prompt.text = "@text no step of a model\n@step\n@text over".into();
            let task = v1::SubtaskPart {
                prompt: "@text did it".into(),
                description: "desc".into(),
                agent: "general".into(),
                ..Default::default()
            };
            add(prompt, Kind::Subtask(task));
        }],
        expected: &[
            "user: text(@text no step of a model), subtask(general)",
            "general tool-calls: task completed(<task_result>)",
            "build stop: text(over)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn command() {
    check(&Scenario {
        files: &[(".opencode/command/hi.md", "Say hi to $1: !`echo there`\n@text hi\n")],
        says: &[|prompt| {
            add(prompt, Kind::Command(v1::CommandPart { name: "hi".into(), arguments: "Ann".into() }));
        }],
        expected: &["user: text(Say hi to Ann: there)", "build stop: text(hi)"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn shell() {
    check(&Scenario {
        says: &[
            |prompt| {
                let command = "echo hi; sleep 0.3; echo there".into();
                add(prompt, Kind::Shell(v1::ShellPart { command, timeout_ms: 0 }));
            },
            |prompt| prompt.text = "@text seen".into(),
        ],
        expected: &[
            "user: told(The following tool was executed by the user)",
            "build stop: bash completed(hi)",
            "user: text(@text seen)",
            "build stop: text(seen)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn structured() {
    check(&Scenario {
        says: &[|prompt| {
            prompt.text =
                "@tool StructuredOutput {\"answer\":\"no number\"}\n@tool StructuredOutput {\"answer\":42}"
                    .into();
            let json_schema =
                r#"{"type":"object","properties":{"answer":{"type":"number"}},"required":["answer"]}"#.into();
            prompt.format = Some(v1::OutputFormat { json_schema, retry_count: None });
        }],
        expected: &["user: text(@tool StructuredOutput {\"answer\":\"no number\"})", "build tool-calls: StructuredOutput error(The answer does not fit the schema: \"no number\" is not of ty)", "build tool-calls {\"answer\":42}: StructuredOutput completed(Structured output captured successfully.)"],
        ..PLAIN
    })
    .await;
}
