//! Actions of clients: further prompts, aborts, forks, reverts, and refused calls.

use super::{Answer, ClientAction, Moment, PLAIN, Scenario, check};
use rpc::v1::{self, PermissionAnswer, PermissionVerdict, prompt_part::Kind};

/// A rule that asks before each command, so that a turn waits for its client.
const ASKING: Scenario = Scenario { rules: &[("bash", PermissionVerdict::Ask)], ..PLAIN };
const ONCE: Answer = Answer::Permission(PermissionAnswer::Once, "");

fn shell(prompt: &mut v1::AcceptPromptRequest) {
    prompt.parts.push(Kind::Shell(v1::ShellPart { command: "ls".into(), ..Default::default() }).into());
}

fn ask(prompt: &mut v1::AcceptPromptRequest) {
    prompt.text = "@tool bash {\"command\":\"echo ran\"}\n@text over".into();
}

#[tokio::test]
async fn abort() {
    check(&Scenario {
        says: &[ask, |prompt| prompt.text = "@text again".into()],
        answer: Answer::Abort,
        expected: &[
            "user: text(@tool bash {\"command\":\"echo ran\"})",
            "build MessageAbortedError: bash error(Tool execution aborted)",
            "user: text(@text again)",
            "build stop: text(again)",
        ],
        ..ASKING
    })
    .await;
}

#[tokio::test]
async fn busy() {
    check(&Scenario {
        says: &[ask],
        actions: &[(Moment::Asked, ClientAction::Refused(shell, "session_busy"))],
        answer: ONCE,
        expected: &[
            "user: text(@tool bash {\"command\":\"echo ran\"})",
            "build tool-calls: bash completed(ran)",
            "build stop: text(over)",
        ],
        ..ASKING
    })
    .await;
}

#[tokio::test]
async fn queue() {
    check(&Scenario {
        says: &[ask],
        actions: &[
            (Moment::Asked, ClientAction::Prompt(|prompt| prompt.text = "@text second".into())),
            (Moment::Asked, ClientAction::Prompt(|prompt| prompt.text = "@text third".into())),
        ],
        answer: ONCE,
        expected: &[
            "user: text(@tool bash {\"command\":\"echo ran\"})",
            "build tool-calls: bash completed(ran)",
            "user: text(@text second)",
            "user: text(@text third)",
            "build stop: text(third)",
        ],
        ..ASKING
    })
    .await;
}

#[tokio::test]
async fn errors() {
    check(&Scenario {
        says: &[ask],
        actions: &[
            (
                Moment::Before(0),
                ClientAction::Refused(
                    |prompt| (prompt.text, prompt.agent) = ("@text never".into(), "nobody".into()),
                    "agent_unknown",
                ),
            ),
            (
                Moment::Asked,
                ClientAction::Refused(
                    |prompt| {
                        let (provider_id, model_id) = ("chat".into(), "none".into());
                        (prompt.text, prompt.model) =
                            ("@text never".into(), Some(v1::ModelRef { provider_id, model_id }));
                    },
                    "model_unknown",
                ),
            ),
            (Moment::Answered, ClientAction::AnswerAgain("already_resolved")),
        ],
        answer: ONCE,
        expected: &[
            "user: text(@tool bash {\"command\":\"echo ran\"})",
            "build tool-calls: bash completed(ran)",
            "build stop: text(over)",
        ],
        ..ASKING
    })
    .await;
}

#[tokio::test]
async fn fork() {
    check(&Scenario {
        files: &[("a.txt", "one\n")],
        says: &[
            |prompt| prompt.text = "@tool bash {\"command\":\"echo two >> a.txt\"}\n@text first".into(),
            |prompt| prompt.text = "@tool bash {\"command\":\"cat a.txt\"}\n@text on".into(),
        ],
        actions: &[(Moment::Before(1), ClientAction::Fork)],
        expected: &[
            "user: text(@tool bash {\"command\":\"echo two >> a.txt\"})",
            "build tool-calls: bash completed((no output))",
            "build stop: text(first)",
            "user: text(@tool bash {\"command\":\"cat a.txt\"})",
            "build tool-calls: bash completed(one)",
            "build stop: text(on)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn revert() {
    check(&Scenario {
        files: &[("a.txt", "one\n")],
        says: &[
            |prompt| prompt.text = "@text kept".into(),
            |prompt| prompt.text = "@tool bash {\"command\":\"echo two >> a.txt\"}\n@text taken back".into(),
            |prompt| prompt.text = "@tool bash {\"command\":\"tail -n 1 a.txt\"}\n@text on".into(),
        ],
        actions: &[(Moment::Before(2), ClientAction::Revert)],
        expected: &[
            "user: text(@text kept)",
            "build stop: text(kept)",
            "user: text(@tool bash {\"command\":\"tail -n 1 a.txt\"})",
            "build tool-calls: bash completed(one)",
            "build stop: text(on)",
        ],
        ..PLAIN
    })
    .await;
}
