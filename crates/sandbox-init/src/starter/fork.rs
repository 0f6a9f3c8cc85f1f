//! The fork of a command. Between fork and exec there are only system calls on values that were made before: other
//! threads may have held any lock when the process was copied.
//!
//! Each command gets a supervisor, a copy of this process that is its "subreaper": every process that the command starts, also
//! with `setsid` and double forks, stays below it, so that the init can find and end the whole tree. The supervisor reports
//! how the command itself ended and exits when its last descendant is gone.
#![allow(unsafe_code)] // fork, execve and what a forked copy may do are system calls without a safe wrapper.

use crate::session::{self, SessionPriority};
use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
    ptr,
};

/// The shells that run commands; the first one that exists. The machine's root has the first; an image may have another.
pub(super) const SHELLS: [&CStr; 4] = [c"/bin/bash", c"/usr/bin/bash", c"/usr/local/bin/bash", c"/bin/sh"];
const OOM_FILE: &CStr = c"/proc/self/oom_score_adj";
/// When memory runs out, the kernel kills commands first and this process last.
const OOM_SCORE: &[u8] = b"1000";
/// The supervisor's only open file in addition to the standard ones.
const STATUS_FD: RawFd = 3;
/// The exit code of a command that could not be started, as a shell reports it.
const NOT_STARTED: i32 = 127;

/// What the forked copy needs, in the form that system calls take.
///
/// Invariant: all lists of pointers end with a null, and every other pointer in them leads to a constant or to a string of
/// `_owned`, which nothing changes.
pub(super) struct Plan {
    _owned: Vec<CString>,
    /// For each of [`SHELLS`], because a program may behave by the name that it is called by.
    arguments: [Vec<*const libc::c_char>; SHELLS.len()],
    environment: Vec<*const libc::c_char>,
    priority: SessionPriority,
}

/// Open files of a command.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    /// The directory in which it starts.
    pub(super) directory: BorrowedFd<'a>,
    pub(super) input: BorrowedFd<'a>,
    /// Its output and error.
    pub(super) output: BorrowedFd<'a>,
    /// Where the supervisor writes the wait status of the command: four bytes.
    pub(super) status: BorrowedFd<'a>,
    /// Whether input and output are a terminal, which the command then has as its own.
    pub(super) is_terminal: bool,
}

impl Plan {
    /// Prepares `bash -c command arguments`.
    ///
    /// # Errors
    /// When a string has a zero byte in it.
    pub(super) fn new(
        command: &str,
        arguments: &[String],
        environment: &[String],
        priority: SessionPriority,
    ) -> io::Result<Self> {
        let mut owned = vec![c"-c".to_owned(), CString::new(command)?];
        let first_variable = owned.len() + arguments.len();
        for text in arguments.iter().chain(environment) {
            owned.push(CString::new(text.as_str())?);
        }
        // The bytes of a CString stay in place when the vector moves.
        let pointers = |part: &[CString]| part.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        let after: Vec<_> = pointers(&owned[..first_variable]);
        let arguments = SHELLS.map(|shell| [&[shell.as_ptr()], after.as_slice()].concat());
        let environment = pointers(&owned[first_variable..]);
        Ok(Self { _owned: owned, arguments, environment, priority })
    }
}

/// Starts the supervisor and the command, and gives the supervisor's process id.
///
/// # Errors
/// Those of fork: usually EAGAIN, the process limit.
pub(super) fn start(plan: &Plan, files: Files<'_>) -> io::Result<i32> {
    // SAFETY: fork has no precondition of its own. The copy has one thread, and `supervise` keeps to what such a copy may
    // do.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: this is the copy, directly after the fork. Its memory is its own, so nothing changes `plan`.
        0 => unsafe { supervise(plan, files) },
        pid => Ok(pid),
    }
}

/// Starts the command as a child, reports its end, and exits when no descendant is left.
///
/// # Safety
/// The caller is a process that was just forked from one with several threads: it has one thread, and any lock may be held
/// for ever. So this function, [`become_command`] and everything that they call make only system calls that are safe in a
/// signal handler. They do not allocate, lock, panic or run a destructor. The caller must not expect to return.
unsafe fn supervise(plan: &Plan, files: Files<'_>) -> ! {
    // SAFETY: all pointers lead to local variables or to constants that outlive the call, and their sizes are those of
    // the types. The descriptors in `files` are open, because the fork copied them.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        let main = libc::fork();
        if main == 0 {
            // This is the second copy; it too has just been forked.
            become_command(plan, files);
        }
        // A command that signals its process group, or every process it may, must not end the supervisor, which holds
        // the tree together.
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2]
        {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::dup2(files.status.as_raw_fd(), STATUS_FD);
        libc::syscall(libc::SYS_close_range, STATUS_FD + 1, libc::c_uint::MAX, 0);
        if main < 0 {
            libc::_exit(1);
        }
        loop {
            let mut status: libc::c_int = 0;
            let pid = libc::waitpid(-1, &raw mut status, 0);
            if pid == main {
                libc::write(STATUS_FD, (&raw const status).cast(), size_of::<libc::c_int>());
                libc::close(STATUS_FD);
            } else if pid < 0 && *libc::__errno_location() == libc::ECHILD {
                libc::_exit(0);
            }
        }
    }
}

/// Becomes the command: takes its files, restores the signals, and executes the shell.
///
/// # Safety
/// As for [`supervise`]: the caller is a process that was just forked.
unsafe fn become_command(plan: &Plan, files: Files<'_>) -> ! {
    // SAFETY: all strings end with a zero byte, and the lists of `plan` end with a null (see its invariant); all of them
    // live until execve has replaced this process. `none` is plain bytes for which zero is a valid value, and sigemptyset
    // fills it before sigprocmask reads it. The descriptors in `files` are open, because the forks copied them.
    unsafe {
        libc::setsid();
        libc::dup2(files.input.as_raw_fd(), 0);
        libc::dup2(files.output.as_raw_fd(), 1);
        libc::dup2(files.output.as_raw_fd(), 2);
        if files.is_terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
            libc::_exit(NOT_STARTED);
        }
        if libc::fchdir(files.directory.as_raw_fd()) != 0 {
            libc::_exit(NOT_STARTED);
        }
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        // The Rust runtime ignores this signal, and an ignored signal stays ignored across exec.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        // The file belongs to root while this process is not dumpable. By now no descriptor and no secret of the init
        // is left in it.
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        write_file(OOM_FILE, OOM_SCORE);
        if let Some(digits) = plan.priority.digits() {
            write_file(session::FILE, digits);
        }
        for arguments in &plan.arguments {
            libc::execve(arguments[0], arguments.as_ptr(), plan.environment.as_ptr());
        }
        libc::_exit(NOT_STARTED)
    }
}

/// Writes to a file, if that is possible.
///
/// # Safety
/// As for [`supervise`].
unsafe fn write_file(path: &CStr, text: &[u8]) {
    // SAFETY: the path ends with a zero byte, and the size is that of the text.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, text.as_ptr().cast(), text.len());
        }
    }
}
