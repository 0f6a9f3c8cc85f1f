//! Shows a session's stream until the turn ends, and converts that end to an exit code.

mod silence;

use crate::{
    client::{Client, call, get_session},
    commands::{
        requests::{
            answer::Open,
            subtasks::{self, Subtasks},
        },
        session::{
            budget,
            outcome::{Outcome, failed},
        },
    },
    exit::{self, Exit},
    stream::{
        follow::{Reading, StreamEnd, Until},
        item::{Event, Item},
        tool_call,
    },
    terminal::{
        output::Output,
        paint::{Paint, harmless},
        render::Renderer,
        show,
    },
};
use anyhow::Result;
use rpc::v1::{GetSessionDiffRequest, Session, SessionState};
use serde_json::json;
use silence::Silence;
use std::{cell::RefCell, convert::Infallible, time::Duration};

/// Time between two polls of the subtasks' requests, while some subtasks are open; milliseconds. A person does not
/// notice the delay, and a poll is two small queries.
const CLI_SUBTASKS_POLL_MS: u64 = 2_000;
/// The code of the error for a command that does not exist.
const COMMAND_NOT_FOUND: &str = "command_not_found";
/// Time between two looks at the silence.
const SILENCE_POLL: Duration = Duration::from_millis(250);

/// How to show a stream.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ShowArgs {
    /// Also show the output of tools.
    #[arg(long, conflicts_with = "json")]
    pub outputs: bool,
    /// Stop watching after this many seconds (exit code 5); the turn continues.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// What the turn is for.
    #[arg(skip)]
    pub purpose: Purpose,
}

/// What a shown turn is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A prompt for an agent.
    #[default]
    Prompt,
    /// A command of a person. No model runs, so the turn has no usage.
    Shell,
    /// The build of an environment, or a command in it. The command deletes the session afterwards, so its output does not name the session.
    Trial,
}

/// `flotilla watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// The session.
    id: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// Shows a session from its beginning, until it is idle.
pub(crate) async fn run(client: &Client, output: &Output, arguments: WatchArgs) -> Result<Exit> {
    let id = arguments.id.as_str();
    let session = get_session(client, id).await.map_err(|error| failed(output, Some(id), error))?;
    let until = match session.state() {
        // Everything has happened: show it and report the outcome.
        SessionState::Idle => Until::Seen(session.event_seq),
        // Nothing more happens until a person acts, and this command does not wait for that.
        _ if held_by(&session).is_some() => Until::Seen(session.event_seq),
        _ => Until::IdleAfter(session.event_seq),
    };
    to_end(client, output, Reading::of_all(client, id), Show { until, arguments: &arguments.show }).await
}

/// How far and how to show a stream.
pub(crate) struct Show<'a> {
    pub(crate) until: Until,
    pub(crate) arguments: &'a ShowArgs,
}

/// Shows the stream of a session to its end, then the changes and the cost of the turn, or the line of its outcome.
pub(crate) async fn to_end(
    client: &Client,
    output: &Output,
    reading: Reading<'_>,
    show: Show<'_>,
) -> Result<Exit> {
    let session_id = reading.session_id();
    let outcome = show_stream(client, output, reading, show)
        .await
        .map_err(|error| failed(output, Some(session_id), error))?;
    if output.is_json() {
        output.json(&outcome.to_json(Some(session_id)))?;
    }
    Ok(outcome.exit)
}

