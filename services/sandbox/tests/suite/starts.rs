//! The script that starts a sandbox: when it runs, what it leaves, and what commands are told of it.

use crate::harness::{Machine, Session, code, directory};
use rpc::v1::{ExecEnd, WorkspaceHeader};
use tempfile::TempDir;

/// Answers whatever is written into a FIFO, as long as the sandbox lives.
const SERVER: &str = "mkfifo /tmp/ask /tmp/answer; (while :; do cat /tmp/ask > /tmp/answer; done) &";
/// Asks it. The server may open the answer again before a reader sees its end, so the reader takes one line.
const ASK: &str = "echo hello > /tmp/ask & timeout 10 head -n 1 /tmp/answer";

async fn started(script: &str, arguments: &[&str]) -> (TempDir, Machine, Session) {
    let directory = directory();
    let machine = Machine::start_with(directory.path(), arguments).await;
    let session = machine.session();
    let header = WorkspaceHeader { start: script.to_owned(), ..Default::default() };
    session.open(header, vec![]).await.unwrap();
    (directory, machine, session)
}

async fn failure(session: &Session, command: &str) -> String {
    session.run(command).await.exit.start_failure
}

#[tokio::test]
async fn a_start_runs_once_in_each_sandbox_before_its_first_command() {
    let script = format!("{SERVER} echo $UID $PWD $HOME >> runs");
    let (directory, machine, session) = started(&script, &[]).await;
    assert_eq!(
        code(session.read("runs").await),
        "file_not_found",
        "a call that is no command needs no start"
    );
    let line = "1000 /workspace /home/agent";
    let look = "cat runs; pgrep -xc sleep; true";
    let both = tokio::join!(session.sh(look), session.sh(look));
    assert_eq!(both, (format!("{line}\n0"), format!("{line}\n0")));
    assert_eq!(session.sh(ASK).await, "hello");
    // A sandbox of a subtask has a server of its own.
    let child = session.child();
    assert_eq!(child.sh(&format!("{ASK}; cat runs")).await, format!("hello\n{line}\n{line}"));
    assert!(session.release().await.unwrap());
    let again = session.run("cat runs | wc -l").await;
    assert_eq!((again.output.as_str(), again.exit.start_failure.as_str()), ("3\n", ""));
    assert!(again.exit.in_new_sandbox);
    assert_eq!(session.sh(ASK).await, "hello");
    // Another service runs the same script.
    machine.stop().await;
    let machine = Machine::start(directory.path()).await;
    let session = Session { client: machine.client.clone(), ..session };
    assert_eq!(session.sh(&format!("{ASK}; cat runs | wc -l")).await, "hello\n4");
    machine.stop().await;
}

#[tokio::test]
async fn a_start_that_fails_is_told_with_the_first_command_and_ends_nothing() {
    let script = "for n in {1..50}; do echo line $n; done; echo 'no such service' >&2; exit 3";
    let (_directory, _machine, session) = started(script, &[]).await;
    let told = failure(&session, "true").await;
    assert!(told.contains("failed with exit code 3") && told.contains("\nline 32\n"), "{told}");
    assert!(told.ends_with("no such service") && !told.contains("line 31\n"), "{told}");
    let path = told.split_whitespace().find(|word| word.starts_with("/run/sbx/out/")).unwrap();
    assert_eq!(session.sh(&format!("cat {} | wc -l", path.trim_end_matches(','))).await, "51");
    assert_eq!(failure(&session, "true").await, "", "only the first command tells it");
    assert!(session.release().await.unwrap());
    assert!(failure(&session, "true").await.contains("exit code 3"), "each sandbox tells it");
    let header = |start: String| WorkspaceHeader { start, ..Default::default() };
    let other = Session { id: session.child().id, ..session.clone() };
    for wrong in ["x".repeat(40_000), "a\0b".to_owned()] {
        assert_eq!(code(other.open(header(wrong), vec![]).await), "argument_invalid");
    }
}

#[tokio::test]
async fn a_start_that_hangs_is_ended_with_what_it_had_started_and_the_session_goes_on() {
    let (_directory, _machine, session) =
        started("echo begun; sleep 1000 & sleep 1000", &["--start-ms", "300"]).await;
    let outcome = session.run("pgrep -xc sleep; echo works").await;
    assert_eq!(outcome.output, "0\nworks\n");
    let told = &outcome.exit.start_failure;
    assert!(told.contains("was ended after 0.3 s") && told.ends_with("begun"), "{told}");
}

#[tokio::test]
async fn a_command_that_waits_for_a_start_can_be_killed() {
    let (_directory, _machine, session) =
        started("[ -e begun ] || { touch begun; exec sleep 1000; }", &[]).await;
    let wait =
        async |session: Session, exec: &'static str| session.start(session.command(exec, "true")).await;
    let waiting = tokio::spawn(wait(session.clone(), "first"));
    while session.read("begun").await.is_err() {
        tokio::task::yield_now().await;
    }
    let request = rpc::v1::KillExecRequest { fence: session.fence(), exec_id: "first".to_owned() };
    let killed = session.client.clone().kill_exec(request).await.unwrap().into_inner();
    assert!(!killed.was_running);
    assert_eq!(code(waiting.await.unwrap()), "exec_unknown");
    // The end of the whole sandbox ends the start as well, and the next sandbox runs it again.
    let waiting = tokio::spawn(wait(session.clone(), "second"));
    while !session.kill_all().await.unwrap() {
        tokio::task::yield_now().await;
    }
    drop(waiting.await.unwrap());
    let outcome = session.run("echo works").await;
    assert_eq!((outcome.exit.end(), outcome.output.as_str()), (ExecEnd::Exited, "works\n"));
    assert_eq!(outcome.exit.start_failure, "");
}
