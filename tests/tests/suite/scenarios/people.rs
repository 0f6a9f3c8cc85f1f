//! Requests to people.

use super::{Answer, PLAIN, Scenario, check};
use rpc::v1::{PermissionAnswer, PermissionVerdict};

/// A rule that asks before each command.
const ASKING: Scenario = Scenario { rules: &[("bash", PermissionVerdict::Ask)], ..PLAIN };
const QUESTION: &str = r#"@tool question {"questions":[{"question":"Which?","header":"Pick","options":[{"label":"A","description":"a"},{"label":"B","description":"b"}]}]}"#;

#[tokio::test]
async fn perm() {
    check(&Scenario {
        says: &[|prompt| {
            prompt.text = "@tool bash {\"command\":\"echo ran >> a; cat a\"}\n@text over".into()
        }],
        answer: Answer::Permission(PermissionAnswer::Once, ""),
        expected: &[
            "user: text(@tool bash {\"command\":\"echo ran >> a; cat a\"})",
            "build tool-calls: bash completed(ran)",
            "build stop: text(over)",
        ],
        ..ASKING
    })
    .await;
}

#[tokio::test]
async fn permalways() {
    check(&Scenario {
        says: &[|prompt| {
            prompt.text =
                "@tool bash {\"command\":\"ls -a\"}\n@tool bash {\"command\":\"ls -A\"}\n@text over".into();
        }],
        answer: Answer::Permission(PermissionAnswer::Always, ""),
        expected: &[
            "user: text(@tool bash {\"command\":\"ls -a\"})",
            "build tool-calls: bash completed(.)",
            "build tool-calls: bash completed(.git)",
            "build stop: text(over)",
        ],
        ..ASKING
    })
    .await;
}

#[tokio::test]
async fn permreject() {
    check(&Scenario {
        says: &[|prompt| prompt.text = "@tool bash {\"command\":\"pwd\"}\n@text never".into()],
        answer: Answer::Permission(PermissionAnswer::Reject, ""),
        expected: &[
            "user: text(@tool bash {\"command\":\"pwd\"})",
            "build tool-calls: bash error(The user rejected permission to use this specific tool call.)",
        ],
        ..ASKING
    })
    .await;
}

#[tokio::test]
async fn permrejectmsg() {
    check(&Scenario {
        says: &[|prompt| prompt.text = "@tool bash {\"command\":\"whoami\"}\n@text with id then".into()],
        answer: Answer::Permission(PermissionAnswer::Reject, "use id instead"),
        expected: &[
            "user: text(@tool bash {\"command\":\"whoami\"})",
            "build tool-calls: bash error(The user rejected permission to use this specific tool call )",
            "build stop: text(with id then)",
        ],
        ..ASKING
    })
    .await;
}

#[tokio::test]
async fn question() {
    check(&Scenario {
        says: &[|prompt| prompt.text = format!("{QUESTION}\n@text chosen")],
        answer: Answer::Question(Some("A")),
        expected: &["user: text(@tool question {\"questions\":[{\"question\":\"Which?\",\"header\":\")", "build tool-calls: question completed(The person answered: \"Which?\" = \"A\". Continue with these ans)", "build stop: text(chosen)"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn questionreject() {
    check(&Scenario {
        says: &[|prompt| prompt.text = format!("{QUESTION}\n@text never")],
        answer: Answer::Question(None),
        expected: &[
            "user: text(@tool question {\"questions\":[{\"question\":\"Which?\",\"header\":\")",
            "build tool-calls: question error(The user dismissed this question)",
        ],
        ..PLAIN
    })
    .await;
}
