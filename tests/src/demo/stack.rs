//! A stack of real processes, and the command line of a person who uses it.

use super::report::{note, ok};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::{Instant, sleep},
};

/// Time for the stack to start.
const START_WAIT: Duration = Duration::from_secs(90);
/// Lines of each log that a person reads after a failure.
const LOG_LINES: usize = 10;
/// Time for one command of a person.
const COMMAND_WAIT: Duration = Duration::from_secs(600);

pub(super) struct RunningStack {
    flotilla: PathBuf,
    directory: PathBuf,
    up: Child,
}

impl RunningStack {
    /// Starts `flotilla up` with these variables, and files in `directory`.
    pub(super) async fn start(
        flotilla: &Path,
        directory: &Path,
        variables: Vec<(&'static str, String)>,
    ) -> Result<Self> {
        let log = std::fs::File::create(directory.join("up.log"))?;
        // The stack ends with this process, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(flotilla).arg("up");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let up = own(&mut command, directory).envs(variables).spawn().context("start the stack")?;
        let mut stack = Self { flotilla: flotilla.to_owned(), directory: directory.to_owned(), up };
        let until = Instant::now() + START_WAIT;
        while !directory.join("data/ready.json").exists() {
            let ended = stack.up.try_wait()?;
            if ended.is_some() || Instant::now() > until {
                bail!("the stack did not start: {}", std::fs::read_to_string(directory.join("up.log"))?);
            }
            sleep(Duration::from_millis(100)).await;
        }
        ok("the stack is up");
        Ok(stack)
    }

    /// Runs a command of the person, and returns what it prints.
    pub(super) async fn flotilla(&self, arguments: &[&str]) -> Result<String> {
        self.flotilla_with_input(arguments, "").await
    }

    /// The same with an input.
    pub(super) async fn flotilla_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(&self.flotilla);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = own(&mut command, &self.directory).kill_on_drop(true).spawn()?;
        child.stdin.take().context("an input")?.write_all(input.as_bytes()).await?;
        let output = tokio::time::timeout(COMMAND_WAIT, child.wait_with_output()).await;
        let output = output.with_context(|| format!("flotilla {arguments:?} takes too long"))??;
        let (printed, told) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.status.success(),
            "flotilla {arguments:?} ended with {}: {printed}{told}",
            output.status
        );
        Ok(printed)
    }

    /// The same, for a command that prints JSON objects.
    pub(super) async fn objects(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let printed = self.flotilla(arguments).await?;
        printed
            .lines()
            .map(|line| serde_json::from_str(line).context("read what a command printed"))
            .collect()
    }

    /// Reports the ends of the logs of its services.
    pub(super) fn report_logs(&self) {
        for service in ["broker", "gateway", "sandbox", "worker-1"] {
            let file = self.directory.join(format!("data/logs/{service}.log"));
            let log = std::fs::read_to_string(file).unwrap_or_default();
            for line in log.lines().rev().take(LOG_LINES).collect::<Vec<_>>().into_iter().rev() {
                note(&format!("{service}: {line}"));
            }
        }
    }

    /// Ends the stack.
    pub(super) async fn stop(mut self) -> Result<()> {
        let pid = self.up.id().context("the stack ended before")?;
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        let status = self.up.wait().await?;
        ensure!(status.success(), "the stack ended with {status}");
        Ok(())
    }
}

/// Keeps the person's own settings and stacks out of a command.
fn own<'a>(command: &'a mut Command, directory: &Path) -> &'a mut Command {
    for (name, _) in std::env::vars_os() {
        let is_key =
            name.to_str().is_some_and(|name| name.starts_with("FLOTILLA_") || name.ends_with("_API_KEY"));
        if is_key {
            command.env_remove(name);
        }
    }
    command
        .env("FLOTILLA_DATA", directory.join("data"))
        .env("XDG_CACHE_HOME", directory.join("cache"))
        .env("XDG_CONFIG_HOME", directory.join("config"))
        .current_dir(directory)
}

/// A path as an argument.
pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is text")
}
