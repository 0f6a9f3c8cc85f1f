//! `flotilla revert`, `unrevert` and `fork`: return to an earlier point of a session.

use crate::{
    client::{Client, call, get_session},
    commands::session::{messages, prompt::random_key},
    exit::Exit,
    terminal::{json, output::Output, paint::Paint, show},
};
use anyhow::{Context as _, Result};
use clap::Args;
use rpc::v1::{
    ForkFiles, ForkSessionRequest, RestartWorkspaceRequest, RevertSessionRequest, Session,
    UnrevertSessionRequest,
};
use serde_json::json;

/// `flotilla revert`.
#[derive(Debug, Args)]
pub(crate) struct RevertArgs {
    /// The session.
    pub(crate) id: String,
    /// The first message to remove, by its id or the beginning or end of it; an answer is removed with its prompt. `flotilla messages --ids` shows
    /// the ids. Default: the last prompt.
    message: Option<String>,
    /// Keep the message and its parts before this one.
    #[arg(long, value_name = "PART", requires = "message")]
    part: Option<String>,
}

/// Reverts files now, and messages with the next prompt.
pub(crate) async fn revert(client: &Client, output: &Output, arguments: RevertArgs) -> Result<Exit> {
    let session_id = arguments.id.as_str();
    let message = match &arguments.message {
        Some(named) => messages::find(client, session_id, named).await?,
        None => messages::last_prompt(client, output, session_id).await?,
    };
    let request = || RevertSessionRequest {
        session_id: session_id.to_owned(),
        message_id: message.clone(),
        part_id: arguments.part.clone().unwrap_or_default(),
    };
    let answer =
        call("revert the session", || async { client.sessions().revert_session(request()).await }).await?;
    let session = answer.session.context("read the session")?;
    if output.is_json() {
        let diff = session.revert.as_ref().map(|revert| revert.diff.as_str()).unwrap_or_default();
        output.json(&json!({
            "type": "revert", "session": session.id, "message_id": message, "part_id": arguments.part,
            "diff": diff,
        }))?;
    } else {
        output.page(&reverted(&session, output.paint()))?;
    }
    Ok(Exit::Done)
}

/// The result of a revert.
fn reverted(session: &Session, paint: Paint) -> String {
    let diff = session.revert.as_ref().map(|revert| revert.diff.as_str()).unwrap_or_default();
    let what = if diff.is_empty() { "no file changed" } else { "the files are reverted" };
    let text = format!(
        "{what}; the next prompt or command removes the messages, and until then `flotilla unrevert {}` undoes the revert\n",
        session.id
    );
    if diff.is_empty() { text } else { format!("{}\n{text}", show::patch(diff, paint)) }
}

/// `flotilla fork`.
#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The session.
    pub(crate) id: String,
    /// The first message that the fork does not copy, by its id or the beginning or end of it; if omitted, the fork copies all messages.
    #[arg(long, value_name = "MESSAGE")]
    before: Option<String>,
    /// Start with the current files instead of the files before that message.
    #[arg(long)]
    files_of_now: bool,
}

/// Creates a session from an earlier point of another one, and prints its id.
pub(crate) async fn fork(client: &Client, output: &Output, arguments: ForkArgs) -> Result<Exit> {
    let files = if arguments.files_of_now { ForkFiles::Now } else { ForkFiles::AtMessage };
    let message_id = messages::find_or_none(client, &arguments.id, arguments.before.as_deref()).await?;
    let idempotency_key = random_key()?;
    let request = || ForkSessionRequest {
        session_id: arguments.id.clone(),
        message_id: message_id.clone(),
        files: files.into(),
        idempotency_key: idempotency_key.clone(),
    };
    let answer =
        call("fork the session", || async { client.sessions().fork_session(request()).await }).await?;
    let session = answer.session.context("read the session")?;
    output.result(&session.id, &json::session(&session))?;
    if !output.is_json() {
        output.note(&format!("`flotilla say {} \"…\"` goes on in the fork", session.id));
    }
    Ok(Exit::Done)
}

/// Restores the files. The answer does not tell whether there was a revert; the session before it does.
pub(crate) async fn unrevert(client: &Client, output: &Output, session_id: &str) -> Result<Exit> {
    let was_reverted = get_session(client, session_id).await?.revert.is_some();
    let request = || UnrevertSessionRequest { session_id: session_id.to_owned() };
    call("undo the revert", || async { client.sessions().unrevert_session(request()).await }).await?;
    let object = json!({"type": "unrevert", "session": session_id, "was_reverted": was_reverted});
    output.result(unreverted(was_reverted), &object)?;
    Ok(Exit::Done)
}

/// The result of an unrevert.
fn unreverted(was_reverted: bool) -> &'static str {
    if was_reverted {
        "the revert is undone; the files are as they were before it"
    } else {
        "the session has no revert, so nothing changed; after the next prompt, a revert cannot be undone any more"
    }
}

/// Lets a session continue whose files the sandbox machine lost.
pub(crate) async fn restart_workspace(client: &Client, output: &Output, session_id: &str) -> Result<Exit> {
    let request = || RestartWorkspaceRequest { session_id: session_id.to_owned() };
    call("restart the workspace", || async { client.sessions().restart_workspace(request()).await }).await?;
    let text = "the next prompt starts from the files that the session began with; the model will be told";
    output.result(text, &json!({"type": "workspace_restart", "session": session_id}))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::fake::Fake;
    use rpc::v1::Revert;

    #[tokio::test]
    async fn a_session_without_a_revert_says_so() {
        let output = Output::kept(false);
        unrevert(&Fake::default().serve().await, &output, "ses_1").await.unwrap();
        assert!(output.take().starts_with("the session has no revert"));
        assert!(unreverted(true).starts_with("the revert is undone"));
    }

    #[test]
    fn a_revert_shows_what_it_changed_and_how_to_take_it_back() {
        let report = |diff: &str| {
            let revert =
                Revert { message_id: "msg_1".to_owned(), diff: diff.to_owned(), ..Default::default() };
            let session = Session { id: "ses_1".to_owned(), revert: Some(revert), ..Default::default() };
            reverted(&session, Paint::Plain)
        };
        let back = "the next prompt or command removes the messages, and until then `flotilla unrevert ses_1` undoes the revert\n";
        assert_eq!(report(""), format!("no file changed; {back}"));
        let diff = "diff --git a/x b/x\n-a\n";
        assert_eq!(report(diff), format!("{diff}\nthe files are reverted; {back}"));
    }
}
