//! One-shot sandboxes that run a script and end: clone, diff, export, snapshot, removal. They have the same walls as a
//! session's sandbox.

use crate::{
    error::Error,
    isolation::{
        launch::{LaunchSpec, Launcher, Mount, Program},
        policy::Network,
        process::SandboxProcess,
        root::image::Root,
    },
};
use chassis::tasks;
use domain::{ids::TenantId, session::environment::SandboxOptions};
use rpc::v1::ErrorCode;
use shares::{Busy, Permit, Shares};
use std::{
    io,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{ChildStderr, ChildStdout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// One-shot helper sandboxes (clone, diff, export) at once in one service: each is bound by disk and CPU. Further ones wait for their turn.
/// Beyond it: `helpers_busy`.
const SANDBOX_HELPERS_MAX: u32 = 10;
/// Quick helpers (snapshots and the like) at once: a turn waits for them, and each takes some 50 ms. Beyond it: `helpers_busy`.
const SANDBOX_QUICK_HELPERS_MAX: u32 = 10;
/// Helpers that transfer objects of Git LFS at once: most of their time they wait, for a server or for the objects of another session. Beyond it:
/// `helpers_busy`.
const SANDBOX_TRANSFER_HELPERS_MAX: u32 = 16;
/// Helpers of each kind of one tenant, while others need some too: two tenants together leave room for a third. Beyond it: `helpers_busy`.
const SANDBOX_HELPERS_TENANT_MAX: usize = 3;
/// Helpers of one tenant that transfer objects of Git LFS: two tenants together leave room for a third. Beyond it: `helpers_busy`.
const SANDBOX_TRANSFER_HELPERS_TENANT_MAX: usize = 6;
/// How many times as many helpers a tenant has while no other one needs any. Then two others still find room: what the first one has by then, and the three of a
/// second one, leave one place.
const SANDBOX_HELPERS_ALONE_FACTOR: u32 = 2;
/// Time without a helper of another tenant after which a tenant is alone.
const ALONE_AFTER: Duration = Duration::from_secs(10);
/// Longest wait of a quick helper for its turn. A helper that takes longer than some seconds is stuck or hostile; the caller may try again.
const QUICK_WAIT: Duration = Duration::from_secs(30);
/// Longest wait of a transfer for its turn: as long as one may take. A refusal would lose the clone before it.
const TRANSFER_WAIT: Duration = Duration::from_secs(600);
/// Helpers that ask a server of git at once: they mostly wait for it. Beyond it, the repository is cloned.
const SANDBOX_QUESTIONS_MAX: u32 = 16;
/// The same of one tenant. Beyond it, the repository is cloned.
const SANDBOX_QUESTIONS_TENANT_MAX: usize = 6;
/// Longest wait of a question for its turn. A clone answers it too.
const QUESTION_WAIT: Duration = Duration::from_secs(5);
/// Bytes of a helper's error output that are kept, to find the cause of a failure. The rest is dropped.
const HELPER_ERROR_BYTES_MAX: usize = 64 * 1024;

/// Runs helpers, a few at a time, and fewer of one tenant.
#[derive(Debug)]
pub struct Helpers {
    launcher: Launcher,
    slow: Shares<TenantId>,
    slow_wait: Duration,
    quick: Shares<TenantId>,
    transfer: Shares<TenantId>,
    question: Shares<TenantId>,
}

/// The queue of a helper while many run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Clones and exports: they may take minutes.
    Slow,
    /// The helpers of each step of a turn, which must not wait for clones.
    Quick,
    /// Transfers of objects of Git LFS, which may wait for another session. Clones must not wait for them.
    Transfer,
    /// Questions to a server of git. The first model call of a session waits for them.
    Question,
}

#[derive(Debug)]
pub struct Task {
    /// The tenant for which it works.
    pub tenant: TenantId,
    /// For bash.
    pub script: &'static str,
    /// `$1`, `$2`, …
    pub arguments: Vec<String>,
    pub uid: u32,
    /// What it sees; /workspace among it.
    pub mounts: Vec<Mount>,
    /// The network that it can reach.
    pub network: Network,
    /// It is killed after this.
    pub time_limit: Duration,
    /// The queue in which it waits.
    pub queue: Queue,
}

/// The result of a helper.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; 137 when it was killed.
    pub code: i32,
    /// What it printed, up to the limit.
    pub stdout: Vec<u8>,
    /// The beginning of its error output.
    pub stderr: String,
}

/// A helper whose output is read while it runs. Dropping it kills it.
#[derive(Debug)]
pub struct HelperRun {
    pub stdout: ChildStdout,
    process: SandboxProcess,
    stderr: AbortOnDropHandle<String>,
    deadline: Instant,
}

