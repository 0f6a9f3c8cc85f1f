//! Shows a session's stream until the turn ends, and converts that end to an exit code.

mod command;
mod silence;
mod summary;
mod view;

use crate::{
    client::{Client, get_session},
    commands::{
        requests::{
            ask::{self, Dialogue},
            subtasks,
        },
        session::{
            outcome::{Outcome, failed},
            presentation::{Purpose, Show, ShowArgs},
        },
    },
    exit::Exit,
    stream::{
        follow::{Reading, StreamEnd, Until},
        item::Item,
    },
    terminal::{keyboard::Keyboard, output::Output, paint::harmless, show},
};
use anyhow::Result;
use rpc::v1::{Session, SessionState};
use std::{
    cell::RefCell,
    convert::Infallible,
    time::{Duration, Instant},
};
use summary::{Turn, held_by, summary, way_on};
use view::View;

/// Time between two polls of the subtasks' requests, while some subtasks are open; milliseconds. A person does not
/// notice the delay, and a poll is two small queries.
const CLI_SUBTASKS_POLL_MS: u64 = 2_000;
/// Time between two looks at the silence.
const SILENCE_POLL: Duration = Duration::from_millis(250);

/// `flotilla watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// The session.
    pub(crate) id: String,
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
    let show = Show { until, prompt: None, arguments: &arguments.show };
    to_end(client, output, Reading::of_all(client, id), show).await
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
    mut reading: Reading<'_>,
    show: Show<'_>,
) -> Result<Outcome> {
    let (session_id, purpose) = (reading.session_id(), show.arguments.purpose);
    let keyboard = if purpose == Purpose::Prompt && !output.is_json() { Keyboard::find() } else { None };
    let view = RefCell::new(View::new(output, show));
    let limit = show.arguments.timeout.map_or(Duration::MAX, Duration::from_secs);
    let running = |exit| Outcome { exit, word: "running".to_owned(), code: None, message: None };
    let (mut until, mut left) = (show.until, limit);
    let (session, word) = loop {
        let begun = Instant::now();
        let end = read(client, output, &mut reading, ReadingPlan { until, limit: left, view: &view }).await?;
        // The time in which a person answers does not count.
        left = left.saturating_sub(begun.elapsed());
        let end = match end {
            ReadingEnd::Stream(end) => end,
            ReadingEnd::Timeout => {
                let seconds = limit.as_secs();
                output.note(&format!(
                    "Still running after {seconds} s. `flotilla watch {session_id}` shows it."
                ));
                return Ok(running(Exit::StillRunning));
            }
            ReadingEnd::Interrupt => {
                output.note(&interrupted(session_id, purpose));
                return Ok(running(Exit::Interrupted));
            }
        };
        let session = get_session(client, session_id).await?;
        let word = match end {
            StreamEnd::Idle(word) => word,
            StreamEnd::Seen => {
                held_by(&session).unwrap_or_else(|| show::outcome(session.last_outcome())).to_owned()
            }
        };
        let Some(keyboard) = keyboard.as_ref().filter(|_| is_asking(&session, &word)) else {
            break (session, word);
        };
        match ask::answer_open(client, output, keyboard, session_id).await? {
            // Without an open request, somebody else was faster.
            Dialogue::Answered | Dialogue::NothingOpen => until = reading.next_end(),
            Dialogue::LeftOpen => {
                output.note("");
                break (session, word);
            }
            Dialogue::Interrupted => {
                output.note(&format!(
                    "\nThe request stays open: `flotilla answer {session_id}` lists it, and the turn waits."
                ));
                return Ok(running(Exit::Interrupted));
            }
        }
    };
    conclude(client, output, view.into_inner(), Turn { session: &session, outcome: &word, show }).await
}

/// Whether the session goes on when a person at the keyboard answers.
fn is_asking(session: &Session, word: &str) -> bool {
    word == "needs_human"
        && session.state() != SessionState::Quarantined
        && session.state() != SessionState::Idle
}

/// How far a stream is read now.
struct ReadingPlan<'a, 'b> {
    until: Until,
    limit: Duration,
    view: &'a RefCell<View<'b>>,
}

/// Why the reading of a stream ended.
enum ReadingEnd {
    Stream(StreamEnd),
    Timeout,
    /// Ctrl-C.
    Interrupt,
}

/// Shows a stream until it ends, and ends the last line.
async fn read(
    client: &Client,
    output: &Output,
    reading: &mut Reading<'_>,
    ReadingPlan { until, limit, view }: ReadingPlan<'_, '_>,
) -> Result<ReadingEnd> {
    let session_id = reading.session_id();
    let sink = |item: &Item| view.borrow_mut().show(item);
    // Reading has no side effects, so it may be dropped at any point.
    let end = tokio::select! {
        end = tokio::time::timeout(limit, reading.follow(until, sink)) => match end {
            Ok(end) => ReadingEnd::Stream(end?),
            Err(_) => ReadingEnd::Timeout,
        },
        end = ask_below(client, session_id, view) => ReadingEnd::Stream(end?),
        never = show_silence(view), if output.shows_progress() => match never {},
        _ = tokio::signal::ctrl_c() => ReadingEnd::Interrupt,
    };
    view.borrow_mut().finish()?;
    Ok(end)
}

/// Shows the result of the turn, and returns how it ended.
async fn conclude(client: &Client, output: &Output, view: View<'_>, turn: Turn<'_>) -> Result<Outcome> {
    let Turn { session, outcome, show } = turn;
    if !output.is_json() {
        let purpose = show.arguments.purpose;
        match (purpose, &view.command) {
            (Purpose::Shell { .. }, Some(command)) => command.print(client, output, &session.id).await?,
            (Purpose::Shell { .. }, None) | (Purpose::Trial, _) => {}
            (Purpose::Prompt, _) => {
                output.write(&summary(client, turn, view.usage.as_ref(), output.paint()).await)?;
            }
        }
        if outcome == "failed" && (purpose.is_shell() || !view.renderer.told(&session.last_error)) {
            let error = harmless(&session.last_error);
            if purpose.is_shell() { output.note(&error) } else { output.line(&output.paint().red(&error))? }
        }
        match purpose {
            Purpose::Prompt => output.line(&way_on(session, outcome))?,
            Purpose::Shell { with_patch: true } => {
                output.write(&summary::changes(client, turn, output.paint()).await.text)?;
            }
            Purpose::Shell { with_patch: false } | Purpose::Trial => {}
        }
    }
    let has_error = outcome == "failed" || outcome == "aborted";
    let exit = view.exit(outcome);
    let message = Some(session.last_error.clone()).filter(|message| has_error && !message.is_empty());
    Ok(Outcome { exit, word: outcome.to_owned(), code: view.error.filter(|_| has_error), message })
}

/// What Ctrl-C does: a turn continues without its watcher; a trial ends with its session.
fn interrupted(session_id: &str, purpose: Purpose) -> String {
    match purpose {
        Purpose::Prompt | Purpose::Shell { .. } => format!(
            "The turn continues. `flotilla watch {session_id}` shows it, `flotilla abort {session_id}` stops it."
        ),
        Purpose::Trial => "Stopped: the build or the command ends, and its session is deleted.".to_owned(),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn an_interruption_says_what_becomes_of_the_turn() {
        assert!(
            interrupted("ses_1", Purpose::Prompt).starts_with("The turn continues. `flotilla watch ses_1`")
        );
        let trial = interrupted("ses_1", Purpose::Trial);
        assert!(trial.contains("its session is deleted") && !trial.contains("continues"), "{trial}");
    }
}
