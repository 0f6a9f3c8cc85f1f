//! Commands: prompts with a name. A prompt asks for a command by a mark on its text; the worker, which knows the repository,
//! replaces the text with the expanded template. A person's own shell command is marked in the same way.

pub mod template;

use crate::{
    conversation::{message::ModelRef, part::Text},
    limits,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The mark on the text of a prompt that asks for a command: a [`CommandRequest`].
const COMMAND: &str = "command";
/// The mark on the text of a prompt that asks for a shell command: the command line.
const SHELL: &str = "shell";
/// The mark beside it: the sandbox ends the command after so many milliseconds. Absent: [`limits::SHELL_TIMEOUT_MS`].
const SHELL_TIMEOUT: &str = "shell_timeout_ms";
/// The sentence that tells a model about a shell command or a task that the person started.
pub const BY_THE_USER: &str = "The following tool was executed by the user";

/// A prompt with a name.
///
/// ```json
/// {"template":"Review $ARGUMENTS","description":"reviews","agent":"explore","subtask":true}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// The prompt, with OpenCode's placeholders.
    pub template: String,
    /// Its description, for people.
    pub description: Option<String>,
    pub agent: Option<String>,
    pub model: Option<ModelRef>,
    /// The variant of that model.
    pub variant: Option<String>,
    /// Whether it runs as a subtask.
    pub subtask: Option<bool>,
}

/// A client's request to run a command.
///
/// ```json
/// {"name":"review","arguments":"main","progress":"asked"}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRequest {
    pub name: String,
    /// The arguments of the caller.
    pub arguments: String,
    pub progress: CommandState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandState {
    /// The worker has not expanded it yet.
    Asked,
    /// The prompt contains the expanded template.
    Expanded,
    /// The turn that answered it is over.
    Executed,
}

impl CommandRequest {
    /// Reads the mark of a text.
    pub fn of(text: &Text) -> Option<Self> {
        serde_json::from_value(text.mark(COMMAND)?.clone()).ok()
    }

    /// Returns a text that asks for it, as a person would write it.
    pub fn text(&self) -> Text {
        let words = format!("/{} {}", self.name, self.arguments);
        self.mark(Text { text: words.trim_end().to_owned(), ..Text::default() })
    }

    /// Marks a text as made from this command, with the progress.
    #[must_use]
    pub fn mark(&self, text: Text) -> Text {
        text.marked(COMMAND, serde_json::to_value(self).unwrap_or_default())
    }
}

/// Returns a text that asks for a shell command.
pub fn shell(command: &str) -> Text {
    Text::synthetic(BY_THE_USER).marked(SHELL, command)
}

/// As [`shell`]: the command is ended after `timeout_ms` milliseconds.
pub fn shell_for(command: &str, timeout_ms: u32) -> Text {
    shell(command).marked(SHELL_TIMEOUT, timeout_ms)
}

/// Returns the shell command that a text asks for.
pub fn shell_of(text: &Text) -> Option<&str> {
    text.mark(SHELL)?.as_str()
}

/// Returns the milliseconds after which the shell command that a text asks for is ended.
pub fn shell_timeout_of(text: &Text) -> u32 {
    let named = text.mark(SHELL_TIMEOUT).and_then(Value::as_u64);
    named.and_then(|named| u32::try_from(named).ok()).unwrap_or(limits::SHELL_TIMEOUT_MS)
}

/// The names of the built-in commands.
pub const BUILT_IN: [&str; 2] = ["init", "review"];

/// Returns a built-in command. A command of the repository with the same name replaces it.
pub fn built_in(name: &str) -> Option<Command> {
    let (template, description, subtask) = match name {
        "init" => (include_str!("command/init.txt"), "guided AGENTS.md setup", None),
        "review" => (
            include_str!("command/review.txt"),
            "review changes [commit|branch|pr], defaults to uncommitted",
            Some(true),
        ),
        _ => return None,
    };
    Some(Command {
        template: template.to_owned(),
        description: Some(description.to_owned()),
        subtask,
        ..Command::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_text_asks_for_a_command_and_remembers_it() {
        let request = CommandRequest {
            name: "review".to_owned(),
            arguments: "main".to_owned(),
            progress: CommandState::Asked,
        };
        let text = request.text();
        assert_eq!((text.text.as_str(), text.synthetic), ("/review main", None));
        assert_eq!(CommandRequest::of(&text), Some(request.clone()));
        let expanded = CommandRequest { progress: CommandState::Expanded, ..request };
        assert_eq!(CommandRequest::of(&expanded.mark(text)), Some(expanded));
        assert_eq!(CommandRequest::of(&Text::default()), None);
        assert_eq!(CommandRequest::of(&Text::default().marked(COMMAND, "review")), None);
    }

    #[test]
    fn a_text_asks_for_a_command_of_the_shell() {
        let text = shell("ls -l");
        assert_eq!((shell_of(&text), text.synthetic), (Some("ls -l"), Some(true)));
        assert_eq!(shell_timeout_of(&text), limits::SHELL_TIMEOUT_MS);
        let text = shell_for("ls", 5_000);
        assert_eq!((shell_of(&text), shell_timeout_of(&text)), (Some("ls"), 5_000));
        assert_eq!(shell_of(&Text::default()), None);
    }

    #[test]
    fn some_commands_are_always_there() {
        for name in BUILT_IN {
            let command = built_in(name).unwrap();
            assert!(command.template.contains("$ARGUMENTS"), "{name}");
        }
        assert_eq!(built_in("other"), None);
    }
}
