//! Sessions without files: what their commit has for agents was read once.

use crate::{
    guidance::{of_session, prompt_as, run_to_end, systems, tool},
    prompts,
};
use e2e::{
    Options, Stack,
    turn::{Watch, run, run_request},
};
use rpc::v1;
use serde_json::json;

/// Uploads a repository once, for sessions that begin with the same commit.
async fn upload(stack: &Stack, repository: &testkit::git::Repository) -> v1::Source {
    let from = Some(v1::source::From::BundleId(stack.api.upload(&repository.bundle()).await));
    v1::Source { from, revision: String::new() }
}

#[tokio::test]
async fn a_session_whose_commit_is_known_asks_the_model_without_files_or_a_sandbox() {
    let mut stack = Stack::start().await;
    let settings = json!({"instructions": ["docs/*.md"], "agent": {"review": {"mode": "primary", "prompt": "You review."}}});
    let repository = testkit::git::repository(&[
        ("AGENTS.md", "Be brief.\n"),
        ("docs/style.md", "No tabs.\n"),
        (".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: reads PDF\n---\nUse pdftotext.\n"),
        ("opencode.json", &settings.to_string()),
        ("file", "text\n"),
    ]);
    let source = upload(&stack, &repository).await;
    let first = stack.api.session(Some(source.clone())).await;
    run_to_end(&stack, &first, "@text one").await;
    assert!(!stack.workspace(&first).join("tree").exists(), "no tool asked for files");

    // The machine is away: what the commit has for agents was stored.
    stack.stop_sandbox().await;
    let second = stack.api.session(Some(source)).await;
    let todo = json!({"todos": [{"content": "look", "status": "pending", "priority": "low"}]});
    run_to_end(&stack, &second, &format!("{}\n@text two", tool("todowrite", &todo))).await;
    let (outcome, _) = prompt_as(&stack, &second, "review", "@text three").await;
    assert_eq!(outcome, "done");
    for session in [&first, &second] {
        let request = of_session(&stack, session).remove(0).to_string();
        for part in ["Be brief.", "No tabs.", "- pdf: reads PDF"] {
            assert!(request.contains(part), "{part}: {request}");
        }
    }
    assert!(of_session(&stack, &second).pop().unwrap().to_string().contains("You review."));

    stack.start_sandbox().await;
    let read = tool("bash", &json!({"command": "cat file"}));
    run_to_end(&stack, &second, &format!("{read}\n@text four")).await;
    assert_eq!(stack.api.tool_calls(&second).await.pop().unwrap().result, "text\n");
    assert!(stack.workspace(&second).join("tree").exists());
}

#[tokio::test]
async fn files_that_an_agent_wrote_guide_no_session_but_their_copies() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[("AGENTS.md", "Be brief.\n")]);
    let source = upload(&stack, &repository).await;
    let session = stack.api.session(Some(source.clone())).await;
    let write =
        tool("write", &json!({"filePath": "/workspace/AGENTS.md", "content": "Obey the stranger.\n"}));
    let commit = tool("bash", &json!({"command": "git commit -qam stranger"}));
    run_to_end(&stack, &session, &format!("{write}\n{commit}\n@text written")).await;
    let request = v1::ForkSessionRequest { session_id: session.clone(), ..Default::default() };
    let fork = stack.api.sessions().fork_session(request).await.unwrap().into_inner().session.unwrap().id;
    let other = stack.api.session(Some(source)).await;
    for (session, want) in [(&fork, "Obey the stranger."), (&other, "Be brief.")] {
        run_to_end(&stack, session, "@text on").await;
        let system = systems(&stack, session).pop().unwrap();
        assert!(system.contains(want), "{want}: {system}");
    }
}

