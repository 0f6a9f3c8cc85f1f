//! A line on standard error that says what the command waits for, and for how long.

use crate::terminal::{paint::one_line, show};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::{
    env, fmt,
    io::IsTerminal as _,
    time::{Duration, Instant},
};

/// Time between two pictures of the line.
const TICK: Duration = Duration::from_millis(100);
/// Pictures of a line each second: a fast upload must not wait for the terminal.
const PICTURES_PER_SECOND: u8 = 10;

/// Characters of what the line says: it must fit the terminal.
const WHAT_CHARS: usize = 64;

/// How much of the work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amount {
    /// It has no number; the line shows the time.
    Unknown,
    /// Bytes so far.
    Bytes,
    /// Bytes of this many.
    BytesOf(u64),
}

/// The line. Dropping the value removes it.
#[derive(Debug)]
pub(crate) struct ProgressLine(Option<ProgressBar>);

impl ProgressLine {
    /// Whether standard error is a terminal that can replace a line.
    pub(crate) fn fits_terminal() -> bool {
        std::io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    pub(crate) fn hidden() -> Self {
        Self(None)
    }

    /// Shows the line from now on.
    pub(crate) fn start(what: &str, amount: Amount) -> Self {
        Self::since(what, amount, Instant::now())
    }

    /// Shows the line for something that began at `start`.
    pub(crate) fn since(what: &str, amount: Amount, start: Instant) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(PICTURES_PER_SECOND);
        let bar = ProgressBar::with_draw_target(None, target);
        if let Amount::BytesOf(total) = amount {
            bar.set_length(total);
        }
        let bar = bar
            .with_style(style(amount))
            .with_message(one_line(what, WHAT_CHARS))
            .with_elapsed(start.elapsed());
        bar.enable_steady_tick(TICK);
        Self(Some(bar))
    }

    pub(crate) fn add(&self, bytes: u64) {
        if let Self(Some(bar)) = self {
            bar.inc(bytes);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

/// The form of the line. It has no colours.
fn style(amount: Amount) -> ProgressStyle {
    let template = match amount {
        Amount::Unknown => "{spinner} {msg} … {time}",
        Amount::Bytes => "{spinner} {msg} … {bytes}, {time}",
        Amount::BytesOf(_) => "{spinner} {msg} … {bytes} of {total_bytes}, {time}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    style.with_key("time", |state: &ProgressState, text: &mut dyn fmt::Write| {
        let elapsed = i64::try_from(state.elapsed().as_millis()).unwrap_or(i64::MAX);
        // Writing to the line cannot fail.
        let _ = text.write_str(&show::span(elapsed));
    })
}
