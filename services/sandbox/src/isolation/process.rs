//! The process of a sandbox or helper, from its start to its end. A task owns it with its control group, so that nothing of it stays
//! behind, however the caller leaves.

use super::cgroup::{Events, Group};
use chassis::tasks::Tasks;
use shares::Permit;
use std::{io, sync::Arc};
use tokio::{
    process::{Child, ChildStderr, ChildStdout, Command},
    sync::{mpsc::OwnedPermit, oneshot, watch},
};
use tokio_util::sync::CancellationToken;

/// A command that the launcher thread spawns.
pub(super) struct SpawnJob {
    command: Command,
    reply: oneshot::Sender<io::Result<Child>>,
    /// The turn of the tenant, given back when the process is spawned.
    _turn: Permit,
}

/// A place in the queue of the launcher thread.
pub(super) struct StartPlace {
    pub(super) permit: OwnedPermit<SpawnJob>,
    pub(super) turn: Permit,
}

impl StartPlace {
    /// Queues a command. The thread sends its process, or the error of fork.
    pub(super) fn submit(self, command: Command) -> oneshot::Receiver<io::Result<Child>> {
        let (reply, child) = oneshot::channel();
        drop(self.permit.send(SpawnJob { command, reply, _turn: self.turn }));
        child
    }
}

impl SpawnJob {
    /// Spawns the command, and replies.
    pub(super) fn run(mut self) {
        let child = self.command.spawn();
        // If the caller disconnected, dropping the child here kills it.
        drop(self.reply.send(child));
    }
}

/// The error of a start after the end of the launcher thread.
pub(super) fn launcher_ended() -> io::Error {
    io::Error::other("the launcher has ended")
}

/// A started sandbox. Dropping it kills it with everything inside.
#[derive(Debug)]
pub struct SandboxProcess {
    /// What bubblewrap and a helper print, until the caller takes it.
    pub stdout: Option<ChildStdout>,
    /// The errors of bubblewrap and of a helper, until the caller takes it.
    pub stderr: Option<ChildStderr>,
    /// Bubblewrap.
    pub pid: Option<u32>,
    /// Its control group, which may be gone already.
    pub group: Option<Arc<Group>>,
    stop: CancellationToken,
    end: watch::Receiver<Option<ProcessEnd>>,
}

/// The end of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessEnd {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What its control group counted.
    pub events: Events,
}

pub(super) struct ProcessStart {
    pub(super) command: Command,
    pub(super) group: Option<Group>,
    /// Whether the process enters its group by itself.
    pub(super) enters: bool,
    /// Given back when the process is gone.
    pub(super) permit: Option<Permit>,
}

impl ProcessStart {
    /// Has the launcher thread start the process, at its place in the queue.
    ///
    /// # Errors
    /// Those of fork.
    ///
    /// Dropped midway: the process is killed if it was started.
    pub(super) async fn run(self, place: StartPlace, tasks: &Tasks) -> io::Result<SandboxProcess> {
        let (stop, (started, start), (ended, end)) =
            (CancellationToken::new(), oneshot::channel(), watch::channel(None));
        let Self { command, group, enters, permit } = self;
        let group = group.map(Arc::new);
        let owner = Owner { group: group.clone(), enters, _permit: permit, stop: stop.clone() };
        tasks.spawn("sandbox process", async move { owner.run(command, place, started, ended).await });
        // Before the first await: from now on, leaving stops the process.
        let mut process = SandboxProcess { stdout: None, stderr: None, pid: None, group, stop, end };
        let pipes = start.await.unwrap_or_else(|_| Err(launcher_ended()))?;
        (process.stdout, process.stderr, process.pid) = (pipes.stdout, pipes.stderr, pipes.pid);
        Ok(process)
    }
}

struct Pipes {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    pid: Option<u32>,
}

impl SandboxProcess {
    /// Kills it with everything inside.
    pub fn kill(&self) {
        self.stop.cancel();
    }

    /// Waits until it is gone with its control group, and what it held is given back. Cancel-safe.
    pub async fn wait(&mut self) -> ProcessEnd {
        // A task that ended without a word panicked.
        self.end.wait_for(Option::is_some).await.ok().and_then(|end| *end).unwrap_or_default()
    }
}

impl Drop for SandboxProcess {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The task that owns a process.
struct Owner {
    group: Option<Arc<Group>>,
    enters: bool,
    _permit: Option<Permit>,
    stop: CancellationToken,
}

impl Owner {
    async fn run(
        self,
        command: Command,
        place: StartPlace,
        started: oneshot::Sender<io::Result<Pipes>>,
        ended: watch::Sender<Option<ProcessEnd>>,
    ) {
        let code = match self.spawn(command, place).await {
            Ok(mut child) => {
                let (stdout, stderr, pid) = (child.stdout.take(), child.stderr.take(), child.id());
                // If the caller has left, the token is cancelled.
                drop(started.send(Ok(Pipes { stdout, stderr, pid })));
                self.watch(child).await
            }
            Err(error) => {
                drop(started.send(Err(error)));
                None
            }
        };
        let mut events = Events::default();
        if let Some(group) = &self.group {
            group.kill_left();
            events = group.events();
            group.remove().await;
        }
        drop(self);
        ended.send_replace(Some(ProcessEnd { code, events }));
    }

    /// Spawns the command, and moves it into its group unless it enters by itself. A child that does not come into its group is dropped, which
    /// kills it. The kernel may take tens of milliseconds to move a process, so neither the launcher nor the start of bubblewrap waits for that.
    async fn spawn(&self, command: Command, place: StartPlace) -> io::Result<Child> {
        let child = place.submit(command).await.map_err(|_| launcher_ended())??;
        if let Some((group, pid)) = self.group.clone().filter(|_| !self.enters).zip(child.id()) {
            let moved = tokio::task::spawn_blocking(move || group.take_in(pid)).await;
            moved.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        }
        Ok(child)
    }

    async fn watch(&self, mut child: Child) -> Option<i32> {
        let status = tokio::select! {
            status = child.wait() => status,
            () = self.stop.cancelled() => {
                drop(child.start_kill());
                child.wait().await
            }
        };
        status.ok().and_then(|status| status.code())
    }
}
