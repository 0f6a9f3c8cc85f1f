//! The end of an exec that a caller asks for.

use super::record::{BACKSTOP, Exec, ExecProgress};
use crate::sandbox::Sandbox;
use domain::limits;
use std::time::Duration;

/// Asks for the end of an exec. An exec that is about to start is ended right after its start.
pub async fn ask_to_end(exec: &Exec, sandbox: Option<&Sandbox>) {
    exec.progress.send_modify(|progress| progress.is_killed = true);
    let number = exec.progress.borrow().number;
    if let Some((number, sandbox)) = number.zip(sandbox) {
        sandbox.kill(number).await;
    }
}

/// Returns when a caller has killed the exec. Cancel-safe.
pub async fn killed(exec: &Exec) {
    // The exec holds the other end.
    drop(exec.progress.subscribe().wait_for(|progress| progress.is_killed).await);
}

/// Waits until an exec that is being ended is over. Returns whether it ever ran.
pub async fn wait_for_end(exec: &Exec) -> bool {
    let mut progress = exec.progress.subscribe();
    let grace = Duration::from_millis(limits::EXEC_KILL_GRACE_MS) + BACKSTOP;
    let is_over = |progress: &ExecProgress| progress.end.is_some() || progress.is_cancelled;
    // A tree that does not die is ended with its sandbox by the recorder; the caller need not wait for that.
    drop(tokio::time::timeout(grace, progress.wait_for(is_over)).await);
    !exec.progress.borrow().is_cancelled
}

/// Ends an exec that runs.
pub async fn run(exec: &Exec, sandbox: &Sandbox) {
    ask_to_end(exec, Some(sandbox)).await;
    wait_for_end(exec).await;
}
