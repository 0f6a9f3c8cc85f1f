//! Process trees, read from /proc. Its entries are of this sandbox only.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// Passes over a tree that forks while it is stopped; each leaves less to fork. After the last one some processes may escape, and the
/// outcome says so.
const PASSES_MAX: usize = 50;

/// Process ids and those of their parents.
#[derive(Debug, Default)]
pub(super) struct Processes(BTreeMap<i32, i32>);

impl Processes {
    pub(super) fn read() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        Self(pids.filter_map(|pid| Some((pid, parent(pid)?))).collect())
    }

    /// Everything below `root`, without it.
    pub(super) fn below(&self, root: i32) -> BTreeSet<i32> {
        let mut found = BTreeSet::new();
        let mut todo = vec![root];
        while let Some(above) = todo.pop() {
            for (pid, parent) in &self.0 {
                if *parent == above && found.insert(*pid) {
                    todo.push(*pid);
                }
            }
        }
        found
    }

    /// Direct children of PID 1 that are not in `supervisors`: the children of a killed supervisor.
    pub(super) fn orphans(&self, supervisors: &BTreeSet<i32>) -> BTreeSet<i32> {
        let lost = self.0.iter().filter(|(pid, parent)| **parent == 1 && !supervisors.contains(*pid));
        lost.map(|(pid, _)| *pid).collect()
    }

    /// All of them but PID 1.
    pub(super) fn all(&self) -> impl Iterator<Item = i32> {
        self.0.keys().copied().filter(|pid| *pid != 1)
    }
}

/// Sends a signal to everything below `root`.
pub(super) fn signal_all(root: i32, signal_sent: Signal) {
    for pid in Processes::read().below(root) {
        signal(pid, signal_sent);
    }
}

/// The outcome of an attempt to kill a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every process received SIGKILL.
    Killed,
    /// The tree forked faster than its processes could be stopped, so some may have escaped.
    Outrun,
}

/// Kills everything below `root`. The processes are stopped first, so that they cannot fork and escape.
pub(super) fn end(root: i32) -> Outcome {
    let mut stopped = BTreeSet::new();
    let mut outcome = Outcome::Outrun;
    for _ in 0..PASSES_MAX {
        let fresh: Vec<_> = Processes::read().below(root).difference(&stopped).copied().collect();
        if fresh.is_empty() {
            outcome = Outcome::Killed;
            break;
        }
        for pid in fresh {
            signal(pid, Signal::SIGSTOP);
            stopped.insert(pid);
        }
    }
    for pid in Processes::read().below(root) {
        signal(pid, Signal::SIGKILL);
    }
    // A command may have stopped its supervisor.
    signal(root, Signal::SIGCONT);
    outcome
}

/// Kills everything in the sandbox but this process: one step of the kernel that no fork escapes.
pub(super) fn end_all() {
    kill(Pid::from_raw(-1), Signal::SIGKILL).ok();
}

/// Sends a signal; a process that is gone needs none.
pub(super) fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).ok();
}

/// The fourth field; the second is a name in parentheses that may hold anything.
fn parent(pid: i32) -> Option<i32> {
    // Read as bytes: a name that is not UTF-8 must not hide a process.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    String::from_utf8_lossy(&stat).rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
