//! `flotilla up --detach`: the stack in a process of its own, which outlives the terminal.

use super::report;
use crate::{
    exit::Exit,
    stack::running,
    terminal::{output::Output, progress::Amount},
};
use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{env, fs, os::unix::fs::OpenOptionsExt as _, path::Path, process::Stdio, time::Duration};
use tokio::process::{Child, Command};

/// Longest start of a whole stack: each of its services has a minute, and some wait for others.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// Time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Starts the stack, waits until it is ready, and says so.
pub(super) async fn start(output: &Output, data: &Path) -> Result<Exit> {
    let log = data.join("logs/up.log");
    fs::create_dir_all(data.join("logs")).context("make the log directory")?;
    let file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
    let file = file.with_context(|| format!("open {}", log.display()))?;
    let mut command = Command::new(env::current_exe().context("find this program")?);
    // `--background` overrides `--detach`.
    command.args(env::args_os().skip(1)).arg("--background").stdin(Stdio::null());
    command.stdout(file.try_clone().context("open the log twice")?).stderr(file);
    let mut child = command.spawn().context("start the stack")?;
    let starting = output.progress("starting the stack", Amount::Unknown);
    let ready = tokio::select! {
        ready = tokio::time::timeout(READY_WITHIN, wait(&mut child, data)) => ready,
        _ = tokio::signal::ctrl_c() => {
            stop(&mut child).await;
            return Ok(Exit::Interrupted);
        }
    };
    drop(starting);
    let tail = || format!("the end of {}:\n{}", log.display(), local::log::tail(&log));
    let stack = match ready {
        Ok(Ok(stack)) => stack,
        Ok(Err(error)) => bail!("{error:#}; {}", tail()),
        Err(_) => {
            stop(&mut child).await;
            bail!("the stack was not ready within {} s; {}", READY_WITHIN.as_secs(), tail())
        }
    };
    let ending = format!("`flotilla down --data {}` stops everything.", data.display());
    report::print(output, &stack, None, &ending)?;
    Ok(Exit::Done)
}

/// Waits until the stack of the child is ready.
async fn wait(child: &mut Child, data: &Path) -> Result<running::Stack> {
    loop {
        if let Some(status) = child.try_wait().context("look at the stack")? {
            bail!("the stack ended ({status})");
        }
        let stack = running::read(data)?;
        if let Some(stack) = stack.filter(|stack| stack.pids.get("up").copied() == child.id()) {
            return Ok(stack);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Asks the stack to end, and waits until it has: it ends its own processes.
async fn stop(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    drop(child.wait().await);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crate::arguments::{Command, parse};

    #[test]
    fn the_process_in_the_background_does_not_detach_again() {
        for flag in ["-d", "--detach"] {
            let words = ["flotilla", "up", flag, "--tenant", "a", "--background"];
            let cli = parse(words.into_iter().map(Into::into)).unwrap();
            let Command::Up(arguments) = cli.command else { panic!("up") };
            assert!(arguments.background && !arguments.detach, "{flag}");
        }
    }
}
