//! Prompts from standard input.

use crate::{exit::coded, input, terminal::output::Output};
use anyhow::{Context as _, Result};
use domain::limits::PROMPT_BYTES_MAX;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::{SFlag, fstat},
};
use std::{
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
};

/// The word that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// How long a command with a task waits for the first byte of a pipe, which may belong to somebody else and never have one; milliseconds.
const FIRST_BYTE_MS: u16 = 3_000;

/// The text of a prompt: the given one, standard input, or both. Without either, it is empty.
///
/// # Errors
/// `file_too_large`, `file_not_text`; why it cannot be read.
pub(super) fn read(output: &Output, given: Option<&str>) -> Result<String> {
    match given {
        Some(STANDARD_INPUT) => read_all(),
        None if io::stdin().is_terminal() => Ok(String::new()),
        None => read_all(),
        Some(text) if is_piped() => {
            if !has_begun()? {
                output.note("nothing came from standard input; the prompt is the text alone");
                return Ok(text.to_owned());
            }
            Ok(join(text, &read_all()?))
        }
        Some(text) => Ok(text.to_owned()),
    }
}

/// A task with what it is about.
fn join(task: &str, piped: &str) -> String {
    if piped.trim().is_empty() { task.to_owned() } else { format!("{task}\n\n{piped}") }
}

/// Whether standard input is a pipe or a file. A service or a container may have any device or socket there.
fn is_piped() -> bool {
    let kind = fstat(io::stdin()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
    kind.is_ok_and(|kind| kind == SFlag::S_IFIFO || kind == SFlag::S_IFREG)
}

/// Whether standard input has a byte or its end by now, or within [`FIRST_BYTE_MS`].
fn has_begun() -> Result<bool> {
    let stdin = io::stdin();
    let mut wait = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut wait, PollTimeout::from(FIRST_BYTE_MS)).context("wait for standard input")? > 0)
}

fn read_all() -> Result<String> {
    let bytes = input::read_from(io::stdin().lock(), PROMPT_BYTES_MAX)
        .context("read the prompt from standard input")?;
    String::from_utf8(bytes).map_err(|_| coded("file_not_text", "standard input is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_before_what_it_is_about() {
        assert_eq!(join("explain", "a log\n"), "explain\n\na log\n");
        assert_eq!(join("explain", " \n"), "explain");
    }
}
