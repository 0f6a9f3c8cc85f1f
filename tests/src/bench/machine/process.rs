//! A service as a separate process: a benchmark can kill it and measure its own memory and CPU time.

use super::testbed::until;
use crate::Stack;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Clock ticks per second in the process statistics of Linux.
const TICKS: u64 = 100;

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

    /// Kills it.
    pub fn kill(mut self) {
        self.0.kill().expect("a living process");
        self.0.wait().expect("a dead process");
    }

    /// Sends SIGTERM, so that it hands its sessions over.
    pub fn terminate(&self) {
        let kill = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(kill.expect("a signal").success(), "the process lives");
    }

    /// Returns its resident memory; bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Returns the peak of its resident memory since the last reset; bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// Resets the peak to the present resident memory.
    pub fn reset_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.0.id()), "5").expect("a living process");
    }

    fn status_bytes(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("a living process");
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Returns its CPU time on all cores.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("a living process");
        // The name may contain spaces. After it, the state is the third field, and user and system time are the 14th and 15th.
        let fields = stat.rsplit_once(')').expect("a name").1;
        let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        Duration::from_millis(ticks.sum::<u64>() * (1_000 / TICKS))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Finds the `flotilla` program of this build. Tests are one directory deeper.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join("flotilla")).find(|path| path.exists());
    found.expect("flotilla is built; if not, run `cargo build --workspace`")
}
