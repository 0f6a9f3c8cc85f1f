//! What a repository tells its agents, over the whole stack: instructions, skills, agents, rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use e2e::{Stack, turn::run};
use serde_json::{Value, json};

/// The system prompt of each model call of a session.
fn systems(stack: &Stack, session: &str) -> Vec<String> {
    let requests = stack.model.journal.requests().into_iter();
    let of_session =
        requests.filter(|request| request.headers.get("x-session-id").is_some_and(|id| id == session));
    let text = |body: &Value| {
        let messages = body["messages"].as_array().unwrap().iter();
        let system = messages.filter(|message| message["role"] == "system");
        system
            .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    };
    of_session.map(|request| text(&request.body)).collect()
}

fn tool(name: &str, input: &Value) -> String {
    format!("@tool {name} {input}")
}

async fn done(stack: &Stack, session: &str, prompt: &str) {
    let (outcome, seen) = run(&stack.api, session, prompt).await;
    assert_eq!(outcome, "done", "{:?}", seen.error());
}

#[tokio::test]
async fn instructions_are_read_anew_in_each_turn_and_near_files_when_they_are_needed() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[
        ("AGENTS.md", "Be brief.\n"),
        ("docs/AGENTS.md", "Docs are in English.\n"),
        ("docs/deep/CLAUDE.md", "Deep rules.\n"),
        ("docs/deep/page.md", "page\n"),
        ("docs/deep/other.md", "other\n"),
    ]);
    let session = stack.session_on(&repository).await;
    done(&stack, &session, "@text one").await;
    let first = systems(&stack, &session).pop().unwrap();
    assert!(first.contains("Instructions from: /workspace/AGENTS.md\nBe brief."), "{first}");
    assert!(!first.contains("Docs are"), "{first}");

    let write = json!({"filePath": "/workspace/AGENTS.md", "content": "Be thorough.\n"});
    done(&stack, &session, &format!("{}\n@text two", tool("write", &write))).await;
    done(&stack, &session, "@text three").await;
    let asked = systems(&stack, &session);
    assert!(asked[2].contains("Be brief."), "a turn has one set of instructions: {}", asked[2]);
    let last = asked.last().unwrap();
    assert!(last.contains("Be thorough.") && !last.contains("Be brief."), "{last}");

    let read = |path: &str| tool("read", &json!({"filePath": format!("/workspace/{path}")}));
    let prompt = format!(
        "{}\n{}\n@text four",
        read("docs/deep/page.md"),
        "@tools\n".to_owned() + &read("docs/deep/other.md")
    );
    done(&stack, &session, &prompt).await;
    done(&stack, &session, &format!("{}\n@text five", read("docs/deep/page.md"))).await;
    let calls = stack.api.tool_calls(&session).await;
    let reads: Vec<&str> =
        calls.iter().filter(|call| call.said.contains("1: ")).map(|call| call.said.as_str()).collect();
    let reminder = "<system-reminder>\nInstructions from: /workspace/docs/deep/CLAUDE.md\nDeep rules.\n</system-reminder>\n\n\
                    <system-reminder>\nInstructions from: /workspace/docs/AGENTS.md\nDocs are in English.\n</system-reminder>";
    assert!(reads[0].contains(reminder), "{}", reads[0]);
    assert!(reads[1..].iter().all(|said| !said.contains("<system-reminder>")), "shown once: {reads:?}");
}

#[tokio::test]
async fn an_empty_workspace_has_instructions_once_somebody_wrote_them() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    done(&stack, &session, "@text nothing").await;
    let write = json!({"filePath": "/workspace/AGENTS.md", "content": "Written later.\n"});
    done(&stack, &session, &format!("{}\n@text written", tool("write", &write))).await;
    done(&stack, &session, "@text now").await;
    let asked = systems(&stack, &session);
    assert!(
        !asked[0].contains("Instructions from") && asked.last().unwrap().contains("Written later."),
        "{asked:?}"
    );
}

#[tokio::test]
async fn skills_are_listed_and_loaded_when_they_are_wanted() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[
        (".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: reads PDF\n---\nUse pdftotext.\n"),
        (".claude/skills/pdf/scripts/run.sh", "true\n"),
    ]);
    let session = stack.session_on(&repository).await;
    let load = |name: &str| tool("skill", &json!({"name": name}));
    done(&stack, &session, &format!("{}\n{}\n@text done", load("pdf"), load("xls"))).await;
    let calls = stack.api.tool_calls(&session).await;
    let want = "<skill name=\"pdf\" directory=\"/workspace/.claude/skills/pdf\">\nUse pdftotext.\n<files>\n\
                /workspace/.claude/skills/pdf/scripts/run.sh\n</files>\n</skill>";
    assert_eq!(calls[0].said, want);
    assert_eq!(calls[1].said, "There is no skill \"xls\". There are: pdf.");
    let told = |session: &str| {
        let requests = stack.model.journal.requests().into_iter();
        let mut of_session =
            requests.filter(|request| request.headers.get("x-session-id").is_some_and(|id| id == session));
        of_session.next().unwrap().body["tools"].to_string()
    };
    assert!(told(&session).contains("- pdf: reads PDF"));
    let without = stack.session().await;
    done(&stack, &without, "@text x").await;
    assert!(!told(&without).contains("\"skill\""), "no tool without skills");
}
