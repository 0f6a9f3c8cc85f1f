//! The person's terminal while it belongs to a program elsewhere: every key goes to the program, and its output comes unchanged.

use anyhow::{Context as _, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, Write as _};

/// Longest private mode sequence that is followed, in bytes; real ones are shorter. A longer one is ignored.
const SEQUENCE_BYTES_MAX: usize = 32;

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScreenSize {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

impl ScreenSize {
    /// The size of the person's terminal; `None` if it does not say.
    pub(crate) fn of_terminal() -> Option<Self> {
        let size = tcgetwinsize(io::stdout()).ok()?;
        let (rows, columns) = (size.ws_row, size.ws_col);
        (rows > 0 && columns > 0).then_some(Self { rows, columns })
    }
}

/// The terminal in raw mode. Dropping the value restores it, and ends the modes that the program left on.
pub(crate) struct RawTerminal {
    saved: Termios,
    modes: Modes,
}

impl RawTerminal {
    pub(crate) fn enter() -> Result<Self> {
        let saved = tcgetattr(io::stdin()).context("read the settings of the terminal")?;
        let mut raw = saved.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw).context("set the terminal to raw mode")?;
        Ok(Self { saved, modes: Modes::default() })
    }

    /// Shows output of the program.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.modes.observe(bytes);
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).context("write to the terminal")
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let mut stdout = io::stdout().lock();
        drop(stdout.write_all(self.modes.ending().as_bytes()).and_then(|()| stdout.flush()));
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.saved);
    }
}

/// The modes of the terminal that a program turned on and must turn off again: the other screen, the mouse, pasting.
#[derive(Debug, Default)]
struct Modes {
    /// The beginning of a sequence that the next bytes complete.
    sequence: Vec<u8>,
    /// The modes that are on, in the order in which they were turned on.
    on: Vec<u16>,
    is_cursor_hidden: bool,
}

/// The number of the mode that shows the cursor; all others are off at the beginning.
const CURSOR: u16 = 25;
/// Cursor keys, focus, the mouse in its forms, the other screen in its forms, pasting.
const FOLLOWED: [u16; 12] = [1, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1047, 1049, 2004];

impl Modes {
    /// Follows sequences such as `ESC [ ? 1049 h`.
    fn observe(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let is_next = match (self.sequence.len(), byte) {
                (_, 0x1b) => {
                    self.sequence.clear();
                    true
                }
                (0, _) => false,
                (1, byte) => byte == b'[',
                (2, byte) => byte == b'?',
                (length, b'0'..=b'9' | b';') => length < SEQUENCE_BYTES_MAX,
                (_, b'h' | b'l') => {
                    self.set(byte == b'h');
                    false
                }
                _ => false,
            };
            if is_next {
                self.sequence.push(byte);
            } else {
                self.sequence.clear();
            }
        }
    }

    fn set(&mut self, on: bool) {
        let numbers = String::from_utf8_lossy(self.sequence.get(3..).unwrap_or_default()).into_owned();
        for mode in numbers.split(';').filter_map(|number| number.parse().ok()) {
            if mode == CURSOR {
                self.is_cursor_hidden = !on;
            } else if FOLLOWED.contains(&mode) {
                self.on.retain(|it| *it != mode);
                if on {
                    self.on.push(mode);
                }
            }
        }
    }

    /// The bytes that end what is on, the newest first.
    fn ending(&self) -> String {
        let mut text: String = self.on.iter().rev().map(|mode| format!("\x1b[?{mode}l")).collect();
        if self.is_cursor_hidden {
            text.push_str("\x1b[?25h");
        }
        if !text.is_empty() {
            // Colours go with the screen that they were meant for.
            text.push_str("\x1b[0m");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_left_on_is_ended() {
        let ending = |pieces: &[&str]| {
            let mut modes = Modes::default();
            pieces.iter().for_each(|piece| modes.observe(piece.as_bytes()));
            modes.ending()
        };
        assert_eq!(ending(&["plain \x1b[31mred\x1b[0m \x1b[?7h\x1b[2J"]), "");
        assert_eq!(ending(&["\x1b[?1049h\x1b[?25l", "text"]), "\x1b[?1049l\x1b[?25h\x1b[0m");
        assert_eq!(ending(&["\x1b[?1049h", "\x1b[?1049l"]), "");
        assert_eq!(ending(&["\x1b[?10", "02;1006h"]), "\x1b[?1006l\x1b[?1002l\x1b[0m", "in two pieces");
        assert_eq!(ending(&["\x1b[?", "\x1b[?2004h"]), "\x1b[?2004l\x1b[0m", "a sequence that was given up");
        let endless = format!("\x1b[?{}", "1;".repeat(10_000));
        assert_eq!(ending(&[&endless, "1049h"]), "");
    }
}
