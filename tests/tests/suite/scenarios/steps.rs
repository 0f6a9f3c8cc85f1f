//! The steps of models: reasoning, tool calls, failures.

use super::{PLAIN, Scenario, check};

#[tokio::test]
async fn reason() {
    check(&Scenario {
        says: &[|prompt| prompt.text = "@reason let me think\n@text thought".into()],
        expected: &["user: text(@reason let me think)", "build stop: reasoning(let me think), text(thought)"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn tool() {
    check(&Scenario {
        files: &[("a.txt", "content of a\n")],
        says: &[|prompt| {
            prompt.text = "@tool read {\"filePath\":\"/workspace/a.txt\"}\n@text {{last_tool_result}}".into();
        }],
        expected: &[
            "user: text(@tool read {\"filePath\":\"/workspace/a.txt\"})",
            "build tool-calls: read completed(1: content of a)",
            "build stop: text(1: content of a)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn edit() {
    check(&Scenario {
        files: &[("e.txt", "line one\nline two\n")],
        says: &[|prompt| {
            let edit = r#"{"filePath":"/workspace/e.txt","oldString":"line two","newString":"line 2"}"#;
            prompt.text = format!("@tool edit {edit}\n@tool bash {{\"command\":\"cat e.txt\"}}\n@text over");
        }],
        expected: &[
            "user: text(@tool edit {\"filePath\":\"/workspace/e.txt\",\"oldString\":\"line )",
            "build tool-calls: edit completed(The edit was made.)",
            "build tool-calls: bash completed(line one)",
            "build stop: text(over)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn todo() {
    check(&Scenario {
        says: &[|prompt| {
            let todos = r#"{"todos":[{"content":"x","status":"pending","priority":"high"}]}"#;
            prompt.text = format!("@tool todowrite {todos}\n@text noted");
        }],
        expected: &[
            "user: text(@tool todowrite {\"todos\":[{\"content\":\"x\",\"status\":\"pending\",)",
            "build tool-calls: todowrite completed([)",
            "build stop: text(noted)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn task() {
    check(&Scenario {
        says: &[|prompt| {
            let task = r#"{"description":"sub job","prompt":"@text hi","subagent_type":"general"}"#;
            prompt.text = format!("@tool task {task}\n@text over");
        }],
        expected: &[
            "user: text(@tool task {\"description\":\"sub job\",\"prompt\":\"@text hi\",\"sub)",
            "build tool-calls: task completed(<task_result>)",
            "build stop: text(over)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn err400() {
    check(&Scenario {
        says: &[
            |prompt| prompt.text = "@status 400\n@text never".into(),
            |prompt| prompt.text = "@text after".into(),
        ],
        expected: &[
            "user: text(@status 400)",
            "build APIError: ",
            "user: text(@text after)",
            "build stop: text(after)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn retry() {
    check(&Scenario {
        says: &[|prompt| prompt.text = "@status 503 times=1\n@text recovered".into()],
        expected: &["user: text(@status 503 times=1)", "build stop: text(recovered)"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn cut() {
    check(&Scenario {
        says: &[|prompt| prompt.text = "@cut 2 times=1\n@chunk 4\n@text whole after all".into()],
        expected: &["user: text(@cut 2 times=1)", "build stop: text(whole after all)"],
        ..PLAIN
    })
    .await;
}
