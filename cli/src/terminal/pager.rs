//! The program that shows long output page by page, chosen as git chooses its own.

use anyhow::{Context as _, Result, bail};
use std::{
    env,
    io::{self, Write as _},
    process::{Command, Stdio},
};
use tokio::signal::unix::{SignalKind, signal};

/// The pager of a person who chose none. It ends at once if the text fits the screen, passes colours through, and leaves the text there.
const LESS: &str = "less -FRX";

/// A command line for the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pager(String);

impl Pager {
    /// The pager of the person: `FLOTILLA_PAGER`, else `PAGER`, else `less` if it is installed. None with `TERM=dumb`.
    pub(crate) fn of_environment() -> Option<Self> {
        // A terminal that cannot move its cursor, such as that of an editor or a build machine.
        if env::var_os("TERM").is_some_and(|name| name == "dumb") {
            return None;
        }
        let chosen = ["FLOTILLA_PAGER", "PAGER"].into_iter().find_map(|name| env::var(name).ok());
        Self::choose(chosen, || local::programs::find("less").is_some())
    }

    fn choose(chosen: Option<String>, has_less: impl Fn() -> bool) -> Option<Self> {
        match chosen {
            // As for git, these mean no pager.
            Some(command) if ["", "cat"].contains(&command.trim()) => None,
            Some(command) => Some(Self(command)),
            None => has_less().then(|| Self(LESS.to_owned())),
        }
    }

    /// Shows a text and waits until the person has left the pager.
    pub(crate) fn show(&self, text: &str) -> Result<()> {
        let Self(command) = self;
        // Ctrl-C belongs to the pager while it has the terminal. The handler stays for the rest of the process.
        let _interrupts = signal(SignalKind::interrupt()).context("leave Ctrl-C to the pager")?;
        let mut child = Command::new("sh");
        child.arg("-c").arg(command).stdin(Stdio::piped());
        // The options that `less` needs when a person has given it none.
        if env::var_os("LESS").is_none() {
            child.env("LESS", "FRX");
        }
        let mut child = child.spawn().with_context(|| format!("start the pager `{command}`"))?;
        let written = match child.stdin.take() {
            Some(mut input) => input.write_all(text.as_bytes()),
            None => Ok(()),
        };
        let status = child.wait().with_context(|| format!("wait for the pager `{command}`"))?;
        // 127 is the shell's answer for a program that does not exist. Any other status is the business of the pager.
        if status.code() == Some(127) {
            bail!("the pager `{command}` was not found; set FLOTILLA_PAGER, or give --no-pager");
        }
        match written {
            // The person left before the end.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("write to the pager"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_person_chooses_the_pager() {
        let choose = |chosen: Option<&str>, has_less| {
            Pager::choose(chosen.map(str::to_owned), || has_less).map(|pager| pager.0)
        };
        assert_eq!(choose(Some("more -s"), true).as_deref(), Some("more -s"));
        assert_eq!(choose(None, true).as_deref(), Some(LESS));
        assert_eq!(
            [choose(None, false), choose(Some("cat"), true), choose(Some(""), true)],
            [None, None, None]
        );
    }

    #[tokio::test]
    async fn a_pager_gets_the_whole_text_and_may_leave_early() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("seen");
        // More than a pipe holds.
        let text = "line\n".repeat(100_000);
        Pager(format!("cat >'{}'", file.display())).show(&text).unwrap();
        assert!(std::fs::read_to_string(file).unwrap() == text);
        Pager("head -n 1 >/dev/null".to_owned()).show(&text).unwrap();
        let missing = Pager("no-such-pager".to_owned()).show("text").unwrap_err();
        assert!(missing.to_string().contains("--no-pager"), "{missing}");
    }
}
