//! Titles of sessions: the default title, and how a model's answer becomes a title.

use crate::{ids::Timestamp, limits::NAME_BYTES_MAX, text::head};

/// Characters of a title: OpenCode's number. A longer one is cut.
const TITLE_CHARS_MAX: usize = 100;

/// The start of a default title: OpenCode's words, by which its clients recognize it.
const DEFAULT: &str = "New session - ";
/// The rest of a default title: a time. `d` is a digit.
const TIME: &str = "dddd-dd-ddTdd:dd:dd.dddZ";
/// Marks a title that was cut.
const ELLIPSIS: &str = "…";

/// Returns the default title of a session that is made at `at`: `New session - 2026-11-21T20:32:24.395Z`.
pub fn default_at(at: Timestamp) -> String {
    let (seconds, ms) = (at.0.div_euclid(1_000), at.0.rem_euclid(1_000));
    let time = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (date, (hour, minute, second)) = (time.date(), time.to_hms());
    format!("{DEFAULT}{date}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Whether `title` is a default title, that is, no person or model has named the session.
pub fn is_default(title: &str) -> bool {
    let fits = |(byte, want): (u8, u8)| if want == b'd' { byte.is_ascii_digit() } else { byte == want };
    title
        .strip_prefix(DEFAULT)
        .is_some_and(|time| time.len() == TIME.len() && time.bytes().zip(TIME.bytes()).all(fits))
}

/// Returns the title in a model's answer: its first line with any text, without reasoning and control characters, cut to
/// [`TITLE_CHARS_MAX`] and [`NAME_BYTES_MAX`]. `None` if there is no such line.
pub fn of_answer(answer: &str) -> Option<String> {
    let text = without_thoughts(answer);
    let plain = |line: &str| line.replace(char::is_control, " ").trim().to_owned();
    let line = text.lines().map(plain).find(|line| !line.is_empty())?;
    if line.chars().count() <= TITLE_CHARS_MAX && line.len() <= NAME_BYTES_MAX {
        return Some(line);
    }
    let begins: String = line.chars().take(TITLE_CHARS_MAX - 3).collect();
    Some(format!("{}{ELLIPSIS}", head(&begins, NAME_BYTES_MAX - ELLIPSIS.len()).trim_end()))
}

/// Removes reasoning. Some servers put it into the answer between marks, of which the first or the last may be missing.
fn without_thoughts(answer: &str) -> String {
    let (mut text, mut rest) = (String::new(), answer);
    while let Some((before, thought)) = rest.split_once("<think>") {
        text.push_str(before);
        rest = thought.split_once("</think>").map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.rsplit_once("</think>").map_or(text.as_str(), |(_, after)| after).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn default_titles_are_known_again() {
        for (at, want) in [
            (1_795_293_144_395, "New session - 2026-11-21T20:32:24.395Z"),
            (0, "New session - 1970-01-01T00:00:00.000Z"),
            (-1, "New session - 1969-12-31T23:59:59.999Z"),
            (i64::MAX, "New session - 1970-01-01T00:00:00.807Z"),
        ] {
            let title = default_at(Timestamp(at));
            assert_eq!(title, want);
            assert!(is_default(&title), "{title}");
        }
        for named in [
            "",
            "New session",
            "New session - ",
            "New session - today",
            "new session - 2026-11-21T20:32:24.395Z",
            "New session - 2026-11-21T20:32:24.395Z (fork #1)",
            "New session - 2026-11-21T20:32:24.395+",
            " New session - 2026-11-21T20:32:24.395Z",
        ] {
            assert!(!is_default(named), "{named}");
        }
    }

    #[test]
    fn a_title_is_the_first_line_that_says_something() {
        for (answer, want) in [
            ("Fix the tests", Some("Fix the tests")),
            ("\n  \t\n  Fix the tests  \nBecause they fail.", Some("Fix the tests")),
            ("<think>They want\na title.</think>\n\nFix the tests", Some("Fix the tests")),
            ("<think>a</think>Fix <think>b</think>it", Some("Fix it")),
            ("They want a title.</think>Fix it", Some("Fix it")),
            ("Fix it\n<think>never ends", Some("Fix it")),
            ("<think>never ends: Fix it", None),
            ("<think></think>", None),
            (" \r\n ", None),
            ("", None),
            ("a\0b\u{1b}[31m\tc\rd", Some("a b [31m c d")),
            ("\u{7}\nFix it", Some("Fix it")),
        ] {
            assert_eq!(of_answer(answer).as_deref(), want, "{answer:?}");
        }
    }

    #[test]
    fn a_long_title_is_cut() {
        let cut = |repeated: &str, count: usize| format!("{}{ELLIPSIS}", repeated.repeat(count));
        for (answer, want) in [
            ("x".repeat(100), "x".repeat(100)),
            ("x".repeat(101), cut("x", 97)),
            ("ä".repeat(100), "ä".repeat(100)),
            ("ä".repeat(101), cut("ä", 97)),
            // By its bytes.
            ("界".repeat(66), "界".repeat(66)),
            ("界".repeat(67), cut("界", 65)),
            (format!("{} {}", "x".repeat(96), "y".repeat(9)), cut("x", 96)),
        ] {
            let title = of_answer(&answer).unwrap();
            assert_eq!(title, want);
            assert!(title.len() <= NAME_BYTES_MAX && title.chars().count() <= TITLE_CHARS_MAX, "{title}");
        }
    }
}