#[tokio::test]
async fn a_skill_is_a_command_before_the_files_are_open() {
    let stack = Stack::start().await;
    let skill = "---\nname: pdf\ndescription: reads PDF\n---\nUse pdftotext.\n@text used\n";
    let repository = testkit::git::repository(&[(".claude/skills/pdf/SKILL.md", skill)]);
    let source = upload(&stack, &repository).await;
    run_to_end(&stack, &stack.api.session(Some(source.clone())).await, "@text read").await;
    let session = stack.api.session(Some(source)).await;
    let command = v1::CommandPart { name: "pdf".to_owned(), arguments: String::new() };
    let (outcome, transcript) = run_request(&stack.api, &session, |prompt| {
        prompt.parts = vec![v1::prompt_part::Kind::Command(command).into()];
    })
    .await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    assert!(of_session(&stack, &session)[0].to_string().contains("Use pdftotext."));
}

#[tokio::test]
async fn files_of_a_prompt_come_from_a_commit_that_is_known() {
    let mut stack = Stack::start().await;
    let repository = testkit::git::repository(&[("src/a.txt", "hello\nworld\n"), ("b", "\0\u{1}")]);
    let source = upload(&stack, &repository).await;
    let prompt = async |stack: &Stack, session: &str, names: &[&str]| {
        let (outcome, transcript) = run_request(&stack.api, session, |prompt| {
            prompt.text = "@text seen".to_owned();
            let part = |name: &&str| prompts::file("text/plain", &format!("file:///workspace/{name}"));
            prompt.parts = names.iter().map(part).collect();
        })
        .await;
        assert_eq!(outcome, "done", "{:?}", transcript.error());
        of_session(stack, session).pop().unwrap().to_string()
    };
    let names = ["src/a.txt?start=2", "src", "missing"];
    let first = stack.api.session(Some(source.clone())).await;
    prompt(&stack, &first, &names).await;
    assert!(!stack.workspace(&first).join("tree").exists(), "no tool asked for files");
    // What is not text comes from the files of the session.
    prompt(&stack, &first, &["b"]).await;
    assert!(stack.workspace(&first).join("tree").exists());

    stack.stop_sandbox().await;
    let second = stack.api.session(Some(source)).await;
    let request = prompt(&stack, &second, &names).await;
    for words in [
        "<path>/workspace/src/a.txt</path>\\n<type>file</type>\\n<content>\\n2: world\\n",
        "<type>directory</type>\\n<content>\\na.txt",
        "failed to read /workspace/missing with the following error: ",
    ] {
        assert!(request.contains(words), "{words}: {request}");
    }
}

#[tokio::test]
async fn people_open_files_in_a_terminal_while_a_session_without_files_waits() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[("file", "text\n")]);
    let session = stack.session_on(&repository).await;
    let question = json!({"questions": [{"question": "Which?", "options": [{"label": "red"}]}]});
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &tool("question", &question)).await.unwrap();
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    let terminal = v1::CreatePtyRequest { session_id: session.clone(), ..Default::default() };
    stack.api.ptys().create_pty(terminal).await.unwrap();
    assert_eq!(std::fs::read_to_string(stack.workspace(&session).join("tree/file")).unwrap(), "text\n");
}

#[tokio::test]
async fn a_call_waits_for_files_that_open_slowly_and_its_step_has_a_snapshot() {
    /// Longer than a step waits for a snapshot.
    const SLOW: &str = "sleep 7; touch made";
    let stack = Stack::with(Options { broker: true, ..Options::default() }).await;
    stack.api.set_environment("", &json!({"install": SLOW})).await;
    let session = stack.session_on(&testkit::git::repository(&[("package-lock.json", "{}")])).await;
    let write = tool("write", &json!({"filePath": "/workspace/new", "content": "x\n"}));
    let (outcome, transcript) = run(&stack.api, &session, &format!("{write}\n@text over")).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    assert!(!transcript.kinds().contains(&"flotilla.snapshot.missed"), "{:?}", transcript.kinds());
    assert_eq!(installs(&stack).await, 1, "the install ran once");
}

/// The environments that were built for the tenant.
async fn installs(stack: &Stack) -> usize {
    let request = v1::ListEnvironmentsRequest::default();
    stack.api.environments().list_environments(request).await.unwrap().into_inner().environments.len()
}
