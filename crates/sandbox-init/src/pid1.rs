//! PID 1: prepares the process, starts the threads, and reads requests until the service closes the socket.

use super::{
    door::{forward, lfs::fill::LfsFill},
    files::{self, Operation},
    memory,
    pump::{self, TerminalRequest},
    script::Script,
    service::{Failure, Service},
    session::SessionPriority,
    starter,
    stop::Operations,
};
use nix::sys::{
    resource::{Resource, setrlimit},
    signal::{SigSet, SigmaskHow, Signal},
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use sandbox_wire::{
    frame,
    v1::{FailureCode, Hello, Request, reply, request},
};
use std::{
    io::{self, Write as _},
    os::{
        fd::{FromRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
    sync::mpsc,
};

/// File operations that wait inside one sandbox; four run at the same time. Beyond it: `sandbox_busy`.
const FILE_OPERATIONS_QUEUE_MAX: usize = 64;

/// The argument of a program that only carries connections to the door.
const FORWARD: &str = "forward";
/// The first argument of a program that fills files of Git LFS.
const LFS: &str = "lfs";
/// The first argument of a program that reads the guidance of files.
const GUIDANCE: &str = "guidance";
/// The first argument of a program that reads lines of files.
const LINES: &str = "lines";
/// The first argument of a program that runs a script with secrets.
const SCRIPT: &str = "script";

/// The arguments from the service.
#[derive(Debug, Clone)]
struct Settings {
    socket: RawFd,
    processes: u64,
    /// 0: a control group limits it.
    memory_bytes: u64,
    /// The nice value of each session of processes. 0: the kernel does not share the processors between sessions.
    session_nice: u64,
    /// Whether programs may mount in namespaces that they make.
    may_mount: bool,
    /// The user that it becomes in a user namespace of its own; 0: it stays who it is.
    user: u32,
    /// The lists of tasks of the control groups that it enters.
    groups: Vec<RawFd>,
}

impl Settings {
    /// Only there it becomes another user.
    fn is_in_gvisor(&self) -> bool {
        self.user != 0
    }
}

/// Runs the program until the service closes the socket, and returns its exit code.
pub(super) fn run() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let result = match arguments.next() {
        Some(word) if word == FORWARD => forward::serve_script(),
        Some(word) if word == LFS => match LfsFill::from_arguments(arguments) {
            Some(fill) => return fill.run(),
            None => Err(wrong_starter()),
        },
        Some(word) if word == GUIDANCE => files::print_guidance(arguments),
        Some(word) if word == LINES => files::print_lines(arguments),
        Some(word) if word == SCRIPT => match Script::from_arguments(arguments) {
            Some(script) => return script.run(),
            None => Err(wrong_starter()),
        },
        _ => settings().and_then(|settings| {
            enter(&settings.groups)?;
            become_user(settings.user)?;
            serve(&settings)
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The service reads this pipe until it gets the first frame.
            drop(writeln!(io::stderr(), "flotilla-init: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn wrong_starter() -> io::Error {
    io::Error::other("only the sandbox service starts this program")
}

fn settings() -> io::Result<Settings> {
    if std::process::id() != 1 {
        return Err(wrong_starter());
    }
    let numbers: Vec<u64> = std::env::args().skip(1).map_while(|argument| argument.parse().ok()).collect();
    let [socket, processes, memory_bytes, session_nice, may_mount, user, ref groups @ ..] = numbers[..]
    else {
        return Err(wrong_starter());
    };
    let descriptor = |number: u64| RawFd::try_from(number).map_err(|_| wrong_starter());
    let groups = groups.iter().map(|group| descriptor(*group)).collect::<io::Result<_>>()?;
    let (socket, may_mount) = (descriptor(socket)?, may_mount != 0);
    let user = u32::try_from(user).map_err(|_| wrong_starter())?;
    Ok(Settings { socket, processes, memory_bytes, session_nice, may_mount, user, groups })
}

/// Enters control groups before there is another thread: a list of tasks takes one thread at a time.
fn enter(groups: &[RawFd]) -> io::Result<()> {
    groups.iter().try_for_each(|group| std::fs::File::from(take(*group)).write_all(b"0"))
}

/// Becomes another user before there is another thread. gVisor starts programs as its root, which owns the files of the session there; in a
/// namespace in which they belong to this user, the init and all programs are this user and have no rights.
fn become_user(user: u32) -> io::Result<()> {
    if user == 0 {
        return Ok(());
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER)?;
    let mapping = format!("{user} 0 1");
    for file in ["uid_map", "gid_map"] {
        // Neither made nor cut: gVisor refuses that.
        let mut file = std::fs::File::options().write(true).open(format!("/proc/self/{file}"))?;
        file.write_all(mapping.as_bytes())?;
    }
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, none)?)
}

fn serve(settings: &Settings) -> io::Result<()> {
    let priority = SessionPriority::new(settings.session_nice);
    // While the file belongs to this user: the file operations yield like commands.
    priority.apply();
    // Commands run as the same user, but must not read the memory or the descriptors of this process.
    nix::sys::prctl::set_dumpable(false)?;
    // The kernel counts the processes of this user in this user namespace only, so the limit also holds where sandboxes
    // share a user.
    setrlimit(Resource::RLIMIT_NPROC, settings.processes, settings.processes)?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    // Block it before the first thread, so that all threads inherit it: only the pump's signalfd receives it.
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&children), None)?;

    let mut requests = UnixStream::from(take(settings.socket));
    nix::fcntl::fcntl(&requests, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let service = Service::new(requests.try_clone()?);

    let pump = pump::spawn(service.clone(), &children)?;
    if settings.memory_bytes > 0 {
        memory::spawn(pump.clone(), settings.memory_bytes, settings.is_in_gvisor())?;
    }
    forward::spawn()?;
    let (starter, landlock) = starter::spawn(service.clone(), pump.clone(), priority, settings.may_mount)?;
    let (operations, waiting) = mpsc::sync_channel(FILE_OPERATIONS_QUEUE_MAX);
    files::spawn(&service, waiting)?;
    let stops = Operations::default();

    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    // The service waits until this pipe closes, so commands must not inherit it.
    nix::unistd::dup2_stderr(&null)?;
    service.send(0, reply::Body::Hello(Hello { landlock }));

    while let Some(request) = frame::read::<Request>(&mut requests)? {
        let id = request.id;
        match request.body {
            Some(request::Body::Exec(exec)) => starter.start(id, exec),
            Some(request::Body::Kill(_)) => {
                if !stops.stop(id) {
                    pump.kill(id);
                }
            }
            Some(request::Body::EndAll(all)) => pump.end_all(all.end()),
            Some(request::Body::Keystrokes(keys)) => {
                let (exec, body) = (keys.exec, request::Body::Keystrokes(keys));
                pump.terminal(TerminalRequest { id, exec, body });
            }
            Some(request::Body::Resize(size)) => {
                let (exec, body) = (size.exec, request::Body::Resize(size));
                pump.terminal(TerminalRequest { id, exec, body });
            }
            Some(operation) => {
                if operations.try_send(Operation { id, body: operation, stop: stops.enter(id) }).is_err() {
                    service.fail(
                        id,
                        Failure::new(
                            FailureCode::SandboxBusy,
                            "too many file operations are waiting; try again",
                        ),
                    );
                }
            }
            None => service.fail(id, Failure::new(FailureCode::Internal, "the request is empty")),
        }
    }
    Ok(())
}

#[allow(unsafe_code)] // The service passes the socket by its number.
fn take(fd: RawFd) -> OwnedFd {
    // SAFETY: the service opened this descriptor for the init, and nothing else in this process owns or closes it. If the
    // service passed a wrong number, the first use fails with EBADF.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
