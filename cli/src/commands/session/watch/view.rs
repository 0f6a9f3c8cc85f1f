//! What a command shows of a stream, and what it keeps of it for the end.

use super::{command::CommandResult, silence::Silence};
use crate::{
    commands::{
        requests::{answer::Open, subtasks::Subtasks},
        session::{
            presentation::{Purpose, Show, ShowArgs},
            render::Renderer,
        },
    },
    exit::Exit,
    stream::{
        item::{Event, Item},
        usage::TurnUsage,
    },
    terminal::output::Output,
};
use anyhow::Result;
use rpc::v1::ErrorCode;
use serde_json::json;

/// The output so far: on the screen, or as JSON lines.
pub(super) struct View<'a> {
    output: &'a Output,
    purpose: Purpose,
    pub(super) renderer: Renderer,
    pub(super) subtasks: Subtasks,
    pub(super) silence: Silence,
    /// The code of the newest error of the session.
    pub(super) error: Option<String>,
    /// How the newest command ended.
    pub(super) command: Option<CommandResult>,
    /// What the turn used, if it is known which turn it is.
    pub(super) usage: Option<TurnUsage>,
}

impl<'a> View<'a> {
    pub(super) fn new(output: &'a Output, show: Show<'_>) -> Self {
        let ShowArgs { outputs, purpose, .. } = *show.arguments;
        let renderer = Renderer::new(output.paint()).with_outputs(outputs);
        Self {
            output,
            purpose,
            renderer,
            subtasks: Subtasks::default(),
            silence: Silence::default(),
            error: None,
            command: None,
            usage: show.prompt.map(TurnUsage::of),
        }
    }

    pub(super) fn show(&mut self, item: &Item) -> Result<()> {
        self.subtasks.observe(item);
        self.silence.end(item);
        if let Item::Event(event) = item {
            self.observe(event);
        }
        if self.has_text() {
            let text = self.renderer.feed(item);
            return self.output.write(&text);
        }
        match item {
            Item::Reconnecting(reconnect) => {
                self.output.note(&reconnect.line());
                Ok(())
            }
            item if self.output.is_json() => {
                item.to_json().map_or(Ok(()), |object| self.output.json(&object))
            }
            Item::Event(_) | Item::Delta(_) | Item::Notice(_) | Item::Heartbeat(_) => Ok(()),
        }
    }

    /// Whether standard output shows the stream as text. It has objects with `--json`, and only the output of the command for `shell`.
    fn has_text(&self) -> bool {
        !self.output.is_json() && !self.purpose.is_shell()
    }

    /// Keeps what decides about the exit code.
    fn observe(&mut self, event: &Event) {
        if let Some(usage) = &mut self.usage {
            usage.observe(event);
        }
        match event.kind.as_str() {
            "session.error" => {
                let error = &event.properties["error"];
                let code = error["data"]["ref"].as_str().or_else(|| error["name"].as_str());
                self.error = code.map(str::to_owned);
            }
            "message.part.updated" if event.properties["part"]["tool"] == "bash" => {
                self.command = Some(CommandResult::of(&event.properties["part"]["state"]));
            }
            _ => {}
        }
    }

    /// The exit code for the end of a turn.
    pub(super) fn exit(&self, outcome: &str) -> Exit {
        match (outcome, self.purpose, self.error.as_deref()) {
            // A command of a person ends with its own code. It has none if it did not run, or if a limit ended it.
            ("done", Purpose::Shell { .. }, _) => {
                let code = self.command.as_ref().and_then(|command| command.exit);
                code.map_or(Exit::Usage, Exit::of_command)
            }
            ("failed" | "aborted", Purpose::Shell { .. }, _) => Exit::Usage,
            // A session without a turn counts as done.
            ("idle", ..) => Exit::Done,
            // The command line names a command that the repository does not have.
            ("failed", _, Some(code)) if ErrorCode::parse(code) == Some(ErrorCode::CommandNotFound) => {
                Exit::Usage
            }
            _ => Exit::of_outcome(outcome),
        }
    }

    /// Shows new requests of subtasks.
    pub(super) fn show_asked(&mut self, requests: Vec<Open>) -> Result<()> {
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
    pub(super) fn finish(&mut self) -> Result<()> {
        self.silence.hide();
        if !self.has_text() {
            return Ok(());
        }
        let text = self.renderer.finish();
        self.output.write(&text)
    }
}