async fn show_stream(
    client: &Client,
    output: &Output,
    reading: Reading<'_>,
    Show { until, arguments }: Show<'_>,
) -> Result<Outcome> {
    let session_id = reading.session_id();
    let view = RefCell::new(View::new(output, arguments.outputs));
    let mut sink = |item: &Item| view.borrow_mut().show(item);
    let limit = arguments.timeout.map_or(Duration::MAX, Duration::from_secs);
    let running = |exit| Outcome { exit, word: "running".to_owned(), code: None, message: None };
    // Reading has no side effects, so it may be dropped at any point.
    let end = tokio::select! {
        end = tokio::time::timeout(limit, reading.follow(until, &mut sink)) => end,
        end = ask_below(client, session_id, &view) => Ok(end),
        never = show_silence(&view), if output.shows_progress() => match never {},
        _ = tokio::signal::ctrl_c() => {
            view.borrow_mut().finish()?;
            output.note(&interrupted(session_id, arguments.purpose));
            return Ok(running(Exit::Interrupted));
        }
    };
    let mut view = view.into_inner();
    view.finish()?;
    let Ok(end) = end else {
        output.note(&format!(
            "Still running after {} s. `flotilla watch {session_id}` shows it.",
            limit.as_secs()
        ));
        return Ok(running(Exit::StillRunning));
    };
    let end = end?;
    let session = get_session(client, session_id).await?;
    let outcome = match &end {
        StreamEnd::Idle(outcome) => outcome.as_str(),
        StreamEnd::Seen => held_by(&session).unwrap_or_else(|| show::outcome(session.last_outcome())),
    };
    if !output.is_json() {
        let is_kept = arguments.purpose != Purpose::Trial;
        if is_kept {
            let turn = Turn { session: &session, outcome, purpose: arguments.purpose };
            output.write(&summary(client, turn, output.paint()).await)?;
        }
        if outcome == "failed" && !view.renderer.told(&session.last_error) {
            output.line(&output.paint().red(&harmless(&session.last_error)))?;
        }
        if is_kept {
            output.line(&way_on(&session, outcome))?;
        }
    }
    let has_error = outcome == "failed" || outcome == "aborted";
    let exit = view.exit(outcome, arguments.purpose);
    let message = Some(session.last_error).filter(|message| has_error && !message.is_empty());
    Ok(Outcome { exit, word: outcome.to_owned(), code: view.error.filter(|_| has_error), message })
}

/// What Ctrl-C does: a turn continues without its watcher; a trial ends with its session.
fn interrupted(session_id: &str, purpose: Purpose) -> String {
    match purpose {
        Purpose::Prompt | Purpose::Shell => format!(
            "The turn continues. `flotilla watch {session_id}` shows it, `flotilla abort {session_id}` stops it."
        ),
        Purpose::Trial => "Stopped: the build or the command ends, and its session is deleted.".to_owned(),
    }
}

/// The outcome to report when a person must act before the turn continues.
fn held_by(session: &Session) -> Option<&'static str> {
    let reason = session.wait.as_ref().map(|wait| wait.reason.as_str());
    match (session.state(), reason) {
        (SessionState::Quarantined, _) | (SessionState::Waiting, Some("permission" | "question")) => {
            Some("needs_human")
        }
        (SessionState::Waiting, Some("budget")) => Some("budget"),
        _ => None,
    }
}

/// The command to type next.
fn way_on(session: &Session, outcome: &str) -> String {
    let id = &session.id;
    match (session.state(), outcome) {
        (SessionState::Quarantined, _) => show::release_command(id),
        (_, "budget") => format!("flotilla budget {id} DOLLARS   raises the budget; the turn then continues"),
        // The requests of its subtasks are listed under the session's id too.
        (SessionState::Waiting, "needs_human") => {
            format!("flotilla answer {id}   lists the open requests; the turn continues with the answer")
        }
        _ => format!("flotilla say {id} \"…\"   continues the conversation"),
    }
}

/// The output so far: on the screen, or as JSON lines.
struct View<'a> {
    output: &'a Output,
    renderer: Renderer,
    subtasks: Subtasks,
    silence: Silence,
    /// The code of the newest error of the session.
    error: Option<String>,
    /// The code with which the newest command exited.
    command_exit: Option<u64>,
}

impl<'a> View<'a> {
    fn new(output: &'a Output, outputs: bool) -> Self {
        let renderer = Renderer::new(output.paint()).with_outputs(outputs);
        Self {
            output,
            renderer,
            subtasks: Subtasks::default(),
            silence: Silence::default(),
            error: None,
            command_exit: None,
        }
    }

