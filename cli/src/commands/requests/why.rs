//! `flotilla why`: shows what a session waits for, an estimate for how long, and what ends the wait.

use crate::{
    client::{self, Client},
    commands::requests::answer::{self, Open},
    exit::Exit,
    terminal::{json, output::Output, paint::one_line, show},
};
use anyhow::Result;
use rpc::v1::{Session, SessionState, Wait};
use serde_json::Value;
use std::fmt::Write as _;

/// Subtasks to show; the others are only counted.
const CHILDREN_MAX: usize = 20;
/// Characters of a subtask's title.
const TITLE_CHARS: usize = 40;

/// `flotilla why`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhyArgs {
    /// The session.
    pub(crate) id: String,
}

/// A session with its waits.
#[derive(Debug, Default)]
struct Why {
    session: Session,
    children: Vec<Session>,
    open: Vec<Open>,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: WhyArgs) -> Result<Exit> {
    let session = client::get_session(client, &arguments.id).await?;
    let reason = session.wait.as_ref().map(|wait| wait.reason.clone()).unwrap_or_default();
    let children = if reason == "children" { list_children(client, &session.id).await? } else { vec![] };
    let asks = matches!(reason.as_str(), "permission" | "question" | "children");
    let open = if asks { answer::list(client, &session.id).await? } else { vec![] };
    let why = Why { session, children, open };
    if output.is_json() {
        output.json(&to_json(&why))?;
    } else {
        output.write(&to_text(&why, show::now_ms()))?;
    }
    Ok(Exit::Done)
}

async fn list_children(client: &Client, id: &str) -> Result<Vec<Session>> {
    let mut children = client::list_children(client, id).await?;
    // Subtasks that the session waits for come first.
    children.sort_by_key(|child| child.state() == SessionState::Idle);
    Ok(children)
}

fn to_json(why: &Why) -> Value {
    let mut value = json::session(&why.session);
    value["children"] = why.children.iter().map(json::session).collect();
    value["requests"] = why.open.iter().map(Open::to_json).collect();
    value
}

fn to_text(why: &Why, now_ms: i64) -> String {
    let session = &why.session;
    let mut text = format!("{}  {}\n", session.id, show::state(session));
    let mut line = |words: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {words}");
    };
    let Some(wait) = &session.wait else {
        line("it is not waiting");
        return text;
    };
    line(&one_line(&format!("{}{}", wait.sentence, numbers(wait)), TITLE_CHARS * 4));
    if wait.queued_at_ms > 0 {
        line(&format!("queued since {}", show::span(now_ms.saturating_sub(wait.queued_at_ms))));
    }
    if wait.eta_ms > 0 {
        let ends = if why.open.is_empty() { "continues" } else { "counts as refused" };
        line(&format!("{ends} {}", show::until(wait.eta_ms, now_ms)));
    }
    for open in &why.open {
        if open.session_id() == session.id {
            line(&open.line());
        } else {
            line(&format!("subtask {} asks: {}", open.session_id(), open.line()));
        }
        line(&format!("  {}", open.command()));
    }
    for child in why.children.iter().take(CHILDREN_MAX) {
        line(&format!("{}  {}  {}", child.id, show::state(child), one_line(&child.title, TITLE_CHARS)));
    }
    if let Some(rest) = why.children.len().checked_sub(CHILDREN_MAX).filter(|rest| *rest > 0) {
        line(&format!("… and {rest} more"));
    }
    if session.state() == SessionState::Quarantined {
        line(&show::release_command(&session.id));
    }
    if wait.reason == "budget" {
        line(&format!("flotilla budget {} DOLLARS", session.id));
    }
    text
}

/// Usage and limit, if the reason has numbers and its sentence does not contain them.
fn numbers(wait: &Wait) -> String {
    let Wait { used, max, .. } = wait;
    // The sentence already contains amounts of money.
    if wait.reason == "budget" {
        return String::new();
    }
    let has_numbers =
        wait.sentence.contains(&format!("{used} ")) && wait.sentence.contains(&format!("of {max}"));
    if *max == 0 || has_numbers { String::new() } else { format!(" ({used} of {max})") }
}

#[cfg(test)]
mod tests;
