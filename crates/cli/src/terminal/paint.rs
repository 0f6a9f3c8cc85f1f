//! Terminal colours, and the removal of control characters from text that a model or a repository wrote.

use std::ffi::OsStr;

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Colour,
    Plain,
}

impl Paint {
    /// Colours for a terminal, unless NO_COLOR is set (<https://no-color.org>) or the terminal has none.
    pub(crate) fn for_terminal() -> Self {
        Self::choose(std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref())
    }

    fn choose(no_color: Option<&OsStr>, terminal: Option<&OsStr>) -> Self {
        let is_refused = no_color.is_some_and(|value| !value.is_empty());
        if is_refused || terminal.is_some_and(|name| name == "dumb") { Self::Plain } else { Self::Colour }
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.wrap("36", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        match self {
            // Colour each line by itself: a pager or a cut log then never leaks a colour into the next line.
            Self::Colour if !text.is_empty() => {
                let lines: Vec<_> =
                    text.split('\n').map(|line| format!("\x1b[{code}m{line}\x1b[0m")).collect();
                lines.join("\n")
            }
            Self::Colour | Self::Plain => text.to_owned(),
        }
    }
}

/// Replaces control characters other than newline and tab: foreign text must not move the cursor or set a title.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Returns the first line, cut to `chars` characters with an ellipsis.
pub(crate) fn one_line(text: &str, chars: usize) -> String {
    let line = harmless(text.lines().next().unwrap_or_default());
    if line.chars().count() <= chars {
        return line;
    }
    let head: String = line.chars().take(chars.saturating_sub(1)).collect();
    format!("{head}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_and_a_terminal_can_refuse_colours() {
        let choose = |no_color: Option<&str>, terminal: &str| {
            Paint::choose(no_color.map(OsStr::new), Some(OsStr::new(terminal)))
        };
        assert_eq!([choose(None, "xterm"), choose(Some(""), "xterm")], [Paint::Colour; 2]);
        assert_eq!([choose(Some("1"), "xterm"), choose(None, "dumb")], [Paint::Plain; 2]);
    }
}