    fn show(&mut self, item: &Item) -> Result<()> {
        self.subtasks.observe(item);
        self.silence.end(item);
        if let Item::Event(event) = item {
            self.observe(event);
        }
        match (self.output.is_json(), item) {
            (true, Item::Reconnecting(tries)) => {
                self.output.note(&format!("connection lost, retrying ({tries})"));
                Ok(())
            }
            (true, item) => item.to_json().map_or(Ok(()), |object| self.output.json(&object)),
            (false, item) => self.output.write(&self.renderer.feed(item)),
        }
    }

    /// Keeps what decides about the exit code.
    fn observe(&mut self, event: &Event) {
        match event.kind.as_str() {
            "session.error" => {
                let error = &event.properties["error"];
                let code = error["data"]["ref"].as_str().or_else(|| error["name"].as_str());
                self.error = code.map(str::to_owned);
            }
            "message.part.updated" if event.properties["part"]["tool"] == "bash" => {
                self.command_exit = tool_call::exit_code(&event.properties["part"]["state"]);
            }
            _ => {}
        }
    }

    /// The exit code for the end of a turn.
    fn exit(&self, outcome: &str, purpose: Purpose) -> Exit {
        match (outcome, purpose, self.error.as_deref()) {
            // A command of a person ends with its own code. It has none if it did not run, or if a limit ended it.
            ("done", Purpose::Shell, _) => self.command_exit.map_or(Exit::Usage, Exit::of_command),
            ("failed" | "aborted", Purpose::Shell, _) => Exit::Usage,
            // A session without a turn counts as done.
            ("idle", ..) => Exit::Done,
            // The command line names a command that the repository does not have.
            ("failed", _, Some(COMMAND_NOT_FOUND)) => Exit::Usage,
            _ => Exit::of_outcome(outcome),
        }
    }

    /// Shows new requests of subtasks.
    fn show_asked(&mut self, requests: Vec<Open>) -> Result<()> {
        for open in self.subtasks.fresh(requests) {
            self.silence.hide();
            if self.output.is_json() {
                self.output.json(&json!({"type": "subtask_asks", "subtask_asks": open.to_json()}))?;
            } else {
                self.output.write(&self.renderer.subtask_asks(&open))?;
            }
        }
        Ok(())
    }

    /// Ends the last line.
    fn finish(&mut self) -> Result<()> {
        self.silence.hide();
        if self.output.is_json() { Ok(()) } else { self.output.write(&self.renderer.finish()) }
    }
}

/// Shows what a silent session does, for ever.
async fn show_silence(view: &RefCell<View<'_>>) -> Infallible {
    loop {
        tokio::time::sleep(SILENCE_POLL).await;
        let mut view = view.borrow_mut();
        // In the middle of a line the text is still visible, and must not be replaced.
        if view.renderer.is_at_line_start() {
            view.silence.tick();
        }
    }
}

/// Polls the requests of subtasks, which the session's own stream does not contain. Ends when nothing continues until
/// a person answers.
async fn ask_below(client: &Client, session_id: &str, view: &RefCell<View<'_>>) -> Result<StreamEnd> {
    loop {
        tokio::time::sleep(Duration::from_millis(CLI_SUBTASKS_POLL_MS)).await;
        if !view.borrow().subtasks.are_open() {
            continue;
        }
        // The stream reports a server that cannot be reached.
        let Ok(found) = subtasks::look(client, session_id).await else { continue };
        view.borrow_mut().show_asked(found.asked)?;
        if found.is_stuck {
            return Ok(StreamEnd::Idle("needs_human".to_owned()));
        }
    }
}

/// A turn that has ended.
#[derive(Clone, Copy)]
struct Turn<'a> {
    session: &'a Session,
    outcome: &'a str,
    purpose: Purpose,
}

