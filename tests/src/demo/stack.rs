//! A stack of real processes, and the command line of a person who uses it.

use super::report::{note, ok};
use crate::packages::{self, Registries};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tempfile::TempDir;
use testkit::registry::Registry;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::{Instant, sleep},
};

/// The file in which the stack says that it is ready.
const READY: &str = "data/ready.json";
/// Time for the stack to start.
const START_WAIT: Duration = Duration::from_secs(90);
/// Lines of each log that a person reads after a failure.
const LOG_LINES: usize = 10;
/// Time for one command of a person.
const COMMAND_WAIT: Duration = Duration::from_secs(600);

/// Why a machine runs no images.
pub(super) const WITHOUT_IMAGES: &str =
    "this machine joins the layers of an image only for root, or with bubblewrap 0.11";

/// Makes the directory of a demo's files, which ends with its value.
pub(super) fn directory(prefix: &str) -> Result<TempDir> {
    let directory = tempfile::Builder::new().prefix(prefix).tempdir()?;
    // Postgres and the sandboxes run as other users.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
    note(&format!("the files of this run are in {}", directory.path().display()));
    Ok(directory)
}

/// The variables that tell a stack of a registry of images, and of the registries of packages that this machine reaches.
pub(super) fn variables(images: &Registry, packages: &Registries) -> Vec<(&'static str, String)> {
    let mut variables = vec![("FLOTILLA_BROKER_REGISTRY_PLAINTEXT", images.host.clone())];
    if !packages.networks.is_empty() {
        variables.push(("FLOTILLA_BROKER_NETWORKS", packages.networks.join(",")));
    }
    variables.extend(
        packages::certificates().map(|file| ("FLOTILLA_SANDBOX_EGRESS_CA", file.display().to_string())),
    );
    variables
}

/// Waits for what a demo shows. An interrupt ends it earlier, as a failure.
pub(super) async fn until_interrupted(shown: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::select! {
        shown = shown => shown,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Into::into).and_then(|()| bail!("interrupted")),
    }
}

/// Whether a command failed because this machine runs no images.
pub(super) fn is_without_images(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("images_unsupported")
}

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
        while !directory.join(READY).exists() {
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

    /// What the stack says of itself.
    pub(super) fn ready(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(self.directory.join(READY))?)?)
    }

    /// Kills one of its processes, which the stack starts again.
    pub(super) fn kill(&self, process: &str) -> Result<()> {
        let pid = self.ready()?["pids"][process].as_i64().with_context(|| format!("a process {process}"))?;
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
        Ok(nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?)
    }

    /// The id of the newest session.
    pub(super) async fn newest_session(&self) -> Result<String> {
        let sessions = self.objects(&["ls", "--json"]).await?;
        Ok(sessions.first().and_then(|session| session["id"].as_str()).context("a session")?.to_owned())
    }

    /// What the commands of a session printed, in the order in which the model called them.
    pub(super) async fn bash_outputs(&self, session: &str) -> Result<Vec<String>> {
        let messages = self.objects(&["messages", session, "--json"]).await?;
        let parts = messages.iter().filter_map(|message| message["parts"].as_array()).flatten();
        let calls = parts.filter(|part| part["tool"] == "bash");
        Ok(calls.map(|call| call["state"]["output"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Ends the stack, and gives back the result of what was shown on it. If that is a failure, it first reports the ends of the logs.
    pub(super) async fn stop_after(mut self, shown: Result<()>) -> Result<()> {
        if shown.is_err() {
            self.report_logs();
        }
        let pid = self.up.id().context("the stack ended before")?;
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        let status = self.up.wait().await?;
        shown?;
        ensure!(status.success(), "the stack ended with {status}");
        Ok(())
    }

    /// Reports the ends of the logs of its services.
    fn report_logs(&self) {
        for service in ["broker", "gateway", "sandbox", "worker-1"] {
            let file = self.directory.join(format!("data/logs/{service}.log"));
            let log = std::fs::read_to_string(file).unwrap_or_default();
            for line in log.lines().rev().take(LOG_LINES).collect::<Vec<_>>().into_iter().rev() {
                note(&format!("{service}: {line}"));
            }
        }
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
