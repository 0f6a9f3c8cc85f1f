//! Runs the system's git, and prevents it from reading or changing more than the call asks for.

use crate::exit::coded;
use anyhow::{Context as _, Result, anyhow};
use std::{
    ffi::OsStr,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

/// A repository to run git in, with its environment.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    dir: PathBuf,
    env: Vec<(&'static str, PathBuf)>,
    env_text: Vec<(&'static str, String)>,
}

impl Git {
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), env: Vec::new(), env_text: Vec::new() }
    }

    pub(crate) fn with_path(mut self, name: &'static str, path: PathBuf) -> Self {
        self.env.push((name, path));
        self
    }

    pub(crate) fn with_text(mut self, name: &'static str, text: &str) -> Self {
        self.env_text.push((name, text.to_owned()));
        self
    }

    /// Runs git and returns its output without the last newline.
    ///
    /// # Errors
    /// Git's error message.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<String> {
        let output = self.check(arguments, self.command(arguments).output())?;
        Ok(String::from_utf8_lossy(&output).trim_end_matches('\n').to_owned())
    }

    /// Runs git with an input and returns its output.
    ///
    /// # Errors
    /// Git's error message.
    pub(crate) fn run_with<A: AsRef<OsStr>>(&self, arguments: &[A], input: &[u8]) -> Result<Vec<u8>> {
        self.feed(arguments, input, Stdio::piped())
    }

    /// Runs git with an input, and writes what it prints to the end of a file.
    ///
    /// # Errors
    /// Git's error message.
    pub(crate) fn write_to<A: AsRef<OsStr>>(&self, arguments: &[A], input: &[u8], file: File) -> Result<()> {
        self.feed(arguments, input, file.into()).map(drop)
    }

    fn feed<A: AsRef<OsStr>>(&self, arguments: &[A], input: &[u8], output: Stdio) -> Result<Vec<u8>> {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped()).spawn().context("run git")?;
        let stdin = child.stdin.take();
        let ended = thread::scope(|scope| {
            // Git may print before it has read everything. If it ends early, its error says why.
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
            child.wait_with_output()
        });
        self.check(arguments, ended)
    }

    /// Gives what git printed, or its error message.
    fn check<A: AsRef<OsStr>>(&self, arguments: &[A], ended: std::io::Result<Output>) -> Result<Vec<u8>> {
        let output = ended.context("run git")?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let words = arguments.iter().map(|word| word.as_ref().to_string_lossy());
        Err(anyhow!(
            "git {}: {}",
            verb(words).unwrap_or_default(),
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }

    /// Finds the top of the work tree that contains the directory.
    ///
    /// # Errors
    /// `repository_missing` outside of a repository; git's error message.
    pub(crate) fn root(&self) -> Result<PathBuf> {
        let root = self.run(&["rev-parse", "--show-toplevel"]);
        root.map(PathBuf::from).map_err(|error| {
            let place = self.dir.display();
            if error.to_string().contains("not a git repository") {
                let message =
                    format!("there is no git repository at {place}; go to one, or name one with --repo");
                return coded("repository_missing", message);
            }
            error.context(format!("find the git repository at {place}"))
        })
    }

    /// A path of the repository, such as that of its index.
    ///
    /// # Errors
    /// Git's error message.
    pub(crate) fn path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.dir.join(self.run(&["rev-parse", "--git-path", name])?))
    }

    /// Whether git answers yes (exit code 0).
    pub(crate) fn is<A: AsRef<OsStr>>(&self, arguments: &[A]) -> bool {
        self.command(arguments).output().is_ok_and(|output| output.status.success())
    }

    fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.dir).args(arguments).stdin(Stdio::null());
        // Inside a hook these variables point to another repository.
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_OBJECT_DIRECTORY",
            "GIT_COMMON_DIR",
            "GIT_PREFIX",
        ] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
        // Reading must not refresh the user's index.
        command.env("GIT_OPTIONAL_LOCKS", "0");
        for (name, path) in &self.env {
            command.env(name, path);
        }
        for (name, text) in &self.env_text {
            command.env(name, text);
        }
        command
    }
}

/// The verb of a call, which may have options before it.
fn verb<'a>(words: impl Iterator<Item = std::borrow::Cow<'a, str>>) -> Option<String> {
    let mut words = words.peekable();
    while words.peek()?.starts_with('-') {
        // These options have a value.
        if ["-c", "--shallow-file"].contains(&words.next()?.as_ref()) {
            words.next();
        }
    }
    words.next().map(Into::into)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn an_error_names_the_verb() {
        let verb = |words: &[&'static str]| verb(words.iter().map(|word| (*word).into()));
        assert_eq!(
            verb(&["-c", "a=b", "--shallow-file", "x", "pack-objects", "--revs"]).as_deref(),
            Some("pack-objects")
        );
        assert_eq!(verb(&["add", "-A"]).as_deref(), Some("add"));
        assert_eq!(verb(&["-c"]), None);
    }
}