impl Task {
    /// A task of `tenant` without network, script, arguments and mounts, to be filled in.
    pub fn new(tenant: TenantId, uid: u32, time_limit: Duration) -> Self {
        Self {
            tenant,
            script: "",
            arguments: Vec::new(),
            uid,
            mounts: Vec::new(),
            network: Network::None,
            time_limit,
            queue: Queue::Slow,
        }
    }
}

impl Helpers {
    /// Helpers of this launcher. A slow one waits for its turn at most for `slow_wait`.
    pub fn new(launcher: Launcher, slow_wait: Duration) -> Self {
        let shares =
            |all, each| Shares::new(all, each).with_more_alone(SANDBOX_HELPERS_ALONE_FACTOR, ALONE_AFTER);
        let slow = shares(SANDBOX_HELPERS_MAX, SANDBOX_HELPERS_TENANT_MAX);
        let quick = shares(SANDBOX_QUICK_HELPERS_MAX, SANDBOX_HELPERS_TENANT_MAX);
        let transfer = Shares::new(SANDBOX_TRANSFER_HELPERS_MAX, SANDBOX_TRANSFER_HELPERS_TENANT_MAX);
        let question = Shares::new(SANDBOX_QUESTIONS_MAX, SANDBOX_QUESTIONS_TENANT_MAX);
        Self { launcher, slow, slow_wait, quick, transfer, question }
    }

    /// Runs a task and gives the first `stdout_max` bytes that it prints; the helper waits for more to be read and is
    /// killed when it prints more.
    ///
    /// # Errors
    /// `helpers_busy` when its turn did not come, `sandbox_unavailable` when it took too long.
    ///
    /// Dropped midway: it is killed.
    pub async fn run(&self, task: Task, stdout_max: usize) -> Result<Output, Error> {
        self.run_until(task, stdout_max, &CancellationToken::new()).await
    }

    /// The same, until the caller has `left`. Whatever the result, the helper is gone when this returns, so that another one may work on the
    /// same files.
    ///
    /// # Errors
    /// Those of [`Helpers::run`], `caller_left`.
    pub async fn run_until(
        &self,
        task: Task,
        stdout_max: usize,
        left: &CancellationToken,
    ) -> Result<Output, Error> {
        let turn = self.wait_for_turn(task.tenant, task.queue, left).await?;
        self.run_in_turn(turn, task, stdout_max, left).await
    }

    /// Waits for the turn of a helper, or until the caller has `left`. A caller does so before it looks for what the helper reads, if that may change during the wait.
    ///
    /// # Errors
    /// `helpers_busy` when the turn did not come, `caller_left`.
    ///
    /// Cancel-safe.
    pub async fn wait_for_turn(
        &self,
        tenant: TenantId,
        queue: Queue,
        left: &CancellationToken,
    ) -> Result<Permit, Error> {
        left.run_until_cancelled(self.turn(tenant, queue)).await.ok_or_else(caller_left)?
    }

    /// The same as [`Helpers::run_until`], in a turn that the caller has waited for.
    ///
    /// # Errors
    /// `sandbox_unavailable` when it took too long, `caller_left`.
    pub async fn run_in_turn(
        &self,
        turn: Permit,
        task: Task,
        stdout_max: usize,
        left: &CancellationToken,
    ) -> Result<Output, Error> {
        let mut running = self.launch(task, turn).await?;
        let mut stdout = Vec::new();
        let read = left.run_until_cancelled(running.read_to_end(&mut stdout, stdout_max)).await;
        if let Err(error) = read.unwrap_or_else(|| Err(caller_left())) {
            running.process.kill();
            running.process.wait().await;
            return Err(error);
        }
        let (code, stderr) = running.finish().await;
        Ok(Output { code, stdout, stderr })
    }

    /// Starts a task whose output the caller reads; the caller then calls [`HelperRun::finish`].
    ///
    /// # Errors
    /// `helpers_busy` when its turn did not come.
    ///
    /// Dropped midway: it is killed.
    pub async fn start(&self, task: Task) -> Result<HelperRun, Error> {
        let permit = self.turn(task.tenant, task.queue).await?;
        self.launch(task, permit).await
    }

    async fn turn(&self, tenant: TenantId, queue: Queue) -> Result<Permit, Error> {
        let (shares, wait) = match queue {
            Queue::Slow => (&self.slow, self.slow_wait),
            Queue::Quick => (&self.quick, QUICK_WAIT),
            Queue::Transfer => (&self.transfer, TRANSFER_WAIT),
            Queue::Question => (&self.question, QUESTION_WAIT),
        };
        shares.acquire(tenant, wait).await.map_err(busy)
    }

