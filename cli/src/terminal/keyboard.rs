//! Lines that a person types at a terminal, while the program can still be interrupted.

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    os::fd::AsFd as _,
    time::Duration,
};
use tokio::signal::unix::{SignalKind, signal};

/// Time between two looks at the keyboard. A person does not notice the delay.
const LOOK_EVERY: Duration = Duration::from_millis(30);

/// The keyboard of a person who also sees what the program writes.
pub(crate) struct Keyboard(());

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyboardEntry {
    /// A line without its end. A terminal gives at most 4,095 bytes of it.
    Line(String),
    /// Ctrl-D: the person answers nothing.
    Closed,
    /// Ctrl-C.
    Interrupted,
}

impl Keyboard {
    /// The keyboard, if standard input, output and error are terminals.
    pub(crate) fn find() -> Option<Self> {
        let is_there = io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
        is_there.then_some(Self(()))
    }

    /// Asks for a line.
    ///
    /// Dropped midway: what was typed of the line stays in the terminal.
    pub(crate) async fn line(&self, prompt: &str) -> Result<KeyboardEntry> {
        // From here on, so that no Ctrl-C is lost behind the prompt.
        let mut interrupts = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
        let mut errors = io::stderr();
        write!(errors, "{prompt}").and_then(|()| errors.flush()).context("write to the terminal")?;
        tokio::select! {
            ready = Self::has_line() => ready?,
            _ = interrupts.recv() => return Ok(KeyboardEntry::Interrupted),
        }
        let mut line = String::new();
        // The terminal has a whole line, so this does not block.
        let read = io::stdin().lock().read_line(&mut line).context("read the keyboard")?;
        Ok(if read == 0 { KeyboardEntry::Closed } else { KeyboardEntry::Line(line.trim().to_owned()) })
    }

    /// Waits for a line, or for the end of the input.
    async fn has_line() -> Result<()> {
        let stdin = io::stdin();
        loop {
            let mut look = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            if poll(&mut look, PollTimeout::ZERO).context("look at the keyboard")? > 0 {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
