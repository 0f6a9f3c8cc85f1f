//! A command and its tree: its output, its time, and its end.

use super::{pace::Pace, wait};
use crate::{service::Service, terminal::Keys, tree};
use domain::limits;
use nix::{
    poll::{PollFd, PollFlags},
    sys::{signal::Signal, wait::WaitStatus},
};
use sandbox_wire::v1::{Exit, reply};
use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};
use wire::v1::ExecEnd;

/// How long output is awaited after the command itself has ended while a background process holds its pipe open;
/// milliseconds.
const EXEC_DRAIN_MS: u64 = 100;
const GRACE: Duration = Duration::from_millis(limits::EXEC_KILL_GRACE_MS);
const DRAIN: Duration = Duration::from_millis(EXEC_DRAIN_MS);
/// The interval at which the pump checks whether a tree that is being ended is gone.
const ENDING_POLL: Duration = Duration::from_millis(20);
/// If a tree still forks faster than it can be killed this long after the first SIGKILL, everything in the sandbox is
/// killed.
const LAST_RESORT: Duration = Duration::from_secs(3);
/// If a tree is still there this long after SIGKILL, its processes wait inside the kernel, for example for a disk. The
/// command counts as ended; its processes end when the kernel lets go of them.
const GIVE_UP: Duration = Duration::from_secs(5);

/// The phase of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// The init sent SIGTERM or SIGHUP and kills it at this time.
    Terminating(Instant),
    Killed(Instant),
    /// Its exit was reported; one of its processes still lives or holds its pipe.
    Background,
}

/// A command and its tree.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) id: u64,
    pub(super) supervisor: i32,
    /// How the supervisor ended, once it has: the whole tree is gone then.
    pub(super) supervisor_end: Option<WaitStatus>,
    pub(super) output: Option<File>,
    /// Keys that the command has not read yet, if the output is a terminal.
    pub(super) keys: Option<Keys>,
    /// Counts for a terminal only: a pipe has bounds of its own.
    pace: Pace,
    status: Option<File>,
    main_status: Option<i32>,
    bytes_max: u64,
    kept_bytes: u64,
    dropped_bytes: u64,
    deadline: Instant,
    /// Output is read until this time after the command or its whole tree has ended.
    drain_until: Option<Instant>,
    pub(super) phase: Phase,
    end: ExecEnd,
}

impl Job {
    /// A command that has just been started; `pipes` are its output and its status.
    pub(crate) fn new(
        id: u64,
        supervisor: i32,
        pipes: [OwnedFd; 2],
        bytes_max: u64,
        deadline: Instant,
    ) -> Self {
        let [output, status] = pipes.map(File::from);
        Self {
            id,
            supervisor,
            supervisor_end: None,
            output: Some(output),
            keys: None,
            pace: Pace::default(),
            status: Some(status),
            main_status: None,
            bytes_max,
            kept_bytes: 0,
            dropped_bytes: 0,
            deadline,
            drain_until: None,
            phase: Phase::Running,
            end: ExecEnd::Exited,
        }
    }

    /// The same, with a terminal as its output.
    pub(crate) fn at_terminal(self) -> Self {
        Self { keys: Some(Keys::default()), ..self }
    }

    pub(super) fn terminate(&mut self, end: ExecEnd, now: Instant) {
        if self.phase == Phase::Running {
            self.end = end;
            self.phase = Phase::Terminating(now + GRACE);
            // A shell at a terminal ignores SIGTERM.
            let signal = if self.keys.is_some() { Signal::SIGHUP } else { Signal::SIGTERM };
            tree::signal_all(self.supervisor, signal);
        }
    }

    pub(super) fn kill(&mut self, end: ExecEnd, now: Instant) {
        match self.phase {
            Phase::Running => self.end = end,
            Phase::Terminating(_) => {}
            Phase::Killed(_) | Phase::Background => return,
        }
        self.phase = Phase::Killed(now);
        tree::end(self.supervisor);
    }

    /// Does what is due, and returns when to check again.
    pub(super) fn keep_time(&mut self, now: Instant) -> Instant {
        match self.phase {
            Phase::Running if self.has_ended() => self.drain_until.unwrap_or(now),
            Phase::Running => {
                if now >= self.deadline {
                    self.terminate(ExecEnd::Timeout, now);
                }
                self.resumes_at(now).map_or(self.deadline, |at| at.min(self.deadline))
            }
            Phase::Terminating(kill_at) => {
                if now >= kill_at {
                    self.kill(self.end, now);
                }
                now + ENDING_POLL
            }
            Phase::Killed(at) => {
                // Kill processes that were forked between two reads of /proc.
                if self.supervisor_end.is_none()
                    && tree::end(self.supervisor) == tree::Outcome::Outrun
                    && now >= at + LAST_RESORT
                {
                    tree::end_all();
                }
                now + ENDING_POLL
            }
            Phase::Background => now + wait::IDLE,
        }
    }

