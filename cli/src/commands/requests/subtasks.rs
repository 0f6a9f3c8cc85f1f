//! Requests of subtasks to people, while a person watches the session above them.

use crate::{
    client::{self, Client},
    commands::requests::answer::{self, Open},
    stream::item::{Event, Item},
};
use anyhow::Result;
use rpc::v1::SessionState;
use std::collections::BTreeSet;

/// The known state of the watched session's subtasks.
#[derive(Debug, Default)]
pub(crate) struct Subtasks {
    /// The parts of the open tool calls: each may have sessions below it.
    open: BTreeSet<String>,
    /// The requests that are already shown.
    shown: BTreeSet<String>,
}

impl Subtasks {
    /// Records which subtasks begin and end.
    pub(crate) fn observe(&mut self, item: &Item) {
        let Item::Event(Event { kind, properties, .. }) = item else { return };
        let part = &properties["part"];
        if kind != "message.part.updated" || part["tool"] != "task" {
            return;
        }
        let id = part["id"].as_str().unwrap_or_default();
        if part["state"]["status"] == "running" {
            self.open.insert(id.to_owned());
        } else {
            self.open.remove(id);
        }
    }

    /// Whether there may be a subtask that asks.
    pub(crate) fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Removes requests that were returned before.
    pub(crate) fn fresh(&mut self, requests: Vec<Open>) -> Vec<Open> {
        requests.into_iter().filter(|open| self.shown.insert(open.id().to_owned())).collect()
    }
}

/// The result of one poll of the subtasks.
#[derive(Debug)]
pub(crate) struct Look {
    /// The open requests of subtasks, at any depth.
    pub asked: Vec<Open>,
    /// Whether nothing continues until a person answers.
    pub is_stuck: bool,
}

/// Lists the open requests of a session's subtasks.
///
/// # Errors
/// If the server refuses the call or cannot be reached.
pub(crate) async fn look(client: &Client, session_id: &str) -> Result<Look> {
    let session = client::get_session(client, session_id).await?;
    let mut requests = answer::list(client, session_id).await?;
    requests.retain(|open| open.session_id() != session_id);
    let waits = session.wait.as_ref().filter(|_| session.state() == SessionState::Waiting);
    let is_stuck = waits.is_some_and(|wait| wait.asking > 0 && wait.going_on == 0) && !requests.is_empty();
    Ok(Look { asked: requests, is_stuck })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpc::v1::Permission;
    use serde_json::json;

    fn part(id: &str, tool: &str, status: &str) -> Item {
        let properties = json!({"part": {"id": id, "tool": tool, "state": {"status": status}}});
        let kind = "message.part.updated".to_owned();
        Item::Event(Event { seq: 1, epoch: 1, kind, properties, at_ms: 0 })
    }

    #[test]
    fn only_open_subtasks_are_looked_after() {
        let mut subtasks = Subtasks::default();
        for (id, tool, status, want) in [
            ("a", "bash", "running", false),
            ("b", "task", "running", true),
            ("c", "task", "running", true),
            ("b", "task", "completed", true),
            ("c", "task", "error", false),
        ] {
            subtasks.observe(&part(id, tool, status));
            assert_eq!(subtasks.are_open(), want, "{id} {tool} {status}");
        }
    }

    #[test]
    fn what_was_shown_is_not_shown_again() {
        let asks = |id: &str| Open::Permission(Permission { id: id.to_owned(), ..Permission::default() });
        let mut subtasks = Subtasks::default();
        assert_eq!(subtasks.fresh(vec![asks("per_1")]), [asks("per_1")]);
        assert_eq!(subtasks.fresh(vec![asks("per_1"), asks("per_2")]), [asks("per_2")]);
    }
}
