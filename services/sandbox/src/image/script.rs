//! A script of an environment layer that runs to its end in a sandbox of its own, with bounds of time and disk. What is made of the files that it leaves is
//! the business of the callers.

use super::store::Store;
use crate::{
    disk::{count::Measure, space::Space},
    error::{Error, blocking},
    exec::tail::Tail,
    sandbox::{Event, Sandbox},
};
use domain::egress::{no_network::NO_NETWORK_WORDS, secrets::SECRETS_PASSING_CODE};
use rpc::v1::{ErrorCode, ExecEnd};
use sandbox_wire::v1::{Exec, Exit};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Pause between two looks at what a script takes of the disk; ten times the look itself, if that is longer.
const DISK_PAUSE: Duration = Duration::from_millis(250);
/// How long after its time limit a script may take to end before its sandbox is ended.
const BACKSTOP: Duration = Duration::from_secs(10);
/// The signal for a process that writes beyond the largest size of a file: SIGXFSZ.
const FILE_TOO_LARGE: i32 = 25;
/// What a shell adds to the signal that ended a program, for its own exit code.
const SIGNALLED: i32 = 128;
/// Prefixes of variables that change how the loader starts a program.
const LOADER_VARIABLES: [&str; 2] = ["LD_", "GLIBC_TUNABLES"];
/// What a person reads below the lines of a script that did not reach a host.
const NETWORK_HINT: &str = "\nThe script reaches only the hosts in `environment.network.setup`; others answer 403. `flotilla egress log SESSION` names those that were refused.";
/// What a person sees of the output of a script that failed.
const LINES_SHOWN: usize = 40;
const LINES_SHOWN_BYTES: usize = 4 * 1024;

/// The script of the settings that makes an environment layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildStage {
    /// `setup`: a layer on top of an image.
    #[default]
    Setup,
    /// `install`: files among those of a repository.
    Install,
}

impl BuildStage {
    /// Its name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Install => "install",
        }
    }

    pub fn failed(self) -> ErrorCode {
        match self {
            Self::Setup => ErrorCode::SetupFailed,
            Self::Install => ErrorCode::InstallFailed,
        }
    }

    /// The code of a build that ended before its script did.
    pub fn interrupted(self) -> ErrorCode {
        match self {
            Self::Setup => ErrorCode::SetupInterrupted,
            Self::Install => ErrorCode::InstallInterrupted,
        }
    }

    fn timeout(self) -> ErrorCode {
        match self {
            Self::Setup => ErrorCode::SetupTimeout,
            Self::Install => ErrorCode::InstallTimeout,
        }
    }

    fn time_setting(self) -> &'static str {
        match self {
            Self::Setup => "FLOTILLA_SANDBOX_SETUP_MS",
            Self::Install => "FLOTILLA_SANDBOX_INSTALL_MS",
        }
    }
}

/// How far a build is.
#[derive(Debug, Default)]
pub struct BuildProgress {
    pub log: Tail,
    pub end: Option<BuildEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildEnd {
    /// `None`: the machine has the environment.
    pub code: Option<ErrorCode>,
    /// What went wrong, for a person.
    pub message: String,
}

/// A script, and what it gets.
#[derive(Debug)]
pub struct ScriptSource<'a> {
    /// For bash.
    pub text: String,
    /// The secrets that the door gives it, with their versions.
    pub secrets: &'a [String],
    /// Its other variables: `NAME=value`.
    pub env: Vec<String>,
}

/// What a script may take.
#[derive(Debug, Clone, Copy)]
pub struct ScriptLimits {
    /// Its longest run.
    pub time: Duration,
    /// What its files may take.
    pub space: Space,
    /// The memory of its sandbox.
    pub memory_bytes: u64,
    /// Whether it runs where its terminals cannot be bounded.
    pub without_terminals: bool,
}

pub struct ScriptRun<'a> {
    pub stage: BuildStage,
    /// The command; the time limit and the bound of the output are filled in.
    pub exec: Exec,
    pub has_secrets: bool,
    pub limits: ScriptLimits,
    /// Where its files are on this machine.
    pub tree: PathBuf,
    pub measure: fn(&Path, &[i32], u64) -> io::Result<Measure>,
    pub store: &'a Store,
    pub progress: &'a watch::Sender<BuildProgress>,
    /// Cancelled when it must end.
    pub stop: &'a CancellationToken,
    /// Cancelled when the service stops.
    pub shutdown: &'a CancellationToken,
}

