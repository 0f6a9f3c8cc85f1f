//! A worker as a process of its own: it can be killed, and its memory is nobody else's.

use crate::Stack;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// A running worker; killed when it is dropped.
pub(super) struct Worker(Child);

impl Worker {
    /// Starts worker `number` of a stack and returns at once.
    pub(super) fn start(stack: &Stack, number: usize) -> Self {
        let mut command = Command::new(program());
        command
            .args(stack.settings.worker_arguments(number))
            .arg(format!("--die-with={}", std::process::id()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("a worker"))
    }

    /// Ends it as a crash does.
    pub(super) fn kill(mut self) {
        self.0.kill().expect("a living worker");
        self.0.wait().expect("a dead worker");
    }

    /// Asks it to hand its sessions over.
    pub(super) fn terminate(&self) {
        let kill = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(kill.expect("a signal").success(), "the worker lives");
    }

    /// Resident memory; bytes.
    pub(super) fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("a living worker");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The `flotilla` of this build. Tests are one directory deeper.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join("flotilla")).find(|path| path.exists());
    found.expect("flotilla is built; if not, run `cargo build --workspace`")
}
