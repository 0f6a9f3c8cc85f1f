//! What a session does while its stream is silent.

use crate::{
    stream::{
        item::{Event, Item, Notice},
        tool_call,
    },
    terminal::paint::one_line,
};
use domain::event::WORKSPACE_PROGRESS;
use indicatif::HumanBytes;
use serde_json::Value;
use std::collections::BTreeMap;

/// Characters of a tool call's description.
const TITLE_CHARS: usize = 40;

/// What a session does, as far as its stream tells.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    phase: Phase,
    /// The running tool calls in words, by part.
    tools: BTreeMap<String, String>,
    /// Whether the model has answered anything: then the workspace is open.
    has_answered: bool,
    /// What the opening of the workspace does; `None`: not known, or it is open.
    opening: Option<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A worker must take the session first.
    #[default]
    Queued,
    Working,
    /// The turn is over or parked: nothing happens by itself.
    Resting,
}

/// What a person waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) what: String,
    /// Whether the wait begins again with every sign of life: a model that writes is not silent.
    pub(crate) restarts: bool,
}

impl Activity {
    pub(crate) fn observe(&mut self, item: &Item) {
        match item {
            Item::Event(event) => self.event(event),
            Item::Delta(_) => self.has_answered = true,
            Item::Notice(Notice { kind, properties }) if kind == WORKSPACE_PROGRESS => {
                self.opening = opening(properties);
            }
            // A newer gateway has further kinds.
            Item::Notice(_) => {}
            Item::Heartbeat(_) | Item::Reconnecting(_) => {}
        }
    }

    /// Forgets what the opening of the workspace does, until the next notice.
    pub(crate) fn forget_opening(&mut self) {
        self.opening = None;
    }

    fn event(&mut self, Event { kind, properties, .. }: &Event) {
        let part = &properties["part"];
        match (kind.as_str(), part["type"].as_str()) {
            ("flotilla.loop.started", _) => {
                self.phase = Phase::Working;
                self.tools.clear();
                self.forget_opening();
            }
            ("flotilla.loop.handed_over", _) => self.phase = Phase::Queued,
            ("session.idle" | "flotilla.session.waiting" | "flotilla.session.quarantined", _) => {
                self.phase = Phase::Resting;
                self.tools.clear();
            }
            ("message.part.updated", Some("tool")) => {
                self.has_answered = true;
                let id = part["id"].as_str().unwrap_or_default().to_owned();
                let state = &part["state"];
                // The notice of the end may be lost. If the opening goes on while a call waits for its files, the next notice says so.
                if matches!(state["status"].as_str(), Some("running" | "completed" | "error")) {
                    self.forget_opening();
                }
                if state["status"] == "running" {
                    let name = one_line(part["tool"].as_str().unwrap_or_default(), TITLE_CHARS);
                    let title = one_line(&tool_call::title(state), TITLE_CHARS);
                    let call = format!("{name}  {title}{}", tool_call::subtask(state));
                    self.tools.insert(id, call.trim_end().to_owned());
                } else {
                    self.tools.remove(&id);
                }
            }
            ("message.part.updated", Some("step-finish")) => self.has_answered = true,
            _ => {}
        }
    }

    /// What the session does; `None` if nothing happens by itself.
    pub(crate) fn pending(&self) -> Option<Pending> {
        let wait = |what: &str, restarts| Some(Pending { what: what.to_owned(), restarts });
        if let (Phase::Working, Some(opening)) = (self.phase, &self.opening) {
            return wait(opening, false);
        }
        match (self.phase, self.tools.len(), self.has_answered) {
            (Phase::Resting, _, _) => None,
            (Phase::Queued, _, _) => wait("waiting for a worker", false),
            // The stream does not tell when the workspace is open and the model begins.
            (Phase::Working, 0, false) => wait("opening the workspace, then model", false),
            (Phase::Working, 0, true) => wait("model", true),
            (Phase::Working, 1, _) => {
                self.tools.values().next().map(|what| Pending { what: what.clone(), restarts: false })
            }
            (Phase::Working, count, _) => wait(&format!("{count} tool calls"), false),
        }
    }
}

