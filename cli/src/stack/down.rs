//! `flotilla down`: stops the stack of a data directory, and no other process.

use crate::{
    exit::Exit,
    stack::{
        running::LOCK_FILE,
        target::{self, Connection},
    },
    terminal::{output::Output, progress::Amount},
};
use anyhow::{Context as _, Result, bail};
use local::lock::Lock;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// How long the stack has to end: it gives its own processes 30 s.
const STOPS_WITHIN: Duration = Duration::from_secs(40);
/// Time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks the stack to end, and waits until it has.
pub(crate) async fn run(connection: &Connection, output: &Output) -> Result<Exit> {
    let data = target::data_directory(connection)?;
    let lock = data.join(LOCK_FILE);
    let Some(pid) = holder(&lock)? else {
        output.result(&format!("no stack runs in {}", data.display()), &to_json(&data, false))?;
        return Ok(Exit::Done);
    };
    stop(pid, &lock).with_context(|| format!("stop the stack in {}, process {pid}", data.display()))?;
    let waiting = output.progress("stopping the stack", Amount::Unknown);
    let begun = Instant::now();
    while holder(&lock)? == Some(pid) {
        if begun.elapsed() > STOPS_WITHIN {
            bail!(
                "the stack in {} has not ended after {} s; its process is {pid}",
                data.display(),
                STOPS_WITHIN.as_secs()
            );
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    drop(waiting);
    output.result(&format!("the stack in {} has ended", data.display()), &to_json(&data, true))?;
    Ok(Exit::Done)
}

pub(crate) fn to_json(data: &Path, was_running: bool) -> Value {
    json!({"type": "stack_stop", "data": data, "was_running": was_running})
}

/// The process that holds the lock of a data directory.
fn holder(lock: &Path) -> Result<Option<i32>> {
    let pid = Lock::find_holder(lock).context("look at the lock of the data directory")?;
    pid.map(|pid| pid.parse::<i32>().context("read the process id of the stack")).transpose()
}

/// Sends SIGTERM to the process, if it is the one that has the lock open: a stack that is just starting has not written its id yet.
fn stop(pid: i32, lock: &Path) -> Result<()> {
    let process = Pid::from_raw(pid).context("the process id is not valid")?;
    let process = pidfd_open(process, PidfdFlags::empty()).context("find the process")?;
    let lock = lock.canonicalize().context("find the lock")?;
    let files = fs::read_dir(format!("/proc/{pid}/fd")).context("look at the process")?;
    let has_lock = files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == lock));
    if !has_lock {
        bail!("another process has this id now; try again");
    }
    pidfd_send_signal(process, Signal::TERM).context("send SIGTERM")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that holds a lock, as `flotilla up` does, and ends with SIGTERM.
    fn stack(data: &Path) -> Child {
        let script = "exec 9<>\"$0\"; flock 9; echo $$ >&9; echo; exec sleep 600";
        let mut child = Command::new("bash");
        child.args(["-c", script]).arg(data.join(LOCK_FILE)).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        child
    }

    #[tokio::test]
    async fn the_stack_of_the_directory_ends_and_no_other_process() {
        let (data, output) = (tempfile::tempdir().unwrap(), Output::kept(false));
        let connection =
            Connection { data: Some(data.path().to_owned()), given: vec!["data"], ..Connection::default() };
        run(&connection, &output).await.unwrap();
        assert!(output.take().starts_with("no stack runs in"));
        let mut child = stack(data.path());
        // Ends the process for its parent too.
        let reaper = std::thread::spawn(move || child.wait().unwrap());
        run(&connection, &output).await.unwrap();
        assert!(output.take().ends_with("has ended\n"));
        assert!(!reaper.join().unwrap().success());

        // The file of a stack that ended long ago names a process that has nothing to do with it.
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        let refused = stop(i32::try_from(other.id()).unwrap(), &data.path().join(LOCK_FILE)).unwrap_err();
        assert!(refused.to_string().contains("another process"), "{refused:#}");
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
