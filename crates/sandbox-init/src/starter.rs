//! The thread that starts commands.

mod fork;
mod walls;

use super::{
    paths::{Access, Roots},
    pump::{Job, Pump},
    service::{Failure, Service},
    session::SessionPriority,
    terminal, thread,
};
use fork::{Files, Plan};
use nix::fcntl::OFlag;
use sandbox_wire::v1::{Exec, FailureCode};
use std::{
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

/// Hands commands to the thread. The service limits their number.
#[derive(Debug, Clone)]
pub(super) struct Starter(Sender<ExecRequest>);

/// A command that the service asks for.
#[derive(Debug)]
struct ExecRequest {
    /// The id of the request, and the number of the exec.
    id: u64,
    exec: Exec,
}

impl Starter {
    /// Starts a command and reports the result to the service.
    pub(super) fn start(&self, id: u64, exec: Exec) {
        // The thread lives as long as the process.
        drop(self.0.send(ExecRequest { id, exec }));
    }
}

/// The shells that run commands and scripts; the first one that exists.
pub(super) fn shells() -> [&'static CStr; 4] {
    fork::SHELLS
}

/// Starts the thread, and returns what Landlock enforces in it.
pub(super) fn spawn(
    service: Service,
    pump: Pump,
    priority: SessionPriority,
    may_mount: bool,
) -> io::Result<(Starter, String)> {
    let roots = Roots::open()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (sender, waiting) = channel();
    let (landlock, raised) = channel();
    thread::spawn("starter", move || {
        drop(landlock.send(walls::raise(may_mount)));
        run(&service, &Means { pump, roots, null, priority }, &waiting);
    })?;
    let landlock = raised.recv().map_err(|_| io::Error::other("the starter ended"))?;
    Ok((Starter(sender), landlock))
}

struct Means {
    pump: Pump,
    roots: Roots,
    /// The input of commands.
    null: File,
    priority: SessionPriority,
}

fn run(service: &Service, means: &Means, waiting: &Receiver<ExecRequest>) {
    while let Ok(ExecRequest { id, exec }) = waiting.recv() {
        if let Err(failure) = start(id, &exec, means) {
            service.fail(id, failure);
        }
    }
}

fn start(id: u64, exec: &Exec, means: &Means) -> Result<(), Failure> {
    let Means { pump, roots, null, priority } = means;
    let broken = |error: io::Error| Failure::new(FailureCode::Internal, format!("start a command: {error}"));
    let path = if exec.directory.is_empty() { "/workspace" } else { exec.directory.as_str() };
    let directory =
        roots.find(path, Access::Write)?.into_directory().map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTDIR) => {
                Failure::new(FailureCode::FileNotFound, format!("{path} is not a directory"))
            }
            _ => Failure::new(FailureCode::FileNotPermitted, format!("{path} cannot be entered: {error}")),
        })?;
    let invalid =
        |_| Failure::new(FailureCode::ArgumentInvalid, "the command or its environment has a zero byte");
    let plan = Plan::new(&exec.command, &exec.arguments, &exec.env, *priority).map_err(invalid)?;
    let (output, output_end) = match &exec.terminal {
        Some(size) => terminal::open(size),
        None => pipe(),
    }
    .map_err(broken)?;
    let is_terminal = exec.terminal.is_some();
    let (status, status_end) = pipe().map_err(broken)?;
    let files = Files {
        directory: directory.as_fd(),
        input: if is_terminal { output_end.as_fd() } else { null.as_fd() },
        output: output_end.as_fd(),
        status: status_end.as_fd(),
        is_terminal,
    };
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) => {
            let text = "the sandbox has reached its process limit; end some processes";
            Failure::new(FailureCode::ProcessLimit, text)
        }
        _ => broken(error),
    };
    let deadline = Instant::now() + Duration::from_millis(exec.timeout_ms);
    pump.watch(|| {
        let supervisor = fork::start(&plan, files).map_err(failed)?;
        let job = Job::new(id, supervisor, [output, status], exec.output_bytes_max, deadline);
        Ok(if is_terminal { job.at_terminal() } else { job })
    })
}

/// A pipe whose read end does not block. Commands write to the other end, which must block.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}
