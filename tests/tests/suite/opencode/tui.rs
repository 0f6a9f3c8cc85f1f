//! The real `opencode attach` in a terminal whose screen the test reads. The tests run one after the other, because it is a
//! large program.

use super::{client::Client, events::Events, installed::find_opencode, screen::Screen};
use e2e::{Options, Stack, bench::machine::process::Process, opencode::OpenCode};
use serde_json::{Value, json};
use testkit::proxy::{
    Proxy,
    link::{ConnectionEnd, Rules},
};

/// The answers of the model to the typed words.
const SCRIPT: &str = r#"
[[rule]]
match = "greet"
[[rule.step]]
reasoning = "Somebody wants to be greeted."
text = "Hello from the agent."

[[rule]]
match = "count"
[[rule.step]]
tool = [{ name = "bash", input = { command = "echo it-$((40+2))", description = "Counts" } }]
[[rule.step]]
text = "That was counted."

[[rule]]
match = "colour"
[[rule.step]]
tool = [{ name = "question", input = { questions = [{ question = "Which one?", header = "Colour", options = [{ label = "Crimson", description = "a red" }, { label = "Teal", description = "a blue" }] }] } }]
[[rule.step]]
text = "They say: {{last_tool_result}}"

[[rule]]
match = "deeper"
[[rule.step]]
tool = [{ name = "task", input = { description = "Look there", prompt = "count", subagent_type = "general" } }]
[[rule.step]]
text = "The subtask is over."

[[rule]]
match = "story"
[[rule.step]]
delay_ms = 100
chunk = 4
text = "Once upon a time there was a long story that nobody could hear to its end in less than five seconds, and they lived happily ever after."

[[rule]]
match = "riddle"
[[rule.step]]
chunk = 10
fault = [{ stall = 2 }]
text = "A riddle begins, and nobody ever hears its end."
"#;
/// The start and the end of the story.
const STORY: (&str, &str) = ("Once upon", "ever after.");
/// The text that the screen shows during a turn.
const BUSY: &str = "esc interrupt";
/// The keys of a terminal.
const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";
const DOWN: &str = "\x1b[B";
const UP: &str = "\x1b[A";
/// Ctrl+X and the arrow down: from a session to its child.
const INTO_CHILD: &str = "\x18\x1b[B";

async fn stack(workers: usize) -> Stack {
    let stack = Stack::with(Options { script: SCRIPT.to_owned(), workers, ..Options::default() }).await;
    super::store_settings(&stack, &json!({"permission": {"bash": "ask"}})).await;
    stack
}

/// Starts a client in the directory of `opencode`.
async fn attach(opencode: &OpenCode, url: &str, key: &str) -> Screen {
    let arguments =
        ["attach", url, "--dir", opencode.directory().to_str().unwrap(), "-p", key, "-u", "anybody"];
    let mut screen = Screen::start(opencode.command(&arguments));
    screen.until_output("Ask anything").await;
    screen.until_output("demo").await;
    screen
}

/// Types a prompt, and sends it when the screen shows it.
async fn say(screen: &mut Screen, prompt: &str) {
    screen.type_in(prompt);
    screen.until_output(prompt).await;
    screen.type_in(ENTER);
}

/// Waits until a turn ends: its answer is on the screen, and no turn is running.
async fn answered(screen: &mut Screen, text: &str) {
    screen.until(text, |display| flat(display).contains(text) && !display.contains(BUSY)).await;
}

