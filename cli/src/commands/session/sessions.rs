//! The short commands about one or all sessions: list, diff, abort, rename, archive.

use crate::{
    client::{Client, Listed, Paged, call, first_pages},
    commands::{project, session::messages},
    exit::Exit,
    terminal::{
        json,
        output::{ListText, Output},
        paint::{Paint, one_line},
        raw::ScreenSize,
        show,
        table::{Side, Table},
    },
};
use anyhow::{Result, bail};
use prost_types::FieldMask;
use rpc::v1::{
    AbortSessionRequest, GetSessionDiffRequest, GetToolOutputRequest, ListSessionsRequest, Session,
    SessionState, UpdateSessionRequest,
};
use serde_json::json;
use std::{
    collections::{HashMap, HashSet},
    num::NonZeroUsize,
};

/// Characters of a title in a list that no terminal shows.
const TITLE_CHARS: usize = 60;
/// Characters of a title in a narrow terminal.
const TITLE_CHARS_MIN: usize = 12;
/// What stands before the title of a subtask, for each generation.
const BELOW: &str = "↳ ";
/// Sessions in one list; `--all` shows the rest.
const LIST_MAX: usize = 50;

/// `flotilla ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// All sessions, not only the last 50.
    #[arg(long)]
    all: bool,
    /// At most so many sessions.
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "all")]
    limit: Option<NonZeroUsize>,
    /// Only those of this project, by name or id.
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// Only those in this state.
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    /// Only the ids, one per line.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Only sessions that wait, with the reason, their position in the queue, and an estimate of when they continue.
    #[arg(long)]
    waiting: bool,
    /// Archived sessions too.
    #[arg(long)]
    archived: bool,
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StateArg {
    Idle,
    Queued,
    Running,
    Waiting,
    Quarantined,
}

impl StateArg {
    fn to_wire(self) -> SessionState {
        match self {
            Self::Idle => SessionState::Idle,
            Self::Queued => SessionState::Queued,
            Self::Running => SessionState::Running,
            Self::Waiting => SessionState::Waiting,
            Self::Quarantined => SessionState::Quarantined,
        }
    }
}

/// `flotilla rename`.
#[derive(Debug, clap::Args)]
pub(crate) struct RenameArgs {
    /// The session.
    pub(crate) id: String,
    /// Its new title.
    title: String,
}

/// `flotilla archive`.
#[derive(Debug, clap::Args)]
pub(crate) struct ArchiveArgs {
    /// The session.
    pub(crate) id: String,
    /// Show it in lists again.
    #[arg(long)]
    undo: bool,
}

pub(crate) async fn list(client: &Client, output: &Output, arguments: ListArgs) -> Result<Exit> {
    let most = if arguments.all { usize::MAX } else { arguments.limit.map_or(LIST_MAX, NonZeroUsize::get) };
    let project_id = match &arguments.project {
        Some(named) => project::find(client, named).await?.id,
        None => String::new(),
    };
    let state = arguments.state.map(StateArg::to_wire);
    let sessions = first_pages(most, async |page| {
        let request = ListSessionsRequest {
            page: Some(page),
            project_id: project_id.clone(),
            include_archived: arguments.archived,
            waiting_only: arguments.waiting,
        };
        let list = async || client.sessions().list_sessions(request.clone()).await;
        let mut answer = call("list sessions", list).await?;
        answer.sessions.retain(|session| state.is_none_or(|state| session.state() == state));
        Ok(Paged { entries: answer.sessions, next_cursor: answer.next_cursor })
    });
    let Listed { entries, has_more } = sessions.await?;
    if arguments.quiet {
        return entries.iter().try_for_each(|session| output.line(&session.id)).map(|()| Exit::Done);
    }
    let columns = ScreenSize::of_terminal().filter(|_| output.is_terminal()).map(|size| size.columns.into());
    let table = |sessions: &[Session], paint: Paint| {
        let now_ms = show::now_ms();
        if arguments.waiting {
            waiting_table(sessions, now_ms, paint)
        } else {
            table(sessions, Look { now_ms, columns, paint })
        }
    };
    let none = if arguments.waiting {
        "no session waits"
    } else if arguments.project.is_some() || arguments.state.is_some() {
        "there is no such session; without --project and --state, `flotilla ls` lists all"
    } else {
        "no sessions yet; `flotilla run \"…\"` starts one"
    };
    output.list(&entries, &ListText { to_json: json::session, table: &table, none })?;
    if has_more {
        output.note("… there are more; --all shows them, --limit N more of them");
    }
    Ok(Exit::Done)
}

