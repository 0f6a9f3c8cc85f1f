//! What a command prints: text for people, or one JSON object per line for programs. Every line is written through here, so that the
//! command ends quietly when its reader exits, as in `| head`.

use crate::terminal::{
    pager::Pager,
    paint::Paint,
    progress::{Amount, ProgressLine},
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};

/// The flags of every command that prints something.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Connection and output")]
pub(crate) struct OutputArgs {
    /// Print one JSON object per line; docs/json.md describes them.
    #[arg(long, global = true)]
    pub json: bool,
    /// Do not show long output page by page.
    #[arg(long, global = true)]
    pub no_pager: bool,
}

/// The flags of [`OutputArgs`].
pub(crate) const FLAGS: [&str; 2] = ["json", "no_pager"];

/// Standard output and standard error of a command.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    arguments: OutputArgs,
    sink: Sink,
}

#[derive(Debug, Clone)]
enum Sink {
    Standard,
    /// Keeps everything for a test.
    #[cfg(test)]
    Kept(std::sync::Arc<std::sync::Mutex<Kept>>),
}

impl Output {
    pub(crate) fn new(arguments: OutputArgs) -> Self {
        Self { arguments, sink: Sink::Standard }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.arguments.json
    }

    /// Whether a person reads standard output on a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.sink, Sink::Standard) && !self.is_json() && std::io::stdout().is_terminal()
    }

    pub(crate) fn paint(&self) -> Paint {
        if self.is_terminal() { Paint::for_terminal() } else { Paint::Plain }
    }

    /// Writes `text` unchanged and flushes it.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        match &self.sink {
            Sink::Standard => write(text),
            #[cfg(test)]
            Sink::Kept(kept) => {
                locked(kept).output.push_str(text);
                Ok(())
            }
        }
    }

    /// Writes `text` and a newline.
    pub(crate) fn line(&self, text: &str) -> Result<()> {
        self.write(&format!("{text}\n"))
    }

    /// Writes an object on a line of its own.
    pub(crate) fn json(&self, object: &Value) -> Result<()> {
        self.line(&object.to_string())
    }

    /// Writes the result of a command: a sentence for people, or an object.
    pub(crate) fn result(&self, sentence: &str, object: &Value) -> Result<()> {
        if self.is_json() { self.json(object) } else { self.line(sentence) }
    }

    /// Writes a list: an object for each entry, or a text for people. Without entries, people get the note `none`.
    pub(crate) fn list<T>(&self, entries: &[T], text: &ListText<'_, T>) -> Result<()> {
        if self.is_json() {
            return entries.iter().try_for_each(|entry| self.json(&(text.to_json)(entry)));
        }
        if entries.is_empty() {
            self.note(text.none);
            return Ok(());
        }
        self.page(&(text.table)(entries, self.paint()))
    }

    /// Writes a text that may be long: page by page on a terminal.
    pub(crate) fn page(&self, text: &str) -> Result<()> {
        if self.is_terminal()
            && !self.arguments.no_pager
            && let Some(pager) = Pager::of_environment()
        {
            return pager.show(text);
        }
        self.write(text)
    }

    /// Writes a note to standard error, so that programs can read standard output.
    pub(crate) fn note(&self, text: &str) {
        let object = || json!({"type": "note", "message": text}).to_string();
        let line = if self.is_json() { object() } else { text.to_owned() };
        match &self.sink {
            Sink::Standard => note(&line),
            #[cfg(test)]
            Sink::Kept(kept) => locked(kept).notes.push_str(&(line + "\n")),
        }
    }

    /// Shows on a terminal that the command waits for `what`, until the value is dropped.
    pub(crate) fn progress(&self, what: &str, amount: Amount) -> ProgressLine {
        if self.shows_progress() { ProgressLine::start(what, amount) } else { ProgressLine::hidden() }
    }

    /// Whether people see on a terminal what the command waits for.
    pub(crate) fn shows_progress(&self) -> bool {
        matches!(self.sink, Sink::Standard) && !self.is_json() && ProgressLine::fits_terminal()
    }
}

/// How a list is shown.
pub(crate) struct ListText<'a, T> {
    pub to_json: fn(&T) -> Value,
    pub table: &'a dyn Fn(&[T], Paint) -> String,
    /// What people read if there is no entry.
    pub none: &'a str,
}

/// Writes `text` to standard output and flushes it.
pub(crate) fn write(text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("write to standard output")
}

/// Writes a line to standard error.
pub(crate) fn note(text: &str) {
    // If stderr is closed, the note cannot be shown.
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// What a command wrote, for a test.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Kept {
    output: String,
    notes: String,
}

#[cfg(test)]
fn locked(kept: &std::sync::Mutex<Kept>) -> std::sync::MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
impl Output {
    /// An output whose text a test reads.
    pub(crate) fn kept(json: bool) -> Self {
        let arguments = OutputArgs { json, no_pager: false };
        Self { arguments, sink: Sink::Kept(std::sync::Arc::default()) }
    }

    /// Removes and returns the text that was written.
    pub(crate) fn take(&self) -> String {
        match &self.sink {
            Sink::Standard => String::new(),
            Sink::Kept(kept) => std::mem::take(&mut locked(kept).output),
        }
    }

    /// Removes and returns the notes.
    pub(crate) fn take_notes(&self) -> String {
        match &self.sink {
            Sink::Standard => String::new(),
            Sink::Kept(kept) => std::mem::take(&mut locked(kept).notes),
        }
    }
}