    /// The time before which its output is not read; `None`: it may be read now.
    fn resumes_at(&self, now: Instant) -> Option<Instant> {
        let is_paced = self.keys.is_some() && self.phase == Phase::Running && !self.has_ended();
        is_paced.then(|| self.pace.resumes_at(now)).flatten()
    }

    /// The files for which the pump waits.
    pub(super) fn poll_fds(&self, now: Instant) -> impl Iterator<Item = PollFd<'_>> {
        let (read, both) = (PollFlags::POLLIN, PollFlags::POLLIN | PollFlags::POLLOUT);
        let flags = if self.keys.as_ref().is_some_and(Keys::is_waiting) { both } else { read };
        let output = self.output.as_ref().filter(|_| self.resumes_at(now).is_none());
        let output = output.map(|file| PollFd::new(file.as_fd(), flags));
        output.into_iter().chain(self.status.as_ref().map(|file| PollFd::new(file.as_fd(), read)))
    }

    /// Whether the command itself has ended.
    fn has_ended(&self) -> bool {
        self.main_status.is_some() || self.supervisor_end.is_some()
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        // A process of another command may hold the pipe open, so its end is not awaited for ever.
        let is_drained = self.output.is_none() || self.drain_until.is_some_and(|until| now >= until);
        match self.phase {
            Phase::Background => false,
            Phase::Running => self.has_ended() && is_drained,
            // Only after the last process is gone is the output complete.
            Phase::Terminating(_) => self.supervisor_end.is_some() && is_drained,
            Phase::Killed(at) => (self.supervisor_end.is_some() && is_drained) || now >= at + GIVE_UP,
        }
    }

    pub(super) fn exit(&self) -> Exit {
        let (mut code, mut signal, mut end) = (0, 0, self.end);
        match self.main_status {
            Some(status) if libc::WIFEXITED(status) => code = libc::WEXITSTATUS(status),
            Some(status) => signal = libc::WTERMSIG(status),
            // The supervisor could not fork the command.
            None if matches!(self.supervisor_end, Some(WaitStatus::Exited(_, 1))) => {
                end = ExecEnd::ProcessLimit
            }
            None => signal = libc::SIGKILL,
        }
        Exit { end: end.into(), code, signal, kept_bytes: self.kept_bytes, dropped_bytes: self.dropped_bytes }
    }

    /// Reads the available output once. Output beyond the limit, and of background processes, is read and dropped: a
    /// process whose pipe is full would stop.
    pub(super) fn read_output(&mut self, buffer: &mut [u8], service: &Service, now: Instant) {
        if self.resumes_at(now).is_some() {
            return;
        }
        let Some(output) = &mut self.output else { return };
        match output.read(buffer) {
            Ok(0) => self.output = None,
            Ok(_) if self.phase == Phase::Background => {}
            Ok(bytes) => {
                self.pace.note(bytes, now);
                let room = usize::try_from(self.bytes_max - self.kept_bytes).unwrap_or(usize::MAX);
                let length = bytes.min(room);
                self.kept_bytes += length as u64;
                self.dropped_bytes += (bytes - length) as u64;
                if length > 0 {
                    service.send(self.id, reply::Body::Output(buffer[..length].to_vec().into()));
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.output = None,
        }
    }

    /// Notes how the supervisor ended.
    pub(super) fn note_end(&mut self, status: WaitStatus) {
        self.supervisor_end = Some(status);
        let now = Instant::now();
        // It may have written its status after the last read.
        self.read_status(now);
        self.drain_until = Some(now + DRAIN);
    }

    pub(super) fn read_status(&mut self, now: Instant) {
        let Some(status) = &mut self.status else { return };
        let mut bytes = [0; 4];
        match status.read(&mut bytes) {
            // A write of four bytes to a pipe is never torn.
            Ok(4) => self.main_status = Some(i32::from_ne_bytes(bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return;
            }
            Ok(_) | Err(_) => {}
        }
        self.status = None;
        self.drain_until = Some(now + DRAIN);
    }
}