impl ScriptRun<'_> {
    /// Runs it to its end and ends its sandbox, with everything that it left running. Its files are within their limits then.
    ///
    /// # Errors
    /// The codes of the stage; `disk_full`, `sandbox_unavailable`.
    pub async fn run(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let ended = if sandbox.bounds_terminals() || self.limits.without_terminals {
            self.execute(sandbox).await
        } else {
            let text = format!("the terminals of the {} cannot be bounded; try again", self.stage.name());
            Err(Error::refused(ErrorCode::SandboxUnavailable, text))
        };
        let memory_kills = sandbox.events().memory_kills;
        sandbox.stop().await;
        self.judge(&ended?, memory_kills > 0)?;
        self.check_disk(sandbox).await
    }

    async fn execute(&self, sandbox: &Sandbox) -> Result<Exit, Error> {
        let limit = self.limits.time;
        let exec = Exec {
            timeout_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            // Of a long output, the service keeps the end.
            output_bytes_max: u64::MAX,
            ..self.exec.clone()
        };
        let events = sandbox.exec(exec).await?.events;
        let interrupted = |text: &str| Err(Error::refused(self.stage.interrupted(), text));
        tokio::select! {
            exit = self.record(events) => exit,
            error = self.watch_disk(sandbox) => Err(error),
            () = tokio::time::sleep(limit + BACKSTOP) => Err(self.too_slow()),
            () = self.stop.cancelled() => interrupted("the session of this build no longer waits for it; try again"),
            () = self.shutdown.cancelled() => interrupted("the sandbox service stops; try again"),
        }
    }

    async fn record(&self, mut events: mpsc::Receiver<Event>) -> Result<Exit, Error> {
        while let Some(event) = events.recv().await {
            match event {
                Event::Output(data) => self.progress.send_modify(|progress| progress.log.push(&data)),
                Event::Exit(exit) => return Ok(exit),
            }
        }
        Err(Error::refused(self.stage.interrupted(), "its sandbox ended; try again"))
    }

    /// Returns when the script has taken too much of the disk, or the machine has too little left.
    async fn watch_disk(&self, sandbox: &Sandbox) -> Error {
        let mut pause = DISK_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            if let Err(error) = self.check_disk(sandbox).await {
                return error;
            }
            pause = DISK_PAUSE.max(begun.elapsed() * 10);
        }
    }

    async fn check_disk(&self, sandbox: &Sandbox) -> Result<(), Error> {
        self.store.check_host()?;
        let limit = self.limits.space;
        let (tree, pids, measure) = (self.tree.clone(), sandbox.processes(), self.measure);
        let measured = blocking("measure what a script wrote", move || measure(&tree, &pids, limit.inodes));
        if measured.await?.space.exceeds(limit) {
            return Err(self.with_output(too_large(self.stage, limit)));
        }
        Ok(())
    }

    /// Refuses the end of a script that is no success.
    fn judge(&self, exit: &Exit, is_out_of_memory: bool) -> Result<(), Error> {
        let stage = self.stage.name();
        let memory = self.limits.memory_bytes >> 20;
        let failed = |text: String| Err(self.with_output(Error::refused(self.stage.failed(), text)));
        match exit.end() {
            ExecEnd::Timeout => Err(self.too_slow()),
            ExecEnd::MemoryLimit => failed(format!("the {stage} used more than {memory} MiB of memory")),
            ExecEnd::Exited if exit.code == 0 && exit.signal == 0 => Ok(()),
            ExecEnd::Exited if self.has_secrets && exit.code == i32::from(SECRETS_PASSING_CODE) => {
                let text = format!("the {stage} got no secrets; try again");
                Err(self.with_output(Error::refused(self.stage.interrupted(), text)))
            }
            ExecEnd::Exited if is_out_of_memory => {
                failed(format!("the {stage} failed; its processes used more than {memory} MiB of memory"))
            }
            // A single file reached the bound of the whole script, or a program below the shell wrote it.
            ExecEnd::Exited if exit.signal == FILE_TOO_LARGE || exit.code == SIGNALLED + FILE_TOO_LARGE => {
                Err(self.with_output(too_large(self.stage, self.limits.space)))
            }
            ExecEnd::Exited if exit.signal != 0 => {
                failed(format!("signal {} ended the {stage}", exit.signal))
            }
            ExecEnd::Exited => failed(format!("the {stage} failed with exit code {}", exit.code)),
            ExecEnd::ProcessLimit => failed(format!("the {stage} needed too many processes")),
            ExecEnd::Unspecified | ExecEnd::Killed | ExecEnd::Lost | ExecEnd::DiskLimit => {
                let text = format!("the {stage} was ended; try again");
                Err(self.with_output(Error::refused(self.stage.interrupted(), text)))
            }
        }
    }

    fn too_slow(&self) -> Error {
        let text = format!(
            "the {} took more than {} s ({}); it may wait for input, which it never gets",
            self.stage.name(),
            self.limits.time.as_secs_f64(),
            self.stage.time_setting()
        );
        self.with_output(Error::refused(self.stage.timeout(), text))
    }

    /// The same with the last lines that the script printed.
    fn with_output(&self, error: Error) -> Error {
        let lines = self.progress.borrow().log.last_lines(LINES_SHOWN, LINES_SHOWN_BYTES);
        if lines.trim().is_empty() {
            return Error::refused(error.code(), format!("{error}; it printed nothing"));
        }
        let hint = if names_network(&lines) { NETWORK_HINT } else { "" };
        Error::refused(error.code(), format!("{error}; its last lines:\n{lines}{hint}"))
    }
}

