//! Shows a session's stream until the turn ends, and converts that end to an exit code.

use crate::{
    client::{Client, call, get_session},
    commands::requests::{
        answer::Open,
        subtasks::{self, Subtasks},
    },
    exit::{self, Exit},
    stream::{
        follow::{Reading, StreamEnd, Until},
        item::Item,
    },
    terminal::{
        out,
        paint::{Paint, harmless},
        render::{Renderer, Screen},
        show,
    },
};
use anyhow::Result;
use rpc::v1::{GetSessionDiffRequest, Session, SessionState};
use serde_json::json;
use std::{cell::RefCell, io::IsTerminal as _, time::Duration};

/// Time between two polls of the subtasks' requests, while some subtasks are open; milliseconds. A person does not
/// notice the delay, and a poll is two small queries.
const CLI_SUBTASKS_POLL_MS: u64 = 2_000;

/// How to show a stream.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ShowArgs {
    /// Print one JSON object per line instead of text for people.
    #[arg(long)]
    pub json: bool,
    /// Also show the output of tools.
    #[arg(long, conflicts_with = "json")]
    pub outputs: bool,
    /// Stop watching after this many seconds (exit code 5); the turn continues.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
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
pub(crate) async fn run(client: &Client, arguments: WatchArgs) -> Result<Exit> {
    let session = get_session(client, &arguments.id).await?;
    let until = match session.state() {
        // Everything has happened: show it and report the outcome.
        SessionState::Idle => Until::Seen(session.event_seq),
        // Nothing more happens until a person acts, and this command does not wait for that.
        _ if held_by(&session).is_some() => Until::Seen(session.event_seq),
        _ => Until::IdleAfter(session.event_seq),
    };
    to_end(client, Reading::of_all(client, &arguments.id), until, &arguments.show).await
}

/// Shows the stream of a session up to `until`, then the changes and the cost of the turn.
pub(crate) async fn to_end(
    client: &Client,
    reading: Reading<'_>,
    until: Until,
    show: &ShowArgs,
) -> Result<Exit> {
    let session_id = reading.session_id();
    let paint = Paint::for_stdout();
    let screen = if std::io::stdout().is_terminal() { Screen::Terminal } else { Screen::Stream };
    let json = show.json;
    let renderer = Renderer::new(paint, screen).with_outputs(show.outputs);
    let view = RefCell::new(View { renderer, subtasks: Subtasks::default(), json });
    let mut sink = |item: &Item| view.borrow_mut().show(item);
    let limit = show.timeout.map_or(Duration::MAX, Duration::from_secs);
    // Reading has no side effects, so it may be dropped at any point.
    let end = tokio::select! {
        end = tokio::time::timeout(limit, reading.follow(until, &mut sink)) => end,
        end = ask_below(client, session_id, &view) => Ok(end),
        _ = tokio::signal::ctrl_c() => {
            out::write(&view.borrow_mut().renderer.finish())?;
            out::note(&format!("The turn continues. `flotilla watch {session_id}` shows it, `flotilla abort {session_id}` stops it."));
            return Ok(Exit::Interrupted);
        }
    };
    let View { mut renderer, .. } = view.into_inner();
    out::write(&renderer.finish())?;
    let Ok(end) = end else {
        out::note(&format!(
            "Still running after {} s. `flotilla watch {session_id}` shows it.",
            limit.as_secs()
        ));
        return Ok(Exit::StillRunning);
    };
    let end = end?;
    let session = get_session(client, session_id).await?;
    let outcome = match &end {
        StreamEnd::Idle(outcome) => outcome.as_str(),
        StreamEnd::Seen => held_by(&session).unwrap_or_else(|| show::outcome(session.last_outcome())),
    };
    if !json {
        let summary = summary(client, &session, outcome, paint).await;
        out::write(&summary)?;
        if outcome == "failed" && !renderer.told(&session.last_error) {
            out::line(&paint.red(&harmless(&session.last_error)))?;
        }
        out::line(&way_on(&session, outcome))?;
    }
    // A session without a turn counts as done.
    Ok(if outcome == "idle" { Exit::Done } else { Exit::of_outcome(outcome) })
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
struct View {
    renderer: Renderer,
    subtasks: Subtasks,
    json: bool,
}

impl View {
    fn show(&mut self, item: &Item) -> Result<()> {
        self.subtasks.observe(item);
        match (self.json, item) {
            (true, Item::Reconnecting(tries)) => {
                out::note(&format!("connection lost, retrying ({tries})"));
                Ok(())
            }
            (true, item) => item.json_line().map_or(Ok(()), |line| out::line(&line)),
            (false, item) => out::write(&self.renderer.feed(item)),
        }
    }

    /// Shows new requests of subtasks.
    fn show_asked(&mut self, requests: Vec<Open>) -> Result<()> {
        for open in self.subtasks.fresh(requests) {
            if self.json {
                out::line(&json!({"subtask_asks": open.to_json()}).to_string())?;
            } else {
                out::write(&self.renderer.subtask_asks(&open))?;
            }
        }
        Ok(())
    }
}

/// Polls the requests of subtasks, which the session's own stream does not contain. Ends when nothing continues until
/// a person answers.
async fn ask_below(client: &Client, session_id: &str, view: &RefCell<View>) -> Result<StreamEnd> {
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

/// Returns the changes and the cost of the session, and the outcome of its turn.
async fn summary(client: &Client, session: &Session, outcome: &str, paint: Paint) -> String {
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
        Exit::Usage | Exit::Failed | Exit::StillRunning | Exit::Interrupted => paint.red(outcome),
    };
    text.push_str(&format!("{mark}  {}  session {id}\n", show::usage(session)));
    if diff.is_ok_and(|diff| !diff.files.is_empty()) {
        text.push_str(&format!("flotilla checkout {id}   puts the result on a branch of your repository\n"));
    }
    text
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
    fn a_session_that_never_had_files_has_no_diff_to_tell_of() {
        let refused = |code| {
            let status = rpc::status::precondition(code, "the session has no workspace");
            Err::<(), _>(status).context("load the diff").unwrap_err()
        };
        assert!(has_no_workspace(&refused("workspace_missing")));
        assert!(!has_no_workspace(&refused("sandbox_unavailable")));
    }
}
