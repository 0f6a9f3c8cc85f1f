//! The command line as people and programs use it: the real program, in a real terminal and in pipes.

use crate::opencode::screen::Screen;
use e2e::{Options, Stack, faults::cluster::sibling};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{fs, process::Stdio};
use tempfile::TempDir;
use testkit::proxy::{Proxy, link::ConnectionEnd};
use tokio::{io::AsyncWriteExt as _, process::Command};

/// The model is silent for longer than people like to wonder.
const SCRIPT: &str = r#"
[[rule]]
match = "greet"
[[rule.step]]
delay_ms = 1300
text = "Hello from the agent."
"#;
/// The key that begins a command to `flotilla pty`, and the command to leave.
const LEAVE: &str = "\x1dq";

/// A person with a home directory and a repository.
struct Person {
    home: TempDir,
    url: String,
    key: String,
}

impl Person {
    fn of(stack: &Stack) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("app")).unwrap();
        Self { home, url: stack.gateway_url().to_owned(), key: stack.api.key.clone() }
    }

    /// A command in the repository.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(sibling("flotilla").unwrap());
        command
            .args(words)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
            .envs([("HOME", self.home.path()), ("XDG_CONFIG_HOME", &self.home.path().join("config"))])
            .envs([("FLOTILLA_URL", &self.url), ("FLOTILLA_API_KEY", &self.key)])
            .envs([("LANG", "C.UTF-8"), ("TERM", "xterm-256color"), ("FLOTILLA_PAGER", "")])
            .current_dir(self.home.path().join("app"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a command in pipes. Returns its exit code, its lines, and the lines of its standard error.
    async fn run(&self, words: &[&str]) -> CommandOutput {
        let output = self.command(words).output().await.unwrap();
        let lines = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line))).collect()
        };
        CommandOutput {
            exit: output.status.code().unwrap(),
            lines: lines(output.stdout),
            errors: lines(output.stderr),
        }
    }

    /// Runs a command in a terminal.
    fn at_a_terminal(&self, words: &[&str], variables: &[(&str, &str)]) -> Screen {
        let mut command = self.command(words);
        command.envs(variables.iter().copied());
        Screen::start(command)
    }
}

#[derive(Debug)]
struct CommandOutput {
    exit: i32,
    lines: Vec<Value>,
    errors: Vec<Value>,
}

/// Makes a repository of the person's directory.
async fn make_repository(person: &Person) {
    let git = async |words: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(person.home.path().join("app")).args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
        ]);
        assert!(git.args(words).status().await.unwrap().success(), "{words:?}");
    };
    fs::write(person.home.path().join("app/a.txt"), "one\n").unwrap();
    git(&["init", "--quiet", "--initial-branch=trunk"]).await;
    git(&["add", "."]).await;
    git(&["commit", "--quiet", "-m", "one"]).await;
}

/// Takes about five seconds: the model must be silent for longer than a second, and one stack serves all parts.
#[tokio::test]
async fn the_command_line_serves_people_and_programs() {
    let stack = Stack::with(Options { script: SCRIPT.to_owned(), ..Options::default() }).await;
    let person = Person::of(&stack);
    make_repository(&person).await;
    let session = programs_read_every_line(&person).await;
    people_see_waits_pages_and_colours(&person, &session).await;
    a_terminal_opens_in_the_sandbox(&person, &session).await;
    a_prompt_comes_from_standard_input(&person).await;
    a_shallow_clone_is_sent_once(&person).await;
}

/// The same stack serves all parts.
#[tokio::test]
async fn sessions_have_short_names_and_ask_the_person_at_the_terminal() {
    let stack = Stack::with(Options { script: SCRIPT.to_owned(), ..Options::default() }).await;
    let person = Person::of(&stack);
    make_repository(&person).await;
    let session = sessions_are_named_in_short(&person).await;
    a_command_prints_its_output_alone(&person, &session).await;
    the_person_at_the_terminal_answers(&person).await;
}