#[derive(Clone, Copy)]
struct Look {
    now_ms: i64,
    /// Columns of the terminal; `None`: there is none.
    columns: Option<usize>,
    paint: Paint,
}

/// Returns a line per session under a heading, subtasks below their session; empty without sessions.
fn table(sessions: &[Session], Look { now_ms, columns, paint }: Look) -> String {
    let heading = ["SESSION", "STATE", "UPDATED", "COST", "TITLE"].map(str::to_owned);
    let sessions = with_families(sessions);
    let cells = sessions.iter().map(|(session, depth)| {
        [
            session.id.clone(),
            show::state(session),
            show::age(now_ms.saturating_sub(session.updated_at_ms)),
            show::dollars(session.cost_usd_picos),
            format!("{}{}", BELOW.repeat(*depth), shown_title(session)),
        ]
    });
    let rows: Vec<_> = cells.collect();
    if rows.is_empty() {
        return String::new();
    }
    let widths: [usize; 4] = std::array::from_fn(|column| {
        let all = rows.iter().chain([&heading]).map(|row| row[column].chars().count());
        all.max().unwrap_or_default()
    });
    let before: usize = widths.iter().map(|width| width + 2).sum();
    let title_chars =
        columns.map_or(TITLE_CHARS, |columns| columns.saturating_sub(before).max(TITLE_CHARS_MIN));
    let line = |[id, state, age, cost, title]: &[String; 5], colour: &dyn Fn(&str) -> String| {
        let [id_width, state_width, age_width, cost_width] = widths;
        // Colour after padding: escape sequences would count as characters.
        let state = colour(&format!("{state:state_width$}"));
        let title = one_line(title, title_chars);
        format!("{id:id_width$}  {state}  {age:>age_width$}  {cost:>cost_width$}  {title}\n")
    };
    let mut text = paint.dim(line(&heading, &str::to_owned).trim_end());
    text.push('\n');
    for ((session, _), row) in sessions.iter().zip(&rows) {
        text.push_str(&line(row, &|state| show::paint_state(session, state, paint)));
    }
    text
}

/// Sessions with the generations above them in the list: each subtask behind its session, all else in the order of the list.
fn with_families(sessions: &[Session]) -> Vec<(&Session, usize)> {
    let ids: HashSet<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    let mut children: HashMap<&str, Vec<&Session>> = HashMap::new();
    let (mut open, mut ordered) = (vec![], vec![]);
    for session in sessions.iter().rev() {
        if ids.contains(session.parent_id.as_str()) {
            children.entry(&session.parent_id).or_default().push(session);
        } else {
            open.push((session, 0));
        }
    }
    while let Some((session, depth)) = open.pop() {
        ordered.push((session, depth));
        let below = children.remove(session.id.as_str()).unwrap_or_default();
        open.extend(below.into_iter().map(|child| (child, depth + 1)));
    }
    ordered
}

/// The title, with a mark if the session is archived. Only a list that includes archived sessions needs the mark.
fn shown_title(session: &Session) -> String {
    if session.archived_at_ms == 0 { session.title.clone() } else { format!("[archived] {}", session.title) }
}

/// Returns a line for each waiting session: the reason, its position in the queue, and an estimate of when it
/// continues.
fn waiting_table(sessions: &[Session], now_ms: i64, paint: Paint) -> String {
    let mut table = Table::new([
        ("SESSION", Side::Left),
        ("REASON", Side::Left),
        ("PLACE", Side::Right),
        ("ETA", Side::Right),
        ("TITLE", Side::Left),
    ]);
    for session in sessions {
        let wait = session.wait.clone().unwrap_or_default();
        let place = if wait.position > 0 { wait.position.to_string() } else { "-".to_owned() };
        let eta =
            if wait.eta_ms > 0 { show::span(wait.eta_ms.saturating_sub(now_ms)) } else { "-".to_owned() };
        table.push([session.id.clone(), wait.reason, place, eta, shown_title(session)]);
    }
    table.text(paint)
}

