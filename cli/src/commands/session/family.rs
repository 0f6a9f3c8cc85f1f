//! `flotilla tree` and `flotilla delete`: a session with its subtasks.

use crate::{
    client::{self, Client, call},
    exit::Exit,
    terminal::{
        json,
        output::{ListText, Output},
        paint::{Paint, one_line},
        show,
    },
};
use anyhow::Result;
use domain::limits;
use rpc::v1::{DeleteSessionRequest, Session};
use serde_json::json;

/// Sessions of one tree; a root session has at most as many subtasks over its whole life. Further ones are not shown.
const SESSIONS_MAX: usize = 1 + limits::SUBTASKS_PER_TREE_MAX as usize;
/// Characters of a title.
const TITLE_CHARS: usize = 60;

/// `flotilla tree`.
#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    /// The session.
    pub(crate) id: String,
}

/// `flotilla delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// The sessions.
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
}

/// A session of a tree.
#[derive(Debug)]
struct Branch {
    session: Session,
    /// Generations below the root of the tree.
    depth: usize,
}

/// Prints a session and its subtasks; parents come before their subtasks.
pub(crate) async fn tree(client: &Client, output: &Output, arguments: TreeArgs) -> Result<Exit> {
    let root = client::get_session(client, &arguments.id).await?;
    let branches = load(client, output, root).await?;
    let to_json = |Branch { session, depth }: &Branch| {
        let mut object = json::session(session);
        object["depth"] = (*depth).into();
        object
    };
    let table = |branches: &[Branch], paint: Paint| {
        let lines = branches.iter().map(|Branch { session, depth }| text(session, *depth, paint) + "\n");
        lines.collect()
    };
    output.list(&branches, &ListText { to_json, table: &table, none: "" })?;
    Ok(Exit::Done)
}

/// Loads a session and everything below it, each parent before its subtasks.
async fn load(client: &Client, output: &Output, root: Session) -> Result<Vec<Branch>> {
    let (mut branches, mut open) = (vec![], vec![Branch { session: root, depth: 0 }]);
    while let Some(branch) = open.pop() {
        if branches.len() == SESSIONS_MAX {
            output.note(&format!("… there are more than {SESSIONS_MAX}"));
            break;
        }
        let children = client::list_children(client, &branch.session.id).await?;
        let depth = branch.depth + 1;
        open.extend(children.into_iter().rev().map(|session| Branch { session, depth }));
        branches.push(branch);
    }
    Ok(branches)
}

fn text(session: &Session, depth: usize, paint: Paint) -> String {
    let state = show::paint_state(session, &show::state(session), paint);
    let (indent, cost) = ("  ".repeat(depth), show::dollars(session.cost_usd_picos));
    let files = files(session).map(|files| format!("  {}", paint.dim(&files))).unwrap_or_default();
    format!("{indent}{}  {state}  {cost}  {}{files}", session.id, one_line(&session.title, TITLE_CHARS))
}

/// Whose files a subtask uses. An older gateway does not say it.
fn files(session: &Session) -> Option<String> {
    let Session { id, parent_id, workspace_session_id, .. } = session;
    if parent_id.is_empty() || workspace_session_id.is_empty() {
        None
    } else if workspace_session_id == id {
        Some(format!("files: copy of those of {parent_id}"))
    } else {
        Some(format!("files: those of {workspace_session_id}"))
    }
}

/// Deletes sessions with their subtasks and files. Ends at the first one that cannot be deleted.
pub(crate) async fn delete(client: &Client, output: &Output, arguments: DeleteArgs) -> Result<Exit> {
    for session_id in arguments.ids {
        let request = DeleteSessionRequest { session_id: session_id.clone() };
        let delete = async || client.sessions().delete_session(request.clone()).await;
        call("delete the session", delete).await?;
        let object = json!({"type": "deletion", "id": session_id, "is_deleted": true});
        output.result(&format!("{session_id} is deleted"), &object)?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use rpc::v1::SessionState;

    #[test]
    fn a_subtask_is_shown_below_its_parent() {
        let mut session =
            Session { id: "ses_1".to_owned(), title: "look\naround".to_owned(), ..Session::default() };
        session.set_state(SessionState::Running);
        assert_eq!(text(&session, 0, Paint::Plain), "ses_1  running  $0.0000  look");
        assert_eq!(text(&session, 2, Paint::Plain), "    ses_1  running  $0.0000  look");
    }

    #[test]
    fn a_subtask_says_whose_files_it_uses() {
        let session = |parent: &str, workspace: &str| Session {
            id: "ses_2".to_owned(),
            parent_id: parent.to_owned(),
            workspace_session_id: workspace.to_owned(),
            ..Session::default()
        };
        for (parent, workspace, want) in [
            ("", "ses_2", None),
            ("ses_1", "", None),
            ("ses_1", "ses_0", Some("files: those of ses_0")),
            ("ses_1", "ses_2", Some("files: copy of those of ses_1")),
        ] {
            assert_eq!(files(&session(parent, workspace)).as_deref(), want);
        }
        let copy = session("ses_1", "ses_2");
        assert!(text(&copy, 1, Paint::Plain).ends_with("  files: copy of those of ses_1"));
    }
}
