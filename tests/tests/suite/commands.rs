//! Commands of a repository, and shell commands of a person.

use e2e::{
    Stack,
    api::assert_refused,
    turn::{Transcript, Watch, bash, run, run_request},
};
use rpc::v1::{self, PermissionVerdict, prompt_part::Kind};
use serde_json::{Value, json};
use tonic::Code;

fn command(name: &str, arguments: &str) -> v1::PromptPart {
    let command = v1::CommandPart { name: name.to_owned(), arguments: arguments.to_owned() };
    Kind::Command(command).into()
}

fn shell(command: &str) -> v1::PromptPart {
    let shell = v1::ShellPart { command: command.to_owned(), timeout_ms: 0 };
    Kind::Shell(shell).into()
}

async fn run_part(stack: &Stack, session: &str, part: v1::PromptPart) -> (String, Transcript) {
    run_request(&stack.api, session, |prompt| prompt.parts = vec![part]).await
}

fn executed(transcript: &Transcript) -> Vec<&Value> {
    let executed = transcript.events.iter().filter(|event| event.kind == "command.executed");
    executed.map(|event| &event.properties).collect()
}

/// Returns the texts of a message that a person sees.
fn visible_texts(parts: &[Value]) -> Vec<&str> {
    let texts = parts.iter().filter(|part| part["type"] == "text" && part["synthetic"] != true);
    texts.filter_map(|part| part["text"].as_str()).collect()
}

#[tokio::test]
async fn a_command_expands_its_template_with_the_arguments() {
    let stack = Stack::start().await;
    let greet = "---\ndescription: greets\nagent: greeter\n---\nGreet $1 and then $2.\nHere: !`ls docs; echo run >> ran`\n\
                 See @docs/a.txt and @explore, not @missing.\n@text greeted\n";
    let repository = testkit::git::repository(&[
        (".opencode/command/greet.md", greet),
        (".opencode/agent/greeter.md", "---\nmode: primary\n---\nYou greet."),
        ("docs/a.txt", "the file\n"),
    ]);
    let session = stack.session_on(&repository).await;
    let (outcome, transcript) = run_part(&stack, &session, command("greet", "Ann 'Bob and' Carl")).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());

    let messages = stack.model.journal.requests()[0].body["messages"].to_string();
    for words in
        ["Greet Ann and then Bob and Carl.", "Here: a.txt\\nSee @docs", "1: the file", "subagent: explore"]
    {
        assert!(messages.contains(words), "{words}: {messages}");
    }
    assert!(!messages.contains("failed to read"), "a missing path is not a file: {messages}");
    let talk = stack.api.conversation(&session).await;
    assert!(visible_texts(&talk[0].1)[0].starts_with("Greet Ann and"), "{:?}", talk[0].1);
    assert_eq!(
        (talk[0].0["agent"].as_str(), talk[1].0["agent"].as_str()),
        (Some("greeter"), Some("greeter"))
    );
    let kinds: Vec<_> = talk[0].1.iter().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!(kinds, ["text", "file", "agent", "text", "text", "text"], "{:?}", talk[0].1);
    let events = executed(&transcript);
    assert_eq!(events.len(), 1);
    assert_eq!((events[0]["name"].as_str(), &events[0]["messageID"]), (Some("greet"), &talk[1].0["id"]));
    assert_eq!(events[0]["arguments"], "Ann 'Bob and' Carl");

    // A later turn neither expands nor announces the command again.
    let (_, transcript) = run(&stack.api, &session, &bash("cat ran")).await;
    assert_eq!(executed(&transcript).len(), 1, "of the first turn");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls[0].result, "run\n", "the command of the shell ran once");
}

#[tokio::test]
async fn a_command_can_run_as_a_subtask() {
    let stack = Stack::start().await;
    let look = r#"{"command": {"look": {"template": "@text looked at $ARGUMENTS", "description": "looks", "subtask": true}}}"#;
    let repository = testkit::git::repository(&[("opencode.json", look)]);
    let session = stack.session_on(&repository).await;
    let (outcome, transcript) = run_part(&stack, &session, command("look", "the sky")).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let children = stack.api.children(&session).await;
    assert_eq!(children.len(), 1);
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[0].result.contains("looked at the sky"), "{}", calls[0].result);
    let talk = stack.api.conversation(&session).await;
    let task = talk[0].1.iter().find(|part| part["type"] == "subtask").unwrap();
    assert_eq!((task["command"].as_str(), task["description"].as_str()), (Some("look"), Some("looks")));
    assert_eq!(talk[0].1[0]["text"], "/look the sky", "the text of the person stays");
    assert_eq!(executed(&transcript).len(), 1);
}