    async fn launch(&self, task: Task, permit: Permit) -> Result<HelperRun, Error> {
        let deadline = Instant::now() + task.time_limit;
        let start = LaunchSpec {
            program: Program::Script(task.script, task.arguments),
            tenant: task.tenant,
            uid: task.uid,
            // Helpers are ours: they run on the machine's /usr, whatever image the session has.
            root: Root::Host,
            mounts: task.mounts,
            network: task.network,
            options: SandboxOptions::NONE,
            permit: Some(permit),
        };
        let mut process = self.launcher.launch(start).await.map_err(Error::io("start a helper"))?;
        let pipes = process.stdout.take().zip(process.stderr.take());
        let (stdout, stderr) =
            pipes.ok_or_else(|| io::Error::other("no pipes")).map_err(Error::io("start a helper"))?;
        let stderr = tasks::spawn_owned("helper errors", read_errors(stderr));
        Ok(HelperRun { stdout, process, stderr, deadline })
    }
}

impl HelperRun {
    /// Reads the output until its end, `limit` bytes, or the time limit, whichever is first.
    ///
    /// # Errors
    /// `sandbox_unavailable` at the time limit.
    pub async fn read_to_end(&mut self, into: &mut Vec<u8>, limit: usize) -> Result<(), Error> {
        let mut limited = (&mut self.stdout).take(limit as u64);
        let read = tokio::time::timeout_at(self.deadline.into(), limited.read_to_end(into)).await;
        read.map_err(|_| too_slow())?.map(drop).map_err(Error::io("read from a helper"))
    }

    /// Reads the next piece; `None` at the end.
    ///
    /// # Errors
    /// `sandbox_unavailable` at the time limit.
    pub async fn read_piece(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut piece = Vec::with_capacity(bytes_max);
        self.read_to_end(&mut piece, bytes_max).await?;
        Ok((!piece.is_empty()).then_some(piece))
    }

    /// Reads the first line as soon as it is there, and what comes with it, at most `bytes_max` bytes; `None` at the end. A longer line is cut.
    ///
    /// # Errors
    /// `sandbox_unavailable` at the time limit.
    pub async fn read_line(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut limited = (&mut self.stdout).take(bytes_max as u64);
        let mut bytes = Vec::with_capacity(bytes_max);
        let read = async {
            while !bytes.contains(&b'\n') && limited.read_buf(&mut bytes).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        let read = tokio::time::timeout_at(self.deadline.into(), read).await;
        read.map_err(|_| too_slow())?.map_err(Error::io("read from a helper"))?;
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// Waits until the helper ends, and gives its exit code and the start of its error output. Kills a helper that still
    /// prints.
    pub async fn finish(mut self) -> (i32, String) {
        drop(self.stdout);
        let ended = tokio::time::timeout_at(self.deadline.into(), self.process.wait()).await;
        let end = match ended {
            Ok(end) => end,
            Err(_) => {
                self.process.kill();
                self.process.wait().await
            }
        };
        let stderr = self.stderr.await.unwrap_or_default();
        (end.code.unwrap_or(137), stderr)
    }
}

fn busy(reason: Busy) -> Error {
    let text = match reason {
        Busy::Own => {
            "other clones, diffs and snapshots of the tenant are running on this machine; try again later"
        }
        Busy::All => "too many clones, diffs and snapshots are running on this machine; try again later",
    };
    Error::refused(ErrorCode::HelpersBusy, text)
}

fn caller_left() -> Error {
    Error::refused(ErrorCode::CallerLeft, "the caller left before the helper had ended")
}

fn too_slow() -> Error {
    Error::refused(
        ErrorCode::SandboxUnavailable,
        "the operation on the repository took too long and was stopped",
    )
}

/// Keeps the beginning and discards the rest, so that the helper never blocks.
async fn read_errors(mut stderr: ChildStderr) -> String {
    let mut bytes = Vec::new();
    drop((&mut stderr).take(HELPER_ERROR_BYTES_MAX as u64).read_to_end(&mut bytes).await);
    drain(&mut stderr).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn drain(from: &mut (impl AsyncRead + Unpin)) {
    drop(tokio::io::copy(from, &mut tokio::io::sink()).await);
}

/// The last line of git's output, for a person. Paths and URLs in it are the caller's own.
fn last_line(stderr: &str) -> String {
    let line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("git printed no error");
    line.chars().take(300).collect()
}

/// The error of a helper that exited with a known code.
pub(crate) fn refused(code: ErrorCode, text: &str, stderr: &str) -> Error {
    Error::refused(code, format!("{text}: {}", last_line(stderr)))
}

#[cfg(test)]
mod tests;
