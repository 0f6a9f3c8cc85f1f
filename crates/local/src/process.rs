//! Child processes that die with this one. The system sends the parent-death signal when the *thread* that spawned a
//! child ends. Therefore one thread that lives as long as the process spawns all children.
//!
//! Each child has a session of its own. Many kernels share the processors between sessions, so a busy child leaves the others their part.
//! And Ctrl-C in the terminal reaches only this process, which stops its children in order.

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, setsid},
};
use std::{
    fs, io,
    path::Path,
    process::ExitStatus,
    sync::{Mutex, OnceLock, PoisonError, mpsc},
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

/// Requests that wait for the spawning thread; each takes about a millisecond. Further ones wait for a place in the queue.
const QUEUE_MAX: usize = 64;

struct Request {
    command: Command,
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// Spawns `command` in a new session, from the thread that outlives all others. Dropping the handle kills the child.
///
/// # Errors
/// The error of spawning.
#[allow(unsafe_code)] // `pre_exec` is unsafe because of what its closure may not do.
pub async fn spawn(mut command: Command) -> io::Result<Child> {
    command.kill_on_drop(true);
    // SAFETY: the closure makes one system call; it neither allocates nor locks.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
    let (reply, answer) = oneshot::channel();
    let request = Request { command, runtime: Handle::current(), reply };
    spawner()?.send(request).map_err(|_| io::Error::other("the spawning thread has ended"))?;
    answer.await.map_err(|_| io::Error::other("the spawning thread has ended"))?
}

fn spawner() -> io::Result<mpsc::SyncSender<Request>> {
    static SPAWNER: OnceLock<Mutex<Option<mpsc::SyncSender<Request>>>> = OnceLock::new();
    let mut spawner = SPAWNER.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = &*spawner {
        return Ok(sender.clone());
    }
    let (sender, requests) = mpsc::sync_channel::<Request>(QUEUE_MAX);
    std::thread::Builder::new().name("spawner".to_owned()).spawn(move || {
        for mut request in requests {
            let _runtime = request.runtime.enter();
            // The caller may have given up. Dropping the handle then ends its child.
            drop(request.reply.send(request.command.spawn()));
        }
    })?;
    *spawner = Some(sender.clone());
    Ok(sender)
}

/// Sends `signal`, waits at most `within` for the child to end, and then kills it.
///
/// # Errors
/// The error of waiting.
pub async fn stop(child: &mut Child, signal: Signal, within: Duration) -> io::Result<ExitStatus> {
    if let Some(pid) = pid_of(child) {
        // An error means that the child is gone, which the wait notices.
        let _ = kill(pid, signal);
    }
    // Waiting is cancel-safe: the status stays available for the next wait.
    if let Ok(status) = tokio::time::timeout(within, child.wait()).await {
        return status;
    }
    child.start_kill()?;
    child.wait().await
}

fn pid_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw)
}

/// Whether process `pid` lives and has `dir` among its arguments. The pid alone proves nothing, because the system may
/// have reused it.
pub(crate) fn exists_with(pid: u32, dir: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&*dir.to_string_lossy())
}
