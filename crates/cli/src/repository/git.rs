//! Runs the system's git, and prevents it from reading or changing more than the call asks for.

use crate::exit::coded;
use anyhow::{Context as _, Result, bail};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
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
        let output = self.command(arguments).output().context("run git")?;
        if !output.status.success() {
            let verb = arguments
                .first()
                .map(|verb| verb.as_ref().to_string_lossy().into_owned())
                .unwrap_or_default();
            bail!("git {verb}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
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
