//! Child processes that die with this one. The parent-death signal comes when the *thread* that spawned a child ends, so
//! all children are spawned by one thread that lives as long as the process.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
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

/// Requests that wait for the spawning thread; each takes about a millisecond.
const QUEUE_MAX: usize = 64;

struct Request {
    command: Command,
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// Spawns `command` from the thread that outlives all others. The child is killed when its handle is dropped.
///
/// # Errors
/// Those of spawning.
pub async fn spawn(mut command: Command) -> io::Result<Child> {
    command.kill_on_drop(true);
    let (reply, answer) = oneshot::channel();
    let request = Request { command, runtime: Handle::current(), reply };
    spawner()?.send(request).map_err(|_| io::Error::other("the spawning thread is gone"))?;
    answer.await.map_err(|_| io::Error::other("the spawning thread is gone"))?
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
            // The asker may have given up; its child then ends with the dropped handle.
            drop(request.reply.send(request.command.spawn()));
        }
    })?;
    *spawner = Some(sender.clone());
    Ok(sender)
}

/// Sends `signal` and waits at most `within` for the child's end; then kills it.
///
/// # Errors
/// Those of waiting.
pub async fn stop(child: &mut Child, signal: Signal, within: Duration) -> io::Result<ExitStatus> {
    if let Some(pid) = pid_of(child) {
        // An error says that the child is gone, which the wait sees.
        let _ = kill(pid, signal);
    }
    // Waiting is cancel-safe: the status stays for the next wait.
    if let Ok(status) = tokio::time::timeout(within, child.wait()).await {
        return status;
    }
    child.start_kill()?;
    child.wait().await
}

fn pid_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw)
}

/// Whether process `pid` lives and was started with `dir` among its arguments. The system may have given a bare number to
/// another process since.
pub(crate) fn exists_with(pid: u32, dir: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&*dir.to_string_lossy())
}