/// `message`: the prompt whose turn is meant, as a person names it; `None`: the whole session.
pub(crate) async fn diff(
    client: &Client,
    output: &Output,
    session_id: &str,
    message: Option<&str>,
) -> Result<Exit> {
    let message_id = messages::find_or_none(client, session_id, message).await?;
    let request =
        || GetSessionDiffRequest { session_id: session_id.to_owned(), message_id: message_id.clone() };
    let answer =
        call("load the diff", || async { client.sessions().get_session_diff(request()).await }).await?;
    if output.is_json() {
        let files = answer
            .files
            .iter()
            .map(|file| json!({"path": file.path, "additions": file.additions, "deletions": file.deletions}));
        output.json(&json!({
            "type": "diff", "session": session_id, "message_id": (!message_id.is_empty()).then_some(&message_id),
            "patch": answer.patch, "is_truncated": answer.truncated, "files": files.collect::<Vec<_>>(),
            "left_out": answer.left_out,
        }))?;
    } else if output.is_terminal() {
        output.page(&show::diff(&answer, output.paint()))?;
    } else {
        // A pipe receives the bare patch, suitable for `git apply`.
        output.write(&answer.patch)?;
        if answer.truncated {
            bail!("the diff was cut; `flotilla checkout {session_id}` gives all of it");
        }
    }
    Ok(Exit::Done)
}

/// Loads the whole output of a tool call. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// The refusal of the gateway.
pub(super) async fn load_output(client: &Client, session_id: &str, path: &str) -> Result<String> {
    let request = || GetToolOutputRequest { session_id: session_id.to_owned(), path: path.to_owned() };
    let answer =
        call("load the output", || async { client.sessions().get_tool_output(request()).await }).await?;
    Ok(String::from_utf8_lossy(&answer.data).into_owned())
}

