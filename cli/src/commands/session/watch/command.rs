//! The result of a command that ran in the files of a session.

use crate::{
    client::Client,
    commands::session::sessions,
    stream::tool_call,
    terminal::{output::Output, paint::harmless},
};
use anyhow::Result;
use serde_json::Value;

/// What a call says if its command printed nothing.
const NO_OUTPUT: &str = "(no output)";

/// How a command ended, as its call tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandResult {
    /// Its exit code; `None`: it has not ended, it did not run, or something ended it.
    pub(super) exit: Option<u64>,
    output: String,
    /// What is to be said about it, in sentences; empty: nothing.
    note: String,
    /// Where the whole output is, if the call has only a part of it.
    path: Option<String>,
}

impl CommandResult {
    pub(super) fn of(state: &Value) -> Self {
        let exit = tool_call::exit_code(state);
        let text = state["output"].as_str().unwrap_or_default();
        let (output, note) = match (tool_call::note(state), exit) {
            _ if text == NO_OUTPUT => (String::new(), ""),
            (Some(note), _) => (without_note(text, note), note),
            (None, Some(0)) => (text.to_owned(), ""),
            (None, _) => guess_note(text),
        };
        let notes = [note, state["error"].as_str().unwrap_or_default()];
        let notes = notes.into_iter().chain(tool_call::start_failure(state)).filter(|note| !note.is_empty());
        let path = state["metadata"]["outputPath"].as_str().filter(|path| !path.is_empty());
        Self { exit, output, note: notes.collect::<Vec<_>>().join("\n"), path: path.map(str::to_owned) }
    }

    /// Writes what the command printed to standard output, and what is to be said about it to standard error.
    ///
    /// # Errors
    /// The whole output cannot be loaded.
    pub(super) async fn print(&self, client: &Client, output: &Output, session_id: &str) -> Result<()> {
        let text = match &self.path {
            None => self.output.clone(),
            Some(path) => sessions::load_output(client, session_id, path).await?,
        };
        // A program reads what the command printed; a terminal obeys none of it.
        output.write(&if output.is_terminal() { harmless(&text) } else { text })?;
        if !self.note.is_empty() {
            output.note(&harmless(&self.note));
        }
        Ok(())
    }
}

/// A text without the note in brackets that stands below it instead of its newlines.
fn without_note(text: &str, note: &str) -> String {
    let output = text.strip_suffix(')').and_then(|text| text.strip_suffix(note)?.strip_suffix('('));
    match output {
        Some("") => String::new(),
        Some(output) => format!("{}\n", output.trim_end_matches('\n')),
        None => text.to_owned(),
    }
}

/// The output and the note in a text of an earlier version, which says in the end how a command ended that did not succeed.
fn guess_note(text: &str) -> (String, &str) {
    let whole = text.strip_suffix(')');
    let found =
        whole.and_then(|text| text.rsplit_once("\n\n(").or_else(|| Some(("", text.strip_prefix('(')?))));
    match found {
        Some(("", note)) => (String::new(), note),
        Some((output, note)) => (format!("{output}\n"), note),
        None => (text.to_owned(), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_output_is_told_from_what_is_said_about_it() {
        let result = |output: &str, exit: Option<u64>| {
            let result = CommandResult::of(&json!({"output": output, "metadata": {"exit": exit}}));
            (result.output, result.note)
        };
        for (text, exit, output, note) in [
            ("a\nb\n", Some(0), "a\nb\n", ""),
            ("a\n\n(not a note)\n", Some(0), "a\n\n(not a note)\n", ""),
            ("(no output)", Some(0), "", ""),
            ("(Exit code 1.)", Some(1), "", "Exit code 1."),
            ("a\n\n(b)\n\n(Exit code 2. Try c.)", Some(2), "a\n\n(b)\n", "Exit code 2. Try c."),
            ("a\n\n(The command was ended after 5 s.)", None, "a\n", "The command was ended after 5 s."),
        ] {
            assert_eq!(result(text, exit), (output.to_owned(), note.to_owned()), "{text:?}");
        }
        let aborted = "a\n\n(b\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>";
        assert_eq!(result(aborted, None), (aborted.to_owned(), String::new()), "the output is not cut");
    }

    #[test]
    fn the_note_of_the_worker_is_cut_exactly() {
        let result = |text: &str, note: &str| {
            let metadata = json!({"exit": 0, "note": note, "outputPath": "/outputs/1"});
            let result = CommandResult::of(&json!({"output": text, "metadata": metadata}));
            assert_eq!((result.exit, result.path.as_deref()), (Some(0), Some("/outputs/1")));
            (result.output, result.note)
        };
        for (text, note, output) in [
            ("a\n\n(It has (two)\n\n(brackets).)", "It has (two)\n\n(brackets).", "a\n"),
            ("a\n\n(b)\n\n(A hint.)", "A hint.", "a\n\n(b)\n"),
            ("(A hint.)", "A hint.", ""),
            // The note is not at the end of the text.
            ("a\n", "A hint.", "a\n"),
        ] {
            assert_eq!(result(text, note), (output.to_owned(), note.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn a_refused_command_says_why() {
        let failed =
            CommandResult::of(&json!({"error": "a rule denies it", "metadata": {"start_failure": "x"}}));
        assert_eq!((failed.exit, failed.note.as_str()), (None, "a rule denies it\nx"));
    }
}
