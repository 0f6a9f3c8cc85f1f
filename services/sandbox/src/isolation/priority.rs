//! How everything in sandboxes yields the processors to the services. The weight of a control group is the strongest means, and the only
//! one that is fair between tenants. A nice value works everywhere, but many kernels share the processors between sessions ("autogroup")
//! and compare the nice values of one session only. There, each session gets a nice value of its own.

use super::{
    cgroup::{self, BALANCE_PAUSE, Balancer},
    facts::Facts,
    policy::{Scheduling, User},
};
use crate::{error::blocking_in_loop, user_ids::UserIds};
use chassis::tasks::Tasks;
use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// The nice value of everything in a sandbox, unless tenants share the processors by weight: it gets a tenth of what a process of a service gets
/// when both want all.
pub(crate) const NICE: i32 = 10;
/// The pause between two walks over the sessions. A program gains at most that much by beginning a new session.
const PAUSE: Duration = Duration::from_millis(500);
/// A slow walk makes its pause longer, so that it takes at most a fiftieth of one processor.
const PAUSE_FACTOR: u32 = 50;

/// Makes the calling thread, or the child that has no other, yield to others. It keeps a nice value that yields more.
///
/// # Errors
/// When the system refuses.
pub(crate) fn lower() -> rustix::io::Result<()> {
    if rustix::process::getpriority_process(None)? < NICE {
        rustix::process::setpriority_process(None, NICE)?;
    }
    Ok(())
}

/// Starts the task that keeps the processors shared as `facts` say, if one is needed.
pub(crate) fn watch(facts: &Facts, tasks: &Tasks, shutdown: CancellationToken) {
    match facts.scheduling {
        Scheduling::Tenants => watch_tenants(facts.cgroup.clone(), tasks, shutdown),
        Scheduling::Sessions if facts.user == User::PerSession => {
            watch_sessions(facts.user_ids, tasks, shutdown)
        }
        // Without privilege, only a session itself can change its nice value.
        Scheduling::Sessions | Scheduling::Processes => {}
    }
}

/// Starts the task that sets the weights of the tenants in `groups`.
fn watch_tenants(groups: cgroup::Base, tasks: &Tasks, shutdown: CancellationToken) {
    tasks.spawn_loop("weights of tenants", move || balance(groups.balancer(), shutdown.clone()));
}

async fn balance(mut balancer: Option<Balancer>, shutdown: CancellationToken) {
    let mut last = Instant::now();
    while let Some(mut current) = balancer.take()
        && shutdown.run_until_cancelled(tokio::time::sleep(BALANCE_PAUSE)).await.is_some()
    {
        let elapsed = last.elapsed();
        last = Instant::now();
        let work = move || {
            current.balance(elapsed);
            current
        };
        balancer = blocking_in_loop(work).await;
    }
}

/// Starts the task that lowers every session of the users of sandboxes, where the kernel shares the processors between sessions. A new
/// session begins with the nice value 0, and its processes may set it back to 0.
fn watch_sessions(users: UserIds, tasks: &Tasks, shutdown: CancellationToken) {
    tasks.spawn("sessions of processes", async move {
        loop {
            let started = Instant::now();
            let walk = tokio::task::spawn_blocking(move || lower_sessions(users));
            if let Ok(Err(error)) = walk.await {
                tracing::warn!(%error, "the sessions of sandboxes cannot be lowered; they get as much of the processors as services");
                return;
            }
            let pause = PAUSE.max(started.elapsed() * PAUSE_FACTOR);
            if shutdown.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    });
}

/// Lowers the sessions of all processes of `users`.
///
/// # Errors
/// When the system refuses. A process that ends meanwhile is none.
fn lower_sessions(users: UserIds) -> io::Result<()> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        if is_process && entry.metadata().is_ok_and(|metadata| users.contain(metadata.uid())) {
            lower_session(&entry.path())?;
        }
    }
    Ok(())
}

fn lower_session(process: &Path) -> io::Result<()> {
    let file = process.join("autogroup");
    let Ok(text) = fs::read_to_string(&file) else { return Ok(()) };
    // `/autogroup-123 nice 0`
    let nice = text.split_whitespace().last().and_then(|nice| nice.parse::<i32>().ok());
    if nice.is_none_or(|nice| nice >= NICE) {
        return Ok(());
    }
    match fs::write(&file, NICE.to_string()) {
        // Without CAP_SYS_ADMIN the kernel accepts one change in 100 ms; the next walk makes the others.
        Err(error) if process.exists() && error.kind() != ErrorKind::WouldBlock => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
