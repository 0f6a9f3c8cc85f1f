//! The last line of `run`, `say`, `shell` and `watch` with `--json`: how the command ended.

use crate::{
    exit::{self, Exit},
    terminal::output::Output,
};
use serde_json::{Value, json};

/// How a turn ended, or why it is no longer shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    /// The word of the turn: "done", "failed", "aborted", "needs_human", "budget"; "idle" for a session without a turn, "running" for
    /// a turn that continues.
    pub(crate) word: String,
    /// The code of the turn's error.
    pub(crate) code: Option<String>,
    /// The error in a sentence.
    pub(crate) message: Option<String>,
}

impl Outcome {
    /// The end of a command that failed itself.
    fn of_error(error: &anyhow::Error) -> Self {
        let (word, code) = ("unknown".to_owned(), Some(exit::code(error)));
        Self { exit: Exit::Usage, word, code, message: exit::sentence(error) }
    }

    /// The end of a command that was interrupted before there was a turn.
    pub(super) fn of_interruption(message: String) -> Self {
        let (word, code) = ("unknown".to_owned(), Some("interrupted".to_owned()));
        Self { exit: Exit::Interrupted, word, code, message: Some(message) }
    }

    fn status(&self) -> &'static str {
        match self.exit {
            Exit::Interrupted if self.word == "unknown" => "error",
            // The turn of a command is done, whatever its code is.
            Exit::Done | Exit::Program(_) => "idle",
            Exit::Failed | Exit::Usage if self.word == "aborted" => "aborted",
            Exit::Failed | Exit::Usage => "error",
            Exit::NeedsHuman | Exit::Budget => "waiting",
            Exit::StillRunning | Exit::Interrupted => "running",
        }
    }

    pub(crate) fn to_json(&self, session_id: Option<&str>) -> Value {
        json!({
            "type": "outcome", "session": session_id, "status": self.status(), "exit": self.exit.code(),
            "outcome": self.word, "code": self.code, "message": self.message,
        })
    }
}

/// Writes the outcome of a command that failed, for programs, and returns its error.
pub(crate) fn failed(output: &Output, session_id: Option<&str>, error: anyhow::Error) -> anyhow::Error {
    if output.is_json() {
        // The error itself is more important than a line that cannot be written.
        drop(output.json(&Outcome::of_error(&error).to_json(session_id)));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_status() {
        for (exit, word, status) in [
            (Exit::Done, "done", "idle"),
            (Exit::Failed, "failed", "error"),
            (Exit::Failed, "aborted", "aborted"),
            (Exit::NeedsHuman, "needs_human", "waiting"),
            (Exit::Budget, "budget", "waiting"),
            (Exit::StillRunning, "running", "running"),
            (Exit::Interrupted, "running", "running"),
            (Exit::Interrupted, "unknown", "error"),
            (Exit::Usage, "unknown", "error"),
            (Exit::Usage, "aborted", "aborted"),
            (Exit::Program(3), "done", "idle"),
        ] {
            let outcome = Outcome { exit, word: word.to_owned(), code: None, message: None };
            let line = outcome.to_json(Some("ses_1"));
            assert_eq!((&line["status"], &line["exit"]), (&json!(status), &json!(exit.code())), "{word}");
        }
    }
}