/// Returns the changes and the cost of the session, and the outcome of its turn.
async fn summary(client: &Client, turn: Turn<'_>, paint: Paint) -> String {
    let Turn { session, outcome, .. } = turn;
    let id = &session.id;
    let request = || GetSessionDiffRequest { session_id: id.clone(), ..Default::default() };
    let diff = call("load the diff", || async { client.sessions().get_session_diff(request()).await }).await;
    let mut text = "\n".to_owned();
    match &diff {
        Ok(diff) if diff.files.is_empty() => text.push_str(&paint.dim("no file changed\n\n")),
        Ok(diff) => text.push_str(&format!("{}\n", show::diff(diff, paint))),
        Err(error) if has_no_workspace(error) => {}
        // The turn is over and shown. An unavailable diff must not change its outcome.
        Err(error) => text.push_str(&format!("{}\n\n", exit::sentence(error).unwrap_or_default())),
    }
    let mark = match Exit::of_outcome(outcome) {
        Exit::Done => paint.green(outcome),
        Exit::NeedsHuman | Exit::Budget => paint.yellow(outcome),
        Exit::Usage | Exit::Failed | Exit::StillRunning | Exit::Interrupted | Exit::Program(_) => {
            paint.red(outcome)
        }
    };
    let used = match turn.purpose {
        // The step that waits is not over, so the session does not count its usage yet.
        Purpose::Prompt if outcome == "budget" => match budget::load(client, id).await {
            Ok(budget) => format!("  {}", budget::sentence(budget)),
            Err(_) => usage(turn),
        },
        Purpose::Prompt | Purpose::Shell | Purpose::Trial => usage(turn),
    };
    text.push_str(&format!("{mark}{used}  session {id}\n"));
    if diff.is_ok_and(|diff| !diff.files.is_empty()) {
        text.push_str(&format!("flotilla checkout {id}   puts the result on a branch of your repository\n"));
    }
    text
}

/// The usage of the session, after a turn that may have changed it.
fn usage(turn: Turn<'_>) -> String {
    match turn.purpose {
        Purpose::Prompt => format!("  {}", show::usage(turn.session)),
        Purpose::Shell | Purpose::Trial => String::new(),
    }
}

/// Whether the server says that there are no files, because the turn ended before it created them.
fn has_no_workspace(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<tonic::Status>().and_then(rpc::status::code_of);
    code.as_deref() == Some("workspace_missing")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn who_waits_for_a_person_is_not_waited_for() {
        let session = |state: SessionState, reason: &str| {
            let wait = Some(rpc::v1::Wait { reason: reason.to_owned(), ..Default::default() });
            Session { id: "ses_1".to_owned(), state: state.into(), wait, ..Session::default() }
        };
        let check = |state, reason, held, way: &str| {
            let session = session(state, reason);
            assert_eq!(held_by(&session), held, "{reason}");
            let way_on = way_on(&session, held.unwrap_or("done"));
            assert!(way_on.starts_with(way), "{reason}: {way_on}");
        };
        check(SessionState::Waiting, "permission", Some("needs_human"), "flotilla answer ses_1");
        check(SessionState::Waiting, "question", Some("needs_human"), "flotilla answer ses_1");
        check(SessionState::Waiting, "budget", Some("budget"), "flotilla budget ses_1");
        check(SessionState::Quarantined, "quarantined", Some("needs_human"), "an operator");
        check(SessionState::Waiting, "children", None, "flotilla say ses_1");
        check(SessionState::Running, "", None, "flotilla say ses_1");
    }

    #[test]
    fn an_interruption_says_what_becomes_of_the_turn() {
        assert!(
            interrupted("ses_1", Purpose::Prompt).starts_with("The turn continues. `flotilla watch ses_1`")
        );
        let trial = interrupted("ses_1", Purpose::Trial);
        assert!(trial.contains("its session is deleted") && !trial.contains("continues"), "{trial}");
    }

    #[test]
    fn a_command_of_a_person_has_no_usage() {
        let session = Session { cost_usd_picos: 1_500_000_000_000, ..Session::default() };
        let usage = |purpose| usage(Turn { session: &session, outcome: "done", purpose });
        assert_eq!(usage(Purpose::Prompt), "  0 tokens in, 0 out, $1.5000");
        assert_eq!(usage(Purpose::Shell), "");
    }

    #[test]
    fn a_session_that_never_had_files_has_no_diff_to_tell_of() {
        let refused = |code| {
            let status = rpc::status::precondition(code, "the session has no workspace");
            Err::<(), _>(status).context("load the diff").unwrap_err()
        };
        assert!(has_no_workspace(&refused("workspace_missing")));
        assert!(!has_no_workspace(&refused("sandbox_unavailable")));
    }
}
