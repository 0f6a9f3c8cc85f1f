//! One service of the system as a real process, which can be started, signalled, killed and drained.

use crate::faults::history::Exit;
use anyhow::{Context as _, Result, bail};
use chassis::ready::Ready;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::process::{Child, Command};

/// Time between two polls of a starting service.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for a service to start. A sandbox tests its isolation first.
const READY: Duration = Duration::from_secs(30);
/// Time limit for a service to exit after SIGTERM: slightly more than the grace period for streams.
const DRAIN: Duration = Duration::from_secs(40);

/// The command of a process.
#[derive(Debug, Clone)]
pub struct Spec {
    /// `worker-1`.
    pub name: String,
    pub program: PathBuf,
    /// Its arguments, with the sub-command first.
    pub arguments: Vec<String>,
    /// Its additional environment variables.
    pub env: Vec<(&'static str, String)>,
    /// The directory of its log and of its ready file.
    pub directory: PathBuf,
}

/// A process that can be restarted under the same name. It dies with the harness.
#[derive(Debug)]
pub struct Process {
    pub spec: Spec,
    child: Option<Child>,
}

impl Process {
    /// Creates a process that does not run yet.
    pub fn new(spec: Spec) -> Self {
        Self { spec, child: None }
    }

    /// Starts it and returns at once.
    ///
    /// # Errors
    /// If the system cannot start it.
    pub async fn start(&mut self) -> Result<()> {
        // An old ready file would name a dead process.
        drop(fs::remove_file(self.ready_file()));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log());
        let log = log.with_context(|| format!("open {}", self.log().display()))?;
        let mut command = Command::new(&self.spec.program);
        command
            .args(&self.spec.arguments)
            .arg(format!("--die-with={}", std::process::id()))
            .arg("--ready-file")
            .arg(self.ready_file())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("open the log twice")?)
            .stderr(log)
            .env_clear()
            .envs(
                std::env::vars_os()
                    .filter(|(name, _)| name == "PATH" || name == "HOME" || name == "FLOTILLA_LOG"),
            )
            .envs(self.spec.env.iter().map(|(name, value)| (name, value)));
        let child = local::process::spawn(command).await;
        self.child = Some(child.with_context(|| format!("start {}", self.spec.name))?);
        Ok(())
    }

    /// Waits until it answers, and returns its address.
    ///
    /// # Errors
    /// If it exits or takes too long.
    pub async fn ready(&mut self) -> Result<SocketAddr> {
        let begun = Instant::now();
        while begun.elapsed() < READY {
            if let Some(status) = self.exit_status() {
                bail!(
                    "{} exited before it was ready ({status}); its log is {}",
                    self.spec.name,
                    self.log().display()
                );
            }
            if let Ok(json) = fs::read(self.ready_file()) {
                let ready: Ready = serde_json::from_slice(&json).context("read a ready file")?;
                return ready.url.trim_start_matches("http://").parse().context("read an address");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        bail!(
            "{} was not ready within {} s; its log is {}",
            self.spec.name,
            READY.as_secs(),
            self.log().display()
        )
    }

    /// Returns its exit status if it has exited. The process then counts as not started.
    pub fn exit_status(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status.to_string())
    }

    /// Returns its process id while it runs.
    pub fn pid(&self) -> Option<Pid> {
        let pid = self.child.as_ref()?.id()?;
        i32::try_from(pid).ok().map(Pid::from_raw)
    }

    /// Sends a signal, if it runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // The signal fails if the process has exited; the next poll finds that.
            let _ = kill(pid, signal);
        }
    }

    /// Kills it and waits for its exit.
    pub async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        if let Some(mut child) = self.child.take() {
            drop(child.wait().await);
        }
    }

    /// Sends SIGTERM and waits for its exit. Kills it after the time limit.
    pub async fn drain(&mut self) -> Exit {
        let begun = Instant::now();
        self.signal(Signal::SIGTERM);
        let Some(child) = &mut self.child else { return Exit::default() };
        let exit = match tokio::time::timeout(DRAIN, child.wait()).await {
            Ok(Ok(status)) => {
                Exit { after_ms: i64::try_from(begun.elapsed().as_millis()).ok(), code: status.code() }
            }
            Ok(Err(_)) | Err(_) => Exit::default(),
        };
        self.kill().await;
        exit
    }

    /// Returns the path of its log.
    pub fn log(&self) -> PathBuf {
        self.spec.directory.join(format!("{}.log", self.spec.name))
    }

    fn ready_file(&self) -> PathBuf {
        self.spec.directory.join(format!("{}.json", self.spec.name))
    }
}
