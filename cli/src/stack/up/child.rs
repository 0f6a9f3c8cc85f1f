//! One service as a child process: start, wait until ready, restart at the same address, stop.

use super::{service::Spec, waits};
use crate::terminal::output;
use anyhow::{Context as _, Result, bail};
use chassis::ready::Ready;
use nix::sys::signal::Signal;
use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::process::Command;

/// Time that one service of `flotilla up` has to become ready; milliseconds.
const UP_READY_MS: u64 = 60_000;

/// Poll interval while a service starts.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Child {
    spec: Spec,
    process: tokio::process::Child,
    ready: Option<Ready>,
}

impl Child {
    /// Starts the service. It dies with this process.
    pub(super) async fn spawn(spec: Spec) -> Result<Self> {
        let process = spawn(&spec).await?;
        Ok(Self { spec, process, ready: None })
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn role(&self) -> &'static str {
        self.spec.role
    }

    pub(super) fn log(&self) -> &Path {
        &self.spec.log
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    pub(super) fn admin_url(&self) -> Option<String> {
        self.ready.as_ref().map(|ready| ready.admin_url.clone())
    }

    /// Waits until the service has announced its address and is healthy; returns the address.
    ///
    /// # Errors
    /// If the service ends first or takes longer than [`UP_READY_MS`]; the error shows the end of its log.
    pub(super) async fn wait_ready(&mut self) -> Result<String> {
        let name = self.spec.name.clone();
        let limit = Duration::from_millis(UP_READY_MS);
        let ready = tokio::time::timeout(limit, self.ready_or_ended()).await;
        let what = match ready {
            Ok(Ok(ready)) => {
                let url = ready.url.clone();
                self.ready = Some(ready);
                return Ok(url);
            }
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("was not ready within {} s", limit.as_secs()),
        };
        bail!("{name} {what}; the end of {}:\n{}", self.spec.log.display(), local::log::tail(&self.spec.log))
    }

    async fn ready_or_ended(&mut self) -> Result<Ready> {
        let client = chassis::http::client()?;
        // Tells once what a long start waits for.
        let mut tells_at = Some(Instant::now() + waits::LONG);
        loop {
            let mut lacking = String::new();
            if let Some(status) = self.process.try_wait().context("supervise it")? {
                bail!("ended ({status})");
            }
            if let Ok(json) = fs::read(&self.spec.ready_file) {
                let ready: Ready = serde_json::from_slice(&json).context("wrote an invalid ready file")?;
                match client.get(format!("{}/readyz", ready.admin_url)).send().await {
                    Ok(answer) if answer.status().is_success() => return Ok(ready),
                    Ok(answer) => lacking = waits::lacking(&answer.text().await.unwrap_or_default()),
                    Err(_) => {}
                }
            }
            if tells_at.take_if(|at| *at <= Instant::now()).is_some() {
                let why = if lacking.is_empty() { String::new() } else { format!(" ({lacking})") };
                output::note(&format!("waiting for {} …{why}", self.spec.name));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the service ends by itself and returns its exit status. Cancel-safe.
    pub(super) async fn exit(&mut self) -> String {
        let status = self.process.wait().await;
        status.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Restarts the service at its old address if it has ended, because the other services know that address, and waits until it is
    /// ready. One that is still starting is not restarted: it may wait for a server.
    pub(super) async fn restart(&mut self) -> Result<()> {
        if self.process.id().is_none() {
            let ready = self.ready.take();
            let address = ready.and_then(|ready| ready.url.strip_prefix("http://").map(str::to_owned));
            if let Some(address) = address {
                self.spec.env.retain(|(name, _)| name != self.spec.listen_variable);
                self.spec.env.push((self.spec.listen_variable.to_owned(), address));
            }
            self.process = spawn(&self.spec).await?;
        }
        self.wait_ready().await.map(drop)
    }

    /// Asks the service to end, and kills it after `within`.
    pub(super) async fn stop(&mut self, within: Duration) {
        if let Err(error) = local::process::stop(&mut self.process, Signal::SIGTERM, within).await {
            output::note(&format!("stop {}: {error}", self.spec.name));
        }
    }
}

async fn spawn(spec: &Spec) -> Result<tokio::process::Child> {
    if let Some(dir) = spec.log.parent() {
        fs::create_dir_all(dir).context("make the log directory")?;
    }
    // An old ready file would name a process that has ended.
    drop(fs::remove_file(&spec.ready_file));
    let log = fs::OpenOptions::new().create(true).append(true).open(&spec.log);
    let log = log.with_context(|| format!("open {}", spec.log.display()))?;
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.arguments)
        .arg(format!("--die-with={}", std::process::id()))
        .arg("--ready-file")
        .arg(&spec.ready_file)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("open the log twice")?)
        .stderr(log);
    if spec.keeps_secrets_out {
        command.env_clear();
        let harmless = std::env::vars_os()
            .filter(|(name, _)| super::service::is_harmless(spec.role, &name.to_string_lossy()));
        command.envs(harmless);
    }
    command.env_remove("FLOTILLA_ADMIN_LISTEN").env_remove("FLOTILLA_API_KEY");
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    local::process::spawn(command).await.context("start the process")
}
