//! Terminal colours, and the removal of control characters and invisible characters from text that a model or a repository wrote.

use std::ffi::OsStr;

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

/// Replaces control characters other than newline and tab, and characters that a person cannot see: foreign text must not move the
/// cursor, set a title, or look like another text.
pub(crate) fn harmless(text: &str) -> String {
    // Package managers end their lines as on a terminal.
    text.replace("\r\n", "\n").chars().map(|c| if is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether a terminal obeys the character, or shows the text in another order or with less than it has. Emoji that are joined from
/// several fall apart, because a person does not see the joiner.
fn is_harmful(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}'
        | '\u{feff}' => true,
        other => other.is_control(),
    }
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
    fn foreign_text_moves_nothing_and_hides_nothing() {
        let harmful = [
            '\u{1b}', '\r', '\u{7f}', '\u{9b}', '\u{61c}', '\u{200b}', '\u{200d}', '\u{200f}', '\u{202a}',
            '\u{202e}', '\u{2060}', '\u{2066}', '\u{2069}', '\u{feff}',
        ];
        for c in harmful {
            assert_eq!(harmless(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
        let plain = "a\tb\n– „é“ \u{2028} 漢 🙂 אב";
        assert_eq!(harmless(plain), plain);
        assert_eq!(one_line("a\u{202e}b\nc", 9), "a\u{fffd}b");
    }

    #[test]
    fn a_person_and_a_terminal_can_refuse_colours() {
        let choose = |no_color: Option<&str>, terminal: &str| {
            Paint::choose(no_color.map(OsStr::new), Some(OsStr::new(terminal)))
        };
        assert_eq!([choose(None, "xterm"), choose(Some(""), "xterm")], [Paint::Colour; 2]);
        assert_eq!([choose(Some("1"), "xterm"), choose(None, "dumb")], [Paint::Plain; 2]);
    }
}