#[tokio::test]
async fn a_command_of_a_person_has_an_hour_or_the_time_that_the_person_names() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run_part(&stack, &session, shell("echo done")).await;
    let timeouts = async || {
        let talk = stack.api.conversation(&session).await;
        let parts: Vec<Value> = talk.into_iter().flat_map(|(_, parts)| parts).collect();
        let states = parts.iter().filter(|part| part["tool"] == "bash").map(|part| &part["state"]);
        states.map(|state| (state["input"]["timeout"].clone(), state["output"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(timeouts().await, [(Value::Null, json!("done\n"))], "the model does not see the time");
    let short = v1::ShellPart { command: "echo begun; sleep 98705".to_owned(), timeout_ms: 1_000 };
    run_part(&stack, &session, Kind::Shell(short).into()).await;
    let told = timeouts().await[1].1.to_string();
    assert!(told.contains("begun") && told.contains("stopped after 1 s"), "{told}");
    assert!(told.contains("--timeout SECONDS") && !told.contains("background"), "{told}");
    let long = v1::ShellPart { command: "true".to_owned(), timeout_ms: 43_200_001 };
    let long = v1::AcceptPromptRequest {
        session_id: session.clone(),
        parts: vec![Kind::Shell(long).into()],
        ..Default::default()
    };
    assert_refused(stack.api.prompts().accept_prompt(long).await, Code::InvalidArgument, "part_invalid");
    // A call of a model keeps its bound.
    let call = format!("@tool bash {}\n@text over", json!({"command": "true", "timeout": 600_001}));
    run(&stack.api, &session, &call).await;
    let cut = stack.api.tool_calls(&session).await.pop().unwrap();
    assert_eq!(cut.input["timeout"], 600_000, "{cut:?}");
}

#[tokio::test]
async fn a_command_runs_its_shell_lines_unless_they_are_denied() {
    let stack = Stack::start().await;
    let run = "A !`echo 1` B !`echo @a.txt` C !`rm a.txt`\n@text over\n";
    let say = "Said !`echo $1` !`echo \"$1 $ARGUMENTS\"`\n@text over\n";
    let files = [
        (".opencode/command/run.md", run),
        (".opencode/command/say.md", say),
        (".opencode/command/review.md", "---\nmodel: claude/demo\n---\n@text mine\n"),
        (".opencode/command/dig.md", "---\nagent: explore\n---\n@text dug\n"),
        (".opencode/command/long.md", "$ARGUMENTS $ARGUMENTS"),
        ("opencode.json", r#"{"permission": {"bash": {"rm *": "deny"}}}"#),
        ("a.txt", "the file\n"),
    ];
    let session = stack.session_on(&testkit::git::repository(&files)).await;
    let run = async |name: &str, arguments: &str| run_part(&stack, &session, command(name, arguments)).await;
    assert_eq!(run("run", "").await.0, "done");
    let talk = stack.api.conversation(&session).await;
    let text = visible_texts(&talk[0].1)[0];
    assert!(text.starts_with("A 1 B @a.txt C (`rm a.txt` was not run: a rule denies it)"), "{text}");
    assert!(
        talk[0].1.iter().all(|part| part["type"] == "text"),
        "the output of the shell names no file: {talk:?}"
    );

    assert_eq!(run("say", "\"a; touch b\" $(touch b)").await.0, "done");
    let talk = stack.api.conversation(&session).await;
    let text = visible_texts(&talk.iter().rev().nth(1).unwrap().1)[0];
    let words = "a; touch b $(touch b)";
    assert!(
        text.starts_with(&format!("Said {words} {words} \"a; touch b\" $(touch b)")),
        "arguments are data: {text}"
    );

    assert_eq!(run("review", "").await.0, "done");
    let talk = stack.api.conversation(&session).await;
    let (info, parts) = talk.last().unwrap();
    assert_eq!(visible_texts(parts), ["mine"], "the command of the repository precedes the built-in one");
    assert_eq!(info["providerID"], "claude", "it also chooses the model");

    assert_eq!(run("dig", "").await.0, "done");
    assert_eq!(stack.api.children(&session).await.len(), 1, "a subagent answers as a task");

    let (outcome, transcript) = run("long", &"x".repeat(600_000)).await;
    let error = transcript.error().unwrap()["data"]["message"].as_str().unwrap().to_owned();
    let words = "the command /long expands to 1200001 bytes; the limit is 1048576 bytes";
    assert_eq!((outcome.as_str(), error.as_str()), ("failed", words));
}

#[tokio::test]
async fn invalid_commands_are_reported() {
    let stack = Stack::start().await;
    let many = format!("{{\"command\": {{\"many\": {{\"template\": \"{}\"}}}}}}", "!`true`".repeat(17));
    let repository = testkit::git::repository(&[("opencode.json", &many)]);
    let session = stack.session_on(&repository).await;
    for (name, code, words) in [
        (
            "nothing",
            "command_not_found",
            "the command /nothing does not exist; available commands: init, many, review",
        ),
        ("many", "command_invalid", "the command /many runs 17 shell commands; the limit is 16"),
    ] {
        let (outcome, transcript) = run_part(&stack, &session, command(name, "")).await;
        let error = json!({"message": words, "ref": code});
        assert_eq!((outcome.as_str(), &transcript.error().unwrap()["data"]), ("failed", &error));
        assert!(executed(&transcript).is_empty());
    }
    assert!(stack.model.journal.requests().is_empty());
    let ask = async |parts: Vec<v1::PromptPart>, text: &str, no_reply: bool| {
        let ask = |prompt: &mut v1::AcceptPromptRequest| {
            (prompt.parts, prompt.text, prompt.no_reply) = (parts, text.to_owned(), no_reply);
        };
        stack.api.prompt_with(&session, ask).await
    };
    let task = command("review", "");
    for (parts, text, no_reply, code) in [
        (vec![command("", "")], "", false, "command_invalid"),
        (vec![command("a b", "")], "", false, "command_invalid"),
        (vec![shell(" ")], "", false, "command_invalid"),
        (vec![task.clone()], "and this", false, "part_invalid"),
        (vec![task.clone(), task.clone()], "", false, "part_invalid"),
        (vec![task.clone(), shell("ls")], "", false, "part_invalid"),
        (vec![shell("ls")], "and this", false, "part_invalid"),
        (vec![shell("ls")], "", true, "no_reply_task"),
        (vec![task], "", true, "no_reply_task"),
    ] {
        let case = format!("{parts:?} {text:?}");
        let refused = ask(parts, text, no_reply).await;
        assert!(refused.is_err(), "{case}");
        assert_refused(refused, Code::InvalidArgument, code);
    }
}

#[tokio::test]
async fn a_shell_command_of_a_person_reaches_the_agent_without_a_model_call() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let (outcome, transcript) = run_part(&stack, &session, shell("echo hi > note; cat note")).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    assert!(stack.model.journal.requests().is_empty());
    let talk = stack.api.conversation(&session).await;
    assert_eq!(talk.len(), 2);
    assert_eq!(talk[0].1[0]["text"], "The following tool was executed by the user");
    let call = &stack.api.tool_calls(&session).await[0];
    assert_eq!((call.tool.as_str(), call.result.as_str()), ("bash", "hi\n"));

    let mut watch = Watch::start(&stack.api, &session).await;
    watch.until_idle().await;
    stack.api.prompt(&session, &format!("{}\n@text over", bash("echo on; sleep 2"))).await.unwrap();
    watch.until_output("on").await;
    let busy = stack.api.prompt_with(&session, |prompt| prompt.parts = vec![shell("ls")]).await;
    assert_refused(busy, Code::FailedPrecondition, "session_busy");
    assert_eq!(watch.until_idle().await, "done");
    let messages = stack.model.journal.requests()[0].body["messages"].to_string();
    assert!(messages.contains("executed by the user") && messages.contains("echo hi > note"), "{messages}");

    // A person needs no permission for a shell command, but rules that deny it apply.
    let rules = [("bash", PermissionVerdict::Ask), ("bash:rm *", PermissionVerdict::Deny)];
    let session = stack.api.session_with_rules(&rules).await;
    run_part(&stack, &session, shell("echo allowed")).await;
    let (outcome, _) = run_part(&stack, &session, shell("echo kept > file; rm file")).await;
    assert_eq!(outcome, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls[0].result, "allowed\n");
    assert!(calls[1].result.contains("deny this command"), "{}", calls[1].result);
}

#[tokio::test]
async fn a_command_whose_worker_crashed_during_expansion_runs_once() {
    let mut stack = Stack::start().await;
    let slow = "Wait: !`echo ran >> count; sleep 9; cat count`\n@text waited\n";
    let repository = testkit::git::repository(&[(".opencode/command/slow.md", slow)]);
    let session = stack.session_on(&repository).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt_with(&session, |prompt| prompt.parts = vec![command("slow", "")]).await.unwrap();
    let has_begun = async || {
        let request = v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() };
        let diff = stack.api.sessions().get_session_diff(request).await;
        diff.is_ok_and(|diff| diff.into_inner().patch.contains("+ran"))
    };
    testkit::eventually("the command of the shell runs", has_begun).await;
    stack.crash_worker(0);
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "done");
    let talk = stack.api.conversation(&session).await;
    assert!(visible_texts(&talk[0].1)[0].starts_with("Wait: ran\n@text"), "{:?}", talk[0].1);
}

#[tokio::test]
async fn an_abort_ends_the_expansion_of_a_command() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[(".opencode/command/long.md", "!`sleep 100`")]);
    let session = stack.session_on(&repository).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt_with(&session, |prompt| prompt.parts = vec![command("long", "")]).await.unwrap();
    watch.until(|event| event.kind == "session.status").await;
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    let (outcome, transcript) = run(&stack.api, &session, "@text still here").await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    assert!(stack.model.journal.requests().len() == 1);
}
