//! One service of the system as a real process: started, frozen, thawed, killed, asked to end, started again.

use super::history::Exit;
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

/// Time between two looks at a service that starts.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a service may take to answer. A sandbox tests its isolation first.
const READY: Duration = Duration::from_secs(30);
/// How long a service may take to end when it is asked to: the grace for streams and a little more.
const DRAIN: Duration = Duration::from_secs(40);

/// How a process is started.
#[derive(Debug, Clone)]
pub struct Spec {
    /// `worker-1`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments, the sub-command first.
    pub arguments: Vec<String>,
    /// Environment variables, beside the few that every process gets.
    pub env: Vec<(&'static str, String)>,
    /// Where its output goes and its ready file is.
    pub directory: PathBuf,
}

/// A process that is restarted under the same name. It dies with this one.
#[derive(Debug)]
pub struct Process {
    /// How it is started.
    pub spec: Spec,
    child: Option<Child>,
}

impl Process {
    /// One that does not run yet.
    pub fn new(spec: Spec) -> Self {
        Self { spec, child: None }
    }

    /// Starts it and returns at once.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn start(&mut self) -> Result<()> {
        // An old ready file would name a process that is gone.
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
            .process_group(0)
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

    /// Waits until it answers, and gives its address.
    ///
    /// # Errors
    /// When it ends instead, or takes too long.
    pub async fn ready(&mut self) -> Result<SocketAddr> {
        let begun = Instant::now();
        while begun.elapsed() < READY {
            if let Some(how) = self.ended() {
                bail!(
                    "{} ended before it was ready ({how}); its log is {}",
                    self.spec.name,
                    self.log().display()
                );
            }
            if let Ok(json) = fs::read(self.ready_file()) {
                let ready: Ready = serde_json::from_slice(&json).context("read a ready file")?;
                return ready.url.trim_start_matches("http://").parse().context("read an address");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        bail!(
            "{} was not ready within {} s; its log is {}",
            self.spec.name,
            READY.as_secs(),
            self.log().display()
        )
    }

    /// How it ended, if it was started and does not run any more. It then counts as not started.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status.to_string())
    }

    /// Its process id while it runs.
    pub fn pid(&self) -> Option<Pid> {
        let pid = self.child.as_ref()?.id()?;
        i32::try_from(pid).ok().map(Pid::from_raw)
    }

    /// Sends a signal, if it runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // An error says that it is gone, which the next look finds.
            let _ = kill(pid, signal);
        }
    }

    /// Ends it as a crash does, and waits until it is gone.
    pub async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        if let Some(mut child) = self.child.take() {
            drop(child.wait().await);
        }
    }

    /// Asks it to end and waits; a process that does not is killed.
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

    /// Where its output goes.
    pub fn log(&self) -> PathBuf {
        self.spec.directory.join(format!("{}.log", self.spec.name))
    }

    fn ready_file(&self) -> PathBuf {
        self.spec.directory.join(format!("{}.json", self.spec.name))
    }
}