/// Prints the whole output of a tool call, unchanged.
pub(crate) async fn output(client: &Client, output: &Output, session_id: &str, path: &str) -> Result<Exit> {
    let text = load_output(client, session_id, path).await?;
    if output.is_json() {
        output.json(&json!({"type": "output", "session": session_id, "path": path, "text": text}))?;
    } else {
        output.page(&text)?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn abort(client: &Client, output: &Output, session_id: &str) -> Result<Exit> {
    let request = || AbortSessionRequest { session_id: session_id.to_owned() };
    let answer =
        call("abort the session", || async { client.sessions().abort_session(request()).await }).await?;
    let text = if answer.was_active { "the turn is being stopped" } else { "there was nothing to stop" };
    output.result(text, &json!({"type": "abort", "session": session_id, "was_active": answer.was_active}))?;
    Ok(Exit::Done)
}

/// Renames a session. A model then no longer chooses its title.
pub(crate) async fn rename(client: &Client, output: &Output, arguments: RenameArgs) -> Result<Exit> {
    let RenameArgs { id, title } = arguments;
    let object = json!({"type": "rename", "session": id, "title": title});
    let request =
        UpdateSessionRequest { session_id: id, update_mask: mask("title"), title, ..Default::default() };
    update(client, "rename the session", request).await?;
    output.result("the session is renamed", &object)?;
    Ok(Exit::Done)
}

/// Removes a session from lists, or returns it to them.
pub(crate) async fn archive(client: &Client, output: &Output, arguments: ArchiveArgs) -> Result<Exit> {
    let ArchiveArgs { id, undo } = arguments;
    let request = UpdateSessionRequest {
        session_id: id.clone(),
        update_mask: mask("archived"),
        archived: !undo,
        ..Default::default()
    };
    update(client, "archive the session", request).await?;
    let text = if undo {
        "lists show the session again".to_owned()
    } else {
        format!(
            "the session is archived; `flotilla ls --archived` shows it, and a prompt or `flotilla archive {id} --undo` restores it"
        )
    };
    output.result(&text, &json!({"type": "archive", "session": id, "is_archived": !undo}))?;
    Ok(Exit::Done)
}

fn mask(field: &str) -> Option<FieldMask> {
    Some(FieldMask { paths: vec![field.to_owned()] })
}

async fn update(client: &Client, what: &'static str, request: UpdateSessionRequest) -> Result<()> {
    call(what, || async { client.sessions().update_session(request.clone()).await }).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpc::v1::{SessionState, TurnOutcome};

    fn session(id: &str, state: SessionState, age_ms: i64, title: &str) -> Session {
        let mut session = Session { id: id.to_owned(), title: title.to_owned(), ..Session::default() };
        session.set_state(state);
        session.set_last_outcome(TurnOutcome::Failed);
        session.updated_at_ms = 1_000_000_000 - age_ms;
        session
    }

    #[test]
    fn waiting_sessions_show_reason_place_and_time() {
        let wait = |reason: &str, position, eta_ms| {
            let reason = reason.to_owned();
            Some(rpc::v1::Wait { reason, position, eta_ms, ..rpc::v1::Wait::default() })
        };
        let id = "ses_1ffcce3d00015Oy45kUL559D5O";
        let title = "a title that is longer than what is left";
        let queued = Session {
            wait: wait("tenant_running", 12, 60_000),
            ..session(id, SessionState::Queued, 0, title)
        };
        let asks =
            Session { wait: wait("permission", 0, 0), ..session("ses_2", SessionState::Waiting, 0, "b") };
        let text = waiting_table(&[queued.clone(), asks], 20_000, Paint::Plain);
        assert_eq!(
            text,
            "SESSION                         REASON          PLACE   ETA  TITLE
ses_1ffcce3d00015Oy45kUL559D5O  tenant_running     12  40 s  a title that is lo…
ses_2                           permission          -     -  b
"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        let json = json::session(&queued);
        assert_eq!(
            (&json["wait"]["position"], &json["state"], &json["class"]),
            (&json!(12), &json!("queued"), &json!("unspecified"))
        );
    }

    #[test]
    fn the_list_is_a_table() {
        let waiting = Session {
            waiting_reason: "permission".to_owned(),
            cost_usd_picos: 12_000_000_000_000,
            archived_at_ms: 1,
            ..session("ses_2", SessionState::Waiting, 3 * 3_600_000, "b")
        };
        let sessions = [session("ses_1", SessionState::Idle, 999, "fix it\nall"), waiting];
        let look = Look { now_ms: 1_000_000_000, columns: None, paint: Paint::Plain };
        assert_eq!(
            table(&sessions, look),
            "SESSION  STATE                 UPDATED      COST  TITLE
ses_1    failed               just now   $0.0000  fix it
ses_2    waiting: permission   3 h ago  $12.0000  [archived] b
"
        );
        let coloured = table(&sessions[..1], Look { paint: Paint::Colour, ..look });
        assert!(
            coloured.ends_with("ses_1    \u{1b}[31mfailed\u{1b}[0m  just now  $0.0000  fix it\n"),
            "{coloured:?}"
        );
        assert_eq!(table(&[], look), "");
    }

    #[test]
    fn subtasks_stand_below_their_session_and_titles_end_with_the_line() {
        let child = |id: &str, parent: &str, title: &str| Session {
            parent_id: parent.to_owned(),
            ..session(id, SessionState::Idle, 999, title)
        };
        let sessions = [
            child("ses_4", "ses_2", "a subtask of a subtask"),
            child("ses_3", "", "another one"),
            child("ses_2", "ses_1", "a subtask"),
            child("ses_5", "ses_9", "a subtask of another page"),
            child("ses_1", "", "a session whose title is too long for the line"),
        ];
        let look = Look { now_ms: 1_000_000_000, columns: Some(60), paint: Paint::Plain };
        let text = table(&sessions, look);
        let titles: Vec<String> = text.lines().skip(1).map(|line| line.chars().skip(36).collect()).collect();
        assert_eq!(
            titles,
            [
                "another one",
                "a subtask of another pa…",
                "a session whose title i…",
                "↳ a subtask",
                "↳ ↳ a subtask of a subt…"
            ]
        );
    }
}