/// Returns the session of this directory.
async fn sessions_are_named_in_short(person: &Person) -> String {
    let none = person.run(&["say", "@", "x", "--json"]).await;
    assert_eq!((none.exit, &none.lines[0]["code"]), (1, &json!("session_not_found")), "{none:?}");
    let write = |content: &str| {
        let input = json!({"filePath": "b.txt", "content": content});
        format!("@tool write {input}\n@text done")
    };
    let run = person.run(&["run", "--json", &write("one\n")]).await;
    let session = run.lines.last().unwrap()["session"].as_str().unwrap().to_owned();
    let end = &session[session.len() - 10..];
    let said = person.run(&["say", end, &write("two\n")]).await;
    let text = said.lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
    // Its own changes, and its own cost before that of the session.
    assert!(text.contains("-one") && text.contains("+two") && text.contains(" (session: $"), "{text}");
    let continued = person.run(&["run", "-c", "--json", "@text here"]).await;
    assert_eq!(continued.lines.last().unwrap()["session"], json!(session), "{continued:?}");
    let reverted = person.run(&["revert", "@", "--json"]).await;
    assert_eq!((reverted.exit, &reverted.lines[0]["session"]), (0, &json!(session)), "{reverted:?}");
    let unknown = person.run(&["diff", "zzzzzzzz"]).await;
    assert!(unknown.errors[0].as_str().unwrap().contains("`flotilla ls`"), "{unknown:?}");

    let models = person.run(&["models", "--json"]).await;
    assert_eq!(models.lines[0]["name"], json!("chat/demo"), "{models:?}");
    let version = person.run(&["version", "--json"]).await;
    assert_eq!(version.lines[0]["server"], version.lines[0]["client"], "{version:?}");
    let export = person.command(&["export", end]).output().await.unwrap();
    let export: Value = serde_json::from_slice(&export.stdout).unwrap();
    assert_eq!(
        (&export["info"]["id"], &export["messages"][0]["info"]["role"]),
        (&json!(session), &json!("user"))
    );
    let quiet = person.run(&["ls", "-q", "--project", "app", "--state", "idle"]).await;
    assert_eq!(quiet.lines, [json!(session)], "{quiet:?}");
    session
}