/// What the opening of a workspace does, in words; `None`: it is over.
fn opening(progress: &Value) -> Option<String> {
    let stage = match progress["stage"].as_str().unwrap_or_default() {
        "clone" => "cloning the repository",
        "lfs" => "bringing files of Git LFS",
        "submodules" => "cloning the submodules",
        "image" => "bringing the image",
        "setup" => "running the setup",
        "install" => "running the install",
        "files" => "opening the workspace",
        "ready" => return None,
        // A newer worker has further stages.
        _ => "preparing the workspace",
    };
    let is_bytes = progress["unit"] == "bytes";
    let amount = |name: &str| {
        let number = progress[name].as_u64()?;
        Some(if is_bytes { HumanBytes(number).to_string() } else { number.to_string() })
    };
    let unit = if is_bytes { "" } else { progress["unit"].as_str().unwrap_or_default() };
    let amount = match (amount("done"), amount("total")) {
        (Some(done), Some(total)) => format!(", {done} of {total} {}", one_line(unit, TITLE_CHARS)),
        (Some(done), None) => format!(", {done} {}", one_line(unit, TITLE_CHARS)),
        (None, _) => String::new(),
    };
    Some(format!("{stage}{}", amount.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(kind: &str, properties: Value) -> Item {
        Item::Event(Event { seq: 1, epoch: 1, kind: kind.to_owned(), properties, at_ms: 0 })
    }

    fn tool(id: &str, status: &str) -> Item {
        let summary = json!({"sessionId": "ses_2", "summary": [{"tool": "read"}, {"tool": "grep"}]});
        let metadata = if id == "task" { summary } else { json!({}) };
        let state = json!({"status": status, "input": {"command": "make"}, "metadata": metadata});
        let part = json!({"id": id, "type": "tool", "tool": "bash", "state": state});
        event("message.part.updated", json!({"part": part}))
    }

    #[test]
    fn a_workspace_that_opens_says_what_it_waits_for() {
        let mut activity = Activity::default();
        activity.observe(&event("flotilla.loop.started", json!({})));
        let mut after = |properties: Value| {
            activity.observe(&Item::Notice(Notice { kind: WORKSPACE_PROGRESS.to_owned(), properties }));
            activity.pending().map(|pending| pending.what).unwrap_or_default()
        };
        for (properties, want) in [
            (json!({"stage": "clone"}), "cloning the repository"),
            (
                json!({"stage": "clone", "done": 3_145_728, "unit": "bytes"}),
                "cloning the repository, 3.00 MiB",
            ),
            (
                json!({"stage": "lfs", "done": 0, "total": 2048, "unit": "bytes"}),
                "bringing files of Git LFS, 0 B of 2.00 KiB",
            ),
            (json!({"stage": "submodules", "done": 512, "unit": "bytes"}), "cloning the submodules, 512 B"),
            (
                json!({"stage": "image", "done": 1, "total": 5, "unit": "layers"}),
                "bringing the image, 1 of 5 layers",
            ),
            (json!({"stage": "of a newer worker"}), "preparing the workspace"),
            (json!({"stage": "files"}), "opening the workspace"),
        ] {
            assert_eq!(after(properties.clone()), want, "{properties}");
        }
        // The end of the opening may be lost.
        activity.observe(&tool("a", "running"));
        assert_eq!(activity.pending().map(|pending| pending.what).as_deref(), Some("bash  make"));
        // The model may call a tool before the files are there.
        for (stage, want) in [("files", "opening the workspace"), ("ready", "bash  make")] {
            let properties = json!({"stage": stage});
            activity.observe(&Item::Notice(Notice { kind: WORKSPACE_PROGRESS.to_owned(), properties }));
            assert_eq!(activity.pending().map(|pending| pending.what).as_deref(), Some(want));
        }
    }

    #[test]
    fn a_silent_session_says_what_it_does() {
        let mut activity = Activity::default();
        let mut after = |item: Item| {
            activity.observe(&item);
            activity.pending().map(|pending| pending.what)
        };
        let ours = |text: &str| Some(text.to_owned());
        let finish = json!({"part": {"type": "step-finish"}});
        for (item, want) in [
            (event("session.status", json!({})), ours("waiting for a worker")),
            (event("flotilla.loop.started", json!({})), ours("opening the workspace, then model")),
            (tool("a", "running"), ours("bash  make")),
            (tool("b", "running"), ours("2 tool calls")),
            (tool("a", "completed"), ours("bash  make")),
            (tool("b", "error"), ours("model")),
            (event("message.part.updated", finish), ours("model")),
            (tool("task", "running"), ours("bash  make  (ses_2, 2 calls, now grep)")),
            (event("flotilla.loop.handed_over", json!({})), ours("waiting for a worker")),
            (event("flotilla.loop.started", json!({})), ours("model")),
            (event("flotilla.session.waiting", json!({"reason": "permission"})), None),
            (event("flotilla.loop.started", json!({})), ours("model")),
            (event("session.idle", json!({})), None),
        ] {
            assert_eq!(after(item.clone()), want, "{item:?}");
        }
    }
}
