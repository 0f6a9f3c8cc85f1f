//! Keeps the processes of a stack running: each one that ends is restarted, with growing pauses, while the others go on.

use super::child::Child;
use crate::terminal::output;
use anyhow::Result;
use local::stack::Server;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// First pause before a restart. The first restart of a process that ran for a while needs none.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause before a restart.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Changes that wait to be reported; beyond this number the restarts wait.
pub(super) const CHANGES_MAX: usize = 16;
/// A process that ran for this long counts as healthy: its next restart needs no pause.
const STEADY: Duration = Duration::from_secs(60);

/// A process of the stack.
pub(super) enum Process<'a> {
    Server(&'a mut Server),
    Service(&'a mut Child),
}

/// The current state of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) name: String,
    /// `None`: it has ended.
    pub(super) pid: Option<u32>,
    /// `None`: a server, or a service that is not ready.
    pub(super) admin_url: Option<String>,
}

/// Restarts a process whenever it ends, and reports that through `changes`. Never returns.
///
/// Dropped midway: the process runs, or has ended.
pub(super) async fn supervise(mut process: Process<'_>, changes: mpsc::Sender<Change>) {
    let (name, mut pauses) = (process.name(), Pauses::default());
    loop {
        let exit = process.exit().await;
        output::note(&format!("{name} ended {exit}"));
        drop(changes.send(process.state()).await);
        loop {
            let pause = pauses.next(Instant::now());
            if !pause.is_zero() {
                output::note(&format!("{name} is restarted in {} s", pause.as_secs()));
                tokio::time::sleep(pause).await;
            }
            match process.restart().await {
                Ok(()) => break,
                Err(error) => output::note(&format!("{name} is not running: {error:#}")),
            }
        }
        output::note(&format!("{name} is running again"));
        drop(changes.send(process.state()).await);
    }
}

impl Process<'_> {
    fn name(&self) -> String {
        match self {
            Self::Server(server) => server.role().to_owned(),
            Self::Service(child) => child.name().to_owned(),
        }
    }

    /// Waits until the process ends, and returns its status and the end of its log.
    async fn exit(&mut self) -> String {
        let (status, log_tail) = match self {
            Self::Server(server) => {
                let exit = server.exit().await;
                (exit.status, exit.log_tail)
            }
            Self::Service(child) => (child.exit().await, local::log::tail(child.log())),
        };
        format!("({status}); the end of its log:\n{log_tail}")
    }

    async fn restart(&mut self) -> Result<()> {
        match self {
            Self::Server(server) => Ok(server.restart().await?),
            Self::Service(child) => child.restart().await,
        }
    }

    pub(super) fn state(&self) -> Change {
        let (pid, admin_url) = match self {
            Self::Server(server) => (server.pid(), None),
            Self::Service(child) => (child.pid(), child.admin_url()),
        };
        Change { name: self.name(), pid, admin_url }
    }
}

/// The pauses before the restarts of one process.
#[derive(Debug, Default)]
struct Pauses {
    last: Option<(Instant, Duration)>,
}

impl Pauses {
    /// Returns the pause before a restart at `now`.
    fn next(&mut self, now: Instant) -> Duration {
        let pause = match self.last {
            Some((at, pause)) if now.duration_since(at) < pause + STEADY => {
                (2 * pause).clamp(PAUSE_FIRST, PAUSE_MAX)
            }
            Some(_) | None => Duration::ZERO,
        };
        self.last = Some((now, pause));
        pause
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn pauses_grow_until_the_process_runs_for_a_while() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        for (ran_s, want_s) in
            [(0, 0), (0, 1), (5, 2), (0, 4), (59, 8), (0, 16), (0, 30), (0, 30), (59, 30), (60, 0), (1, 1)]
        {
            now += Duration::from_secs(ran_s);
            let pause = pauses.next(now);
            assert_eq!(pause, Duration::from_secs(want_s), "after {ran_s} s");
            now += pause;
        }
    }

    #[tokio::test]
    async fn a_server_that_is_killed_again_and_again_runs_again_while_another_does_too() {
        let directory = tempfile::tempdir().unwrap();
        let options = local::options::Options { fsync: false, postgres_connections: 20 };
        let mut stack = local::stack::start(directory.path(), options).await.unwrap();
        let (sender, mut changes) = mpsc::channel(CHANGES_MAX);
        let first = stack.pids();
        let supervised = futures::future::join_all(
            stack.servers_mut().iter_mut().map(|server| supervise(Process::Server(server), sender.clone())),
        );
        let kill = |pid: u32| {
            let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        };
        let mut pids = first.clone();
        let test = async {
            // Postgres finds its memory in use at first; meanwhile NATS is killed twice.
            kill(first["postgres"]);
            for role in ["nats", "nats", "postgres"] {
                let before = if role == "postgres" { first[role] } else { pids[role] };
                if role == "nats" {
                    kill(before);
                }
                while pids[role] == before {
                    let Change { name, pid, .. } = changes.recv().await.unwrap();
                    let known = pids.iter_mut().find(|(known, _)| **known == name).unwrap();
                    *known.1 = pid.unwrap_or(*known.1);
                }
            }
        };
        tokio::select! {
            _ = supervised => panic!("supervision never ends"),
            ended = tokio::time::timeout(Duration::from_secs(60), test) => ended.unwrap(),
        }
        stack.stop().await.unwrap();
    }
}