async fn a_command_prints_its_output_alone(person: &Person, session: &str) {
    let shell = async |words: &[&str]| {
        let output = person.command(&[&["shell", session], words].concat()).output().await.unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(shell(&["printf 'a\\nb\\n'"]).await, (Some(0), "a\nb\n".to_owned(), String::new()));
    let (exit, output, errors) = shell(&["echo out; exit 3"]).await;
    assert_eq!((exit, output.as_str()), (Some(3), "out\n"), "{errors}");
    assert!(errors.contains("Exit code 3"), "{errors}");
    // More than a call shows.
    let (_, output, _) = shell(&["seq 100000"]).await;
    assert!(output.starts_with("1\n2\n") && output.ends_with("\n100000\n"), "{} bytes", output.len());
    assert_eq!(output.lines().count(), 100_000);
    let (_, output, _) = shell(&["echo new > c.txt", "--patch"]).await;
    assert!(output.contains("c.txt") && output.contains("+new"), "{output}");
}

async fn the_person_at_the_terminal_answers(person: &Person) {
    let prompt = format!("{}\n@text finished", e2e::turn::bash("echo al''lowed"));
    let piped = person.run(&["run", "--ask", "bash", &prompt]).await;
    assert_eq!(piped.exit, 3, "{piped:?}");
    let run = ["run", "--ask", "bash", "--outputs", &prompt];
    let mut screen = person.at_a_terminal(&run, &[]);
    screen.until_output("(o)nce, (a)lways or (r)eject").await;
    screen.type_in("perhaps\ro\r");
    screen
        .until("the output and the end", |text| text.contains("allowed") && text.contains("finished"))
        .await;
    assert_eq!(screen.exit_code().await, Some(0));

    let mut screen = person.at_a_terminal(&run, &[]);
    screen.until_output("(o)nce, (a)lways or (r)eject").await;
    screen.type_in("r\ruse sed\r");
    assert_eq!(screen.exit_code().await, Some(0), "{}", screen.text());
    let exported = person.run(&["messages", "@", "--json"]).await;
    assert!(exported.lines.iter().any(|line| line.to_string().contains("use sed")), "{exported:?}");

    let options = json!([{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]);
    let ask = json!({"questions": [{"question": "Which colour?", "header": "colour", "options": options}]});
    let mut screen =
        person.at_a_terminal(&["run", "--questions", &format!("@tool question {ask}\n@text finished")], &[]);
    screen.until_output("2  blue  cold").await;
    screen.type_in("2\r");
    assert_eq!(screen.exit_code().await, Some(0), "{}", screen.text());

    // Nothing is answered, and the session waits.
    for (keys, exit) in [("\x04", 3), ("\x03", 130)] {
        let mut screen = person.at_a_terminal(&run, &[]);
        screen.until_output("(o)nce, (a)lways or (r)eject").await;
        // The terminal of a login would send the signal for Ctrl-C.
        if keys == "\x03" {
            screen.signal(Signal::SIGINT)
        } else {
            screen.type_in(keys)
        }
        assert_eq!(screen.exit_code().await, Some(exit), "{}", screen.text());
    }
    let waiting = person.run(&["ls", "-q", "--state", "waiting"]).await;
    assert_eq!(waiting.lines.len(), 3, "{waiting:?}");
}

/// Runs a command whose standard input has this text. Returns what it printed to its standard error.
async fn run_with(person: &Person, words: &[&str], input: &str) -> String {
    let mut command = person.command(words);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{words:?}: {errors}");
    errors
}

/// The text of the newest prompt.
async fn newest_prompt(person: &Person) -> String {
    let sessions = person.run(&["ls", "--json"]).await.lines;
    // The end of an earlier turn may put its session first.
    let newest = sessions.iter().max_by_key(|session| session["created_at_ms"].as_i64()).unwrap();
    let messages = person.run(&["messages", newest["id"].as_str().unwrap(), "--json"]).await.lines;
    let prompt = messages.iter().find(|message| message["info"]["role"] == "user").expect("a prompt");
    prompt["parts"][0]["text"].as_str().unwrap().to_owned()
}

async fn a_prompt_comes_from_standard_input(person: &Person) {
    let run = ["run", "--repo", ".", "--detach"];
    for (words, want) in [
        (&["-"][..], "greet me".to_owned()),
        (&[], "greet me".to_owned()),
        (&["explain"], "explain\n\ngreet me".to_owned()),
    ] {
        run_with(person, &[&run, words].concat(), "greet me").await;
        assert_eq!(newest_prompt(person).await, want, "{words:?}");
    }
    // More than a command line can have.
    let long = "greet ".repeat(30_000);
    run_with(person, &[&run[..], &["-"]].concat(), &long).await;
    assert_eq!(newest_prompt(person).await, long);
}

async fn a_shallow_clone_is_sent_once(person: &Person) {
    let home = person.home.path();
    let source = format!("file://{}", home.join("app").display());
    let git = async |words: &[&str]| {
        assert!(Command::new("git").current_dir(home).args(words).status().await.unwrap().success());
    };
    git(&[
        "-C",
        "app",
        "-c",
        "user.name=t",
        "-c",
        "user.email=t",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "two",
    ])
    .await;
    git(&["clone", "-q", "--depth=1", &source, "shallow"]).await;
    let run = ["run", "--repo", "../shallow", "greet me"];
    let first = run_with(person, &run, "").await;
    assert!(first.contains("sending shallow at"), "{first}");
    let second = run_with(person, &run, "").await;
    assert!(second.contains("is already there"), "{second}");
}

/// Returns the session of a run.
async fn programs_read_every_line(person: &Person) -> String {
    let login = person.run(&["login", &person.url, "--name", "work", "--json"]).await;
    assert_eq!(login.lines, [json!({"type": "login", "context": "work", "url": person.url})], "{login:?}");
    let contexts = person.run(&["context", "ls", "--json"]).await;
    assert_eq!(
        (&contexts.lines[0]["name"], &contexts.lines[0]["is_current"]),
        (&json!("work"), &json!(true))
    );

    let run = person.run(&["run", "--json", "@text done"]).await;
    let last = run.lines.last().unwrap();
    let session = last["session"].as_str().unwrap().to_owned();
    let want = json!({
        "type": "outcome", "session": session, "status": "idle", "exit": 0, "outcome": "done", "code": null, "message": null,
    });
    assert_eq!((run.exit, last), (0, &want), "{run:?}");
    assert_eq!((&run.lines[0]["type"], &run.lines[1]["seq"]), (&json!("prompt"), &json!(1)));
    assert!(run.errors.iter().all(|line| line["type"] == "note"), "{run:?}");

    // The repository has no such command.
    let refused = person.run(&["run", "--json", "--command", "nope"]).await;
    let last = refused.lines.last().unwrap();
    assert_eq!((refused.exit, &last["code"], &last["exit"]), (1, &json!("command_not_found"), &json!(1)));
    let missing = person.run(&["diff", "--json", &session.to_uppercase().replace("SES_", "ses_")]).await;
    assert_eq!(
        (missing.exit, &missing.errors[0]["error"]["code"]),
        (1, &json!("session_not_found")),
        "{missing:?}"
    );
    let unclear = person.run(&["diff", "--json"]).await;
    assert_eq!((unclear.exit, &unclear.errors[0]["error"]["code"]), (1, &json!("usage")), "{unclear:?}");
    session
}

async fn people_see_waits_pages_and_colours(person: &Person, session: &str) {
    let mut run = person.at_a_terminal(&["say", session, "greet"], &[]);
    run.until("a silent model", |screen| screen.contains("model … 1 s")).await;
    assert_eq!(run.exit_code().await, Some(0));
    run.until("no line of a wait", |screen| {
        screen.contains("Hello from the agent.") && !screen.contains("model …")
    })
    .await;

    let paged = [("FLOTILLA_PAGER", "sed s/^/page:/")];
    let mut messages = person.at_a_terminal(&["messages", session], &paged);
    messages.until_output("page:Hello from the agent.").await;
    let mut plain = person.at_a_terminal(&["messages", session, "--no-pager"], &paged);
    plain.until("no pager", |screen| screen.contains("Hello") && !screen.contains("page:")).await;
    let mut list = person.at_a_terminal(&["ls"], &[]);
    list.until_output(session).await;
    assert!(list.is_coloured());
    for refusal in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut list = person.at_a_terminal(&["ls"], &[refusal]);
        list.until_output(session).await;
        assert!(!list.is_coloured(), "{refusal:?}");
    }
}

async fn a_terminal_opens_in_the_sandbox(person: &Person, session: &str) {
    let refused = person.run(&["pty", session]).await;
    assert_eq!((refused.exit, refused.lines.len()), (1, 0), "a pipe is no terminal: {refused:?}");

    let mut screen = person.at_a_terminal(&["pty", session, "--", "/bin/sh"], &[]);
    screen.until_output("Ctrl-] q leaves it").await;
    screen.type_in("stty size; cat a.txt\r");
    screen.until_output("44 110").await;
    screen.until_output("one").await;
    assert!(!screen.is_cooked(), "every key goes to the program");
    screen.resize(30, 90);
    screen.type_in("until [ \"$(stty size)\" = '30 90' ]; do :; done; echo re''sized; exit 7\r");
    screen.until_output("resized").await;
    assert_eq!(screen.exit_code().await, Some(7), "{}", screen.text());
    assert!(screen.is_cooked());

    let mut screen = person.at_a_terminal(&["pty", session, "--", "/bin/sh"], &[]);
    screen.type_in("printf '\\033[?1049h\\033[?25l'; echo in''side\r");
    screen.until_output("inside").await;
    screen.type_in(LEAVE);
    screen.until_output("left the terminal").await;
    assert_eq!((screen.exit_code().await, screen.is_cooked()), (Some(0), true));
    let listed = person.run(&["pty", session, "--ls", "--json"]).await;
    let id = listed.lines[0]["id"].as_str().unwrap();
    assert_eq!(
        (listed.lines.len(), &listed.lines[0]["exit_code"]),
        (1, &Value::Null),
        "the first was removed"
    );

    // A signal, and a lost connection.
    let mut screen = person.at_a_terminal(&["pty", session, "--attach", id], &[]);
    screen.type_in("echo sti''ll\r");
    screen.until_output("still").await;
    screen.signal(Signal::SIGTERM);
    assert_eq!((screen.exit_code().await, screen.is_cooked()), (Some(128 + 15), true));
    let link = Proxy::start(person.url.trim_start_matches("http://").parse().unwrap()).await.unwrap();
    let url = format!("http://{}", link.address);
    let mut screen = person.at_a_terminal(&["pty", session, "--attach", id, "--url", &url], &[]);
    screen.type_in("echo over the li''nk\r");
    screen.until_output("over the link").await;
    link.cut(ConnectionEnd::Reset);
    screen.until_output("lost the terminal").await;
    assert_eq!((screen.exit_code().await, screen.is_cooked()), (Some(1), true));
}
