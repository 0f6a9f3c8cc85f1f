//! A service as a separate process: a benchmark can kill it and measure its own memory and CPU time.

use super::usage::{self, Extent};
use crate::{Stack, bench::testbed::until};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A running service. It is killed when this value is dropped.
pub struct Process(Child);

impl Process {
    /// Starts worker `number` of a stack and returns at once.
    pub fn worker(stack: &Stack, number: usize) -> Self {
        Self::start(stack.settings.worker_arguments(number))
    }

    /// Starts a second gateway of a stack, and returns it with its URL.
    pub async fn gateway(stack: &Stack) -> (Self, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ready.json");
        let mut arguments = stack.settings.gateway_arguments();
        arguments.extend(["--ready-file".to_owned(), file.display().to_string()]);
        let gateway = Self::start(arguments);
        let read = || {
            let json: serde_json::Value = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
            Some(json["url"].as_str()?.to_owned())
        };
        until("the gateway is ready", || read().is_some()).await;
        (gateway, read().expect("its address"))
    }

    fn start(arguments: Vec<String>) -> Self {
        let mut command = Command::new(program());
        command
            .args(arguments)
            .arg(format!("--die-with={}", std::process::id()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("a process"))
    }

    pub fn kill(mut self) {
        self.0.kill().expect("a living process");
        self.0.wait().expect("a dead process");
    }

    /// Sends SIGTERM, so that it hands its sessions over.
    pub fn terminate(&self) {
        terminate(&self.0).expect("a living process");
    }

    /// Returns its resident memory; bytes.
    pub fn resident_bytes(&self) -> u64 {
        usage::resident_bytes(self.0.id())
    }

    /// Returns the peak of its resident memory since the last reset; bytes.
    pub fn peak_bytes(&self) -> u64 {
        usage::peak_bytes(self.0.id())
    }

    /// Resets the peak to the present resident memory.
    pub fn reset_peak(&self) {
        usage::reset_peak(self.0.id());
    }

    /// Returns its CPU time on all cores.
    pub fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.0.id(), Extent::Process).total()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Sends SIGTERM to a child process.
///
/// # Errors
/// When it has ended.
pub fn terminate(child: &Child) -> nix::Result<()> {
    signal::kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)
}

/// Finds the `flotilla` program of this build. Tests are one directory deeper.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join("flotilla")).find(|path| path.exists());
    found.expect("flotilla is built; if not, run `cargo build --workspace`")
}