/// The command that runs a script. One with secrets runs below our own program, which starts with `init` and gets the secrets from the door of the
/// session; `tree` is what sessions will see of its files.
pub fn command(script: ScriptSource<'_>, tree: &str, init: Vec<String>) -> Exec {
    let ScriptSource { text, secrets, env } = script;
    if secrets.is_empty() {
        return Exec { command: text, env, ..Exec::default() };
    }
    // The image's loader variables must not reach the loader of our program.
    let is_of_loader =
        |variable: &String| LOADER_VARIABLES.iter().any(|beginning| variable.starts_with(beginning));
    let (of_loader, env): (Vec<_>, Vec<_>) = env.into_iter().partition(is_of_loader);
    let own = ["script".to_owned(), tree.to_owned(), text];
    // The first argument is the name of the shell, which only starts the program.
    let arguments = ["sh".to_owned()].into_iter().chain(init).chain(own).chain(of_loader);
    Exec { command: "exec \"$@\"".to_owned(), arguments: arguments.collect(), env, ..Exec::default() }
}

/// Whether the last lines of a script say that it did not reach a host.
fn names_network(lines: &str) -> bool {
    let lines = lines.to_ascii_lowercase();
    NO_NETWORK_WORDS.iter().any(|word| lines.contains(word))
}

/// The error of a script that left too much.
pub(super) fn too_large(stage: BuildStage, limit: Space) -> Error {
    let (code, setting) = match stage {
        BuildStage::Setup => (ErrorCode::SetupDiskFull, "FLOTILLA_SANDBOX_SETUP_BYTES"),
        BuildStage::Install => (ErrorCode::InstallDiskFull, "FLOTILLA_SANDBOX_DISK_BYTES"),
    };
    let text = format!(
        "the {} wrote more than {} MiB ({setting}) or {} files; remove what sessions do not need",
        stage.name(),
        limit.bytes >> 20,
        limit.inodes
    );
    Error::refused(code, text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn installers_without_network_are_recognized() {
        for lines in [
            "npm error 403 403 Forbidden - GET https://registry.example/left-pad",
            "ERROR: No matching distribution found for left-pad",
            "curl: (56) CONNECT tunnel failed: Proxy refused",
            "E: Temporary failure resolving 'deb.example'\nCould not resolve host",
        ] {
            assert!(names_network(lines), "{lines}");
        }
        assert!(!names_network("error[E0308]: mismatched types\nmake: *** [all] Error 2"));
    }
}