/// Joins the lines of a screen, because long texts wrap anywhere.
fn flat(screen: &str) -> String {
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn the_tui_shows_every_part_of_a_turn() {
    if e2e::is_left_out(&["nats"], "live text comes through NATS only") {
        return;
    }
    let Some(opencode) = find_opencode() else { return };
    let stack = stack(1).await;
    let client = Client::new(&stack, opencode.directory().to_str().unwrap());
    // Without a project, the first session shows a toast, which would cover the one of this test.
    client.post("/project/git/init", Value::Null).await;
    let mut screen = attach(&opencode, stack.gateway_url(), &stack.api.key).await;
    assert!(!screen.text().to_lowercase().contains("error"), "{}", screen.text());

    say(&mut screen, "greet").await;
    answered(&mut screen, "Hello from the agent.").await;

    // A command of a program other than the TUI, such as the extension of an editor.
    let toast = json!({"message": "CI is green", "variant": "success"});
    client.post("/tui/show-toast", toast).await;
    screen.until_output("CI is green").await;
    client.post("/tui/append-prompt", json!({"text": "cou"})).await;
    screen.until_output("cou").await;
    client.post("/tui/append-prompt", json!({"text": "nt"})).await;
    screen.until_output("count").await;
    client.post("/tui/submit-prompt", Value::Null).await;
    screen.until_output("Permission required").await;
    screen.type_in(ENTER);
    answered(&mut screen, "That was counted.").await;
    assert!(screen.text().contains("it-42"), "what the command printed\n{}", screen.text());

    say(&mut screen, "colour").await;
    screen.until_output("2. Teal").await;
    screen.type_in(DOWN);
    screen.type_in(ENTER);
    answered(&mut screen, "They say:").await;
    assert!(flat(&screen.text()).contains("Teal"), "the second one was chosen\n{}", screen.text());

    // The dialog of the child appears in the view of its parent.
    say(&mut screen, "deeper").await;
    screen.until_output("Permission required").await;
    assert!(screen.text().contains("echo it-$((40+2))"), "{}", screen.text());
    screen.type_in(ENTER);
    answered(&mut screen, "The subtask is over.").await;
    assert!(screen.text().contains("Look there"), "{}", screen.text());
    screen.type_in(INTO_CHILD);
    screen
        .until("the child", |display| !display.contains("The subtask is over.") && display.contains("it-42"))
        .await;
    screen.type_in(UP);
    answered(&mut screen, "The subtask is over.").await;

    say(&mut screen, "riddle").await;
    screen.until_output("A riddle begins").await;
    screen.type_in(ESCAPE);
    screen.until_output("again to interrupt").await;
    screen.type_in(ESCAPE);
    screen
        .until("an interrupted turn", |display| display.contains("interrupted") && !display.contains(BUSY))
        .await;
}

/// Tests a case that real OpenCode does not survive: its TUI waits for ever for missed events.
#[tokio::test]
async fn the_tui_shows_a_whole_answer_after_a_cut_stream_and_a_killed_worker() {
    if e2e::is_left_out(&["nats"], "live text comes through NATS only") {
        return;
    }
    let Some(opencode) = find_opencode() else { return };
    let stack = stack(0).await;
    let worker = Process::worker(&stack, 1);
    let link =
        Proxy::start(stack.gateway_url().trim_start_matches("http://").parse().unwrap()).await.unwrap();
    let mut screen = attach(&opencode, &format!("http://{}", link.address), &stack.api.key).await;

    say(&mut screen, "story").await;
    screen.until_output(STORY.0).await;
    let client = Client::new(&stack, opencode.directory().to_str().unwrap());
    let mut observer = Events::of(&client, "/event", "").await;
    link.set(Rules { refuses: true, ..Rules::default() });
    link.cut(ConnectionEnd::Reset);
    // The answer ends while the client is disconnected, so no later event contains it.
    observer.until(|event| event["type"] == "session.idle").await;
    link.set(Rules::default());
    answered(&mut screen, STORY.1).await;
    // The directory was unknown. The toast is gone after five seconds; the note stays in the session.
    screen.until("the note", |display| flat(display).contains("this session has no files")).await;
    say(&mut screen, "greet").await;
    answered(&mut screen, "Hello from the agent.").await;

    let again = "another story please";
    say(&mut screen, again).await;
    let newest = |display: &str| display.rsplit(again).next().unwrap_or_default().to_owned();
    screen.until("a second story", |display| newest(display).contains(STORY.0)).await;
    worker.kill();
    let _successor = Process::worker(&stack, 2);
    screen
        .until("its end", |display| flat(&newest(display)).contains(STORY.1) && !display.contains(BUSY))
        .await;
    let sessions = client.get("/session").await;
    assert_eq!(sessions.as_array().unwrap().len(), 1, "everything happened in one session");
}
