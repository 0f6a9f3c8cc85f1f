//! What stands below a turn: its changes, its cost, how it ended, and the command to type next.

use crate::{
    client::{Client, call},
    commands::session::{budget, presentation::Show},
    exit::{self, Exit},
    stream::usage::TurnUsage,
    terminal::{paint::Paint, show},
};
use rpc::v1::{ErrorCode, GetSessionDiffRequest, Session, SessionState};

/// The outcome to report when a person must act before the turn continues.
pub(super) fn held_by(session: &Session) -> Option<&'static str> {
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
pub(super) fn way_on(session: &Session, outcome: &str) -> String {
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

/// A turn that has ended.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) session: &'a Session,
    pub(super) outcome: &'a str,
    pub(super) show: Show<'a>,
}

/// The changes of a turn, or of the whole session.
pub(super) struct Changes {
    pub(super) text: String,
    has_some: bool,
}

/// Loads the changes: those of the turn, once its prompt records them, else those of the session.
pub(super) async fn changes(client: &Client, turn: Turn<'_>, paint: Paint) -> Changes {
    let id = &turn.session.id;
    let is_over = turn.session.state() == SessionState::Idle;
    let message_id = turn.show.prompt.filter(|_| is_over).unwrap_or_default().to_owned();
    let request = || GetSessionDiffRequest { session_id: id.clone(), message_id: message_id.clone() };
    let diff = call("load the diff", || async { client.sessions().get_session_diff(request()).await }).await;
    let text = match &diff {
        Ok(diff) if diff.files.is_empty() => paint.dim("no file changed\n\n"),
        Ok(diff) => format!("{}\n", show::diff(diff, paint)),
        Err(error) if has_no_workspace(error) => String::new(),
        // The turn is over and shown. An unavailable diff must not change its outcome.
        Err(error) => format!("{}\n\n", exit::sentence(error).unwrap_or_default()),
    };
    Changes { text, has_some: diff.is_ok_and(|diff| !diff.files.is_empty()) }
}

/// Returns the changes and the cost of a turn, and its outcome.
pub(super) async fn summary(
    client: &Client,
    turn: Turn<'_>,
    usage: Option<&TurnUsage>,
    paint: Paint,
) -> String {
    let Turn { session, outcome, .. } = turn;
    let id = &session.id;
    let changes = changes(client, turn, paint).await;
    let mark = match Exit::of_outcome(outcome) {
        Exit::Done => paint.green(outcome),
        Exit::NeedsHuman | Exit::Budget => paint.yellow(outcome),
        Exit::Usage | Exit::Failed | Exit::StillRunning | Exit::Interrupted | Exit::Program(_) => {
            paint.red(outcome)
        }
    };
    let used = match outcome {
        // The step that waits is not over, so the session does not count its usage yet.
        "budget" => budget::load(client, id).await.map(budget::sentence).ok(),
        _ => None,
    };
    let used = used.unwrap_or_else(|| used_by(session, usage));
    let mut text = format!("\n{}{mark}  {used}  session {id}\n", changes.text);
    if changes.has_some {
        text.push_str(&format!("flotilla checkout {id}   puts the result on a branch of your repository\n"));
    }
    text
}

/// The usage of a turn and, behind it, that of the session, if it had others.
fn used_by(session: &Session, usage: Option<&TurnUsage>) -> String {
    let Some((tokens, cost)) = usage.map(TurnUsage::sum) else {
        return show::usage(session.tokens.unwrap_or_default(), session.cost_usd_picos);
    };
    // The session does not count a step that waits for a person.
    let has_more = session.cost_usd_picos > cost;
    let total = has_more.then(|| format!(" (session: {})", show::dollars(session.cost_usd_picos)));
    format!("{}{}", show::usage(tokens, cost), total.unwrap_or_default())
}

/// Whether the server says that there are no files, because the turn ended before it created them.
fn has_no_workspace(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<tonic::Status>().and_then(rpc::status::code);
    code == Some(ErrorCode::WorkspaceMissing)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::stream::item::Event;
    use anyhow::Context as _;
    use rpc::v1::Tokens;
    use serde_json::json;

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
    fn a_turn_shows_its_own_usage_and_the_cost_of_the_session() {
        let event = |cost: f64| Event {
            seq: 1,
            epoch: 1,
            kind: "message.updated".to_owned(),
            properties: json!({"info": {"id": "a", "parentID": "msg_1", "tokens": {"input": 7}, "cost": cost}}),
            at_ms: 0,
        };
        let mut usage = TurnUsage::of("msg_1");
        usage.observe(&event(0.5));
        let session = |input| Session {
            tokens: Some(Tokens { input, ..Tokens::default() }),
            cost_usd_picos: 1_500_000_000_000,
            ..Session::default()
        };
        let later = used_by(&session(20), Some(&usage));
        assert_eq!(later, "7 tokens in, 0 out, $0.5000 (session: $1.5000)");
        let first = Session { cost_usd_picos: 500_000_000_000, ..session(7) };
        assert_eq!(used_by(&first, Some(&usage)), "7 tokens in, 0 out, $0.5000", "the first turn");
        assert_eq!(used_by(&session(7), None), "7 tokens in, 0 out, $1.5000");
    }

    #[test]
    fn a_session_that_never_had_files_has_no_diff_to_tell_of() {
        let refused = |code| {
            let status = rpc::status::error(code, "the session has no workspace");
            Err::<(), _>(status).context("load the diff").unwrap_err()
        };
        assert!(has_no_workspace(&refused(ErrorCode::WorkspaceMissing)));
        assert!(!has_no_workspace(&refused(ErrorCode::SandboxUnavailable)));
    }
}
