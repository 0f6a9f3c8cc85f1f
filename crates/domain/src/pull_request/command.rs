//! The commands in comments. A command is the first word of a line, outside of code and quotes: a path such as `/flotillakit/` or a quoted comment starts
//! nothing.

use super::permission::Permission;
use serde::{Deserialize, Serialize};

/// The words that begin a command. The first one is what people are told.
pub const COMMAND_WORDS: [&str; 3] = ["/flotilla", "/opencode", "/oc"];

/// What a comment asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Do what the text says.
    Work(String),
    /// Show the state again.
    Status,
    /// Stop what runs now.
    Stop,
    /// Nothing follows the word, or something that is no command.
    Help,
}

/// The commands for people who look for one: each with what it does.
pub const COMMAND_LIST: [(&str, &str); 4] = [
    ("/flotilla <what to do>", "works on it and opens a pull request"),
    ("/flotilla status", "shows the state again"),
    ("/flotilla stop", "stops what runs now"),
    ("/flotilla help", "shows this list"),
];

impl Command {
    /// Finds the first command of a comment. `None`: it has none.
    pub fn find(comment: &str) -> Option<Self> {
        let mut fence: Option<&str> = None;
        let mut offset = 0;
        for line in comment.split_inclusive('\n') {
            offset += line.len();
            let trimmed = line.trim_start();
            if let Some(mark) = fence_mark(trimmed) {
                match fence {
                    None => fence = Some(mark),
                    Some(open) if mark.starts_with(open) => fence = None,
                    Some(_) => {}
                }
                continue;
            }
            // Four spaces or a tab make code, too.
            let is_code = fence.is_some() || line.starts_with("    ") || line.starts_with('\t');
            if is_code || trimmed.starts_with('>') {
                continue;
            }
            if let Some(first) = after_word(trimmed) {
                return Some(Self::parse(first.trim(), &comment[offset..]));
            }
        }
        None
    }

    /// `line` is what follows the word on its line, and `rest` the lines after it.
    fn parse(line: &str, rest: &str) -> Self {
        match (line, rest.trim()) {
            ("" | "help", "") => Self::Help,
            ("status", "") => Self::Status,
            ("stop", "") => Self::Stop,
            ("", rest) => Self::Work(rest.to_owned()),
            (line, "") => Self::Work(line.to_owned()),
            (line, rest) => Self::Work(format!("{line}\n{rest}")),
        }
    }

    /// What a person needs to give it.
    pub fn needs(&self) -> Permission {
        match self {
            Self::Work(_) | Self::Stop => Permission::Write,
            Self::Status | Self::Help => Permission::Read,
        }
    }
}

/// The mark that begins or ends a block of code: three or more backticks or tildes.
fn fence_mark(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    (length >= 3).then(|| &line[..length])
}

/// What follows the word of a command at the beginning of a line.
fn after_word(line: &str) -> Option<&str> {
    let rest = COMMAND_WORDS.iter().find_map(|word| line.strip_prefix(word))?;
    rest.chars().next().is_none_or(char::is_whitespace).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn work(text: &str) -> Option<Command> {
        Some(Command::Work(text.to_owned()))
    }

    #[test]
    fn a_command_is_the_first_word_of_a_line() {
        for (comment, want) in [
            ("/flotilla fix the flaky test", work("fix the flaky test")),
            ("/oc fix it", work("fix it")),
            ("/opencode\tfix it", work("fix it")),
            ("Hello.\n\n  /flotilla fix it\nand this\n", work("fix it\nand this")),
            ("/flotilla\nfix it", work("fix it")),
            ("/flotilla status", Some(Command::Status)),
            ("/flotilla stop \n", Some(Command::Stop)),
            ("/flotilla stop using tabs", work("stop using tabs")),
            ("/flotilla status\nand more", work("status\nand more")),
            ("/flotilla", Some(Command::Help)),
            ("/flotilla help", Some(Command::Help)),
            ("", None),
            ("please /flotilla fix it", None),
            ("see /flotillakit/ and /ocean", None),
            ("/Flotilla fix it", None),
            ("/flotilla: fix it", None),
            ("> /flotilla fix it", None),
            ("```\n/flotilla fix it\n```", None),
            ("~~~~\n```\n/flotilla fix it\n~~~~", None),
            ("```\ncode\n```\n/flotilla fix it", work("fix it")),
            ("    /flotilla fix it", None),
            ("\t/flotilla fix it", None),
            ("`/flotilla fix it`", None),
            ("```\n/flotilla never closed", None),
            ("/flotilla one\n/flotilla two", work("one\n/flotilla two")),
        ] {
            assert_eq!(Command::find(comment), want, "{comment:?}");
        }
    }

    proptest! {
        /// Whatever somebody writes, the parser ends, and finds a command only where a line begins with its word.
        #[test]
        fn every_comment_is_read(comment in "(?s).{0,200}") {
            if Command::find(&comment).is_some() {
                let begins = |line: &str| COMMAND_WORDS.iter().any(|word| line.trim_start().starts_with(word));
                prop_assert!(comment.lines().any(begins));
            }
        }
    }
}
