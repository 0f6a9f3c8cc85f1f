//! The thread that moves output to the service, reaps processes, and ends commands: at their timeout, on request, or at
//! a limit.

mod job;
mod pace;
mod wait;

pub(super) use job::Job;

use super::{
    service::{Failure, Service},
    thread, tree,
};
use job::Phase;
use nix::{
    poll::{PollFd, PollFlags, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
};
use sandbox_wire::{
    frame,
    v1::{Ack, FailureCode, Process, reply, request},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::Instant,
};
use wire::v1::ExecEnd;

/// Pipes of ended commands that background processes still write to. Beyond it the oldest is closed.
const BACKGROUND_PIPES_MAX: usize = 64;

/// What the processes use together beyond their limit.
#[derive(Debug)]
pub(super) struct MemoryUse {
    /// What each of them uses; bytes.
    pub(super) by_process: BTreeMap<i32, u64>,
    /// How much less must be used; bytes.
    pub(super) excess_bytes: u64,
}

/// A message from another thread to the pump.
#[derive(Debug)]
pub(super) enum Message {
    Watch(Box<Job>),
    /// End this command, for `KillExec`.
    Kill(u64),
    /// Type into the terminal of a command or resize it.
    Terminal(TerminalRequest),
    /// End all commands for this reason.
    EndAll(ExecEnd),
    /// End the command that uses most memory.
    EndLargest(MemoryUse),
}

/// A request for the terminal of a command.
#[derive(Debug)]
pub(super) struct TerminalRequest {
    pub(super) id: u64,
    /// The number of the command.
    pub(super) exec: u64,
    pub(super) body: request::Body,
}

/// A handle of the pump. Clones reach the same thread.
#[derive(Debug, Clone)]
pub(super) struct Pump {
    messages: mpsc::Sender<Message>,
    wake: Arc<UnixStream>,
    forking: Forking,
}

/// Held from the fork of a supervisor until its message is in the inbox, and while the pump reaps. Otherwise the pump
/// could reap a supervisor that dies at once before it knows the command.
type Forking = Arc<Mutex<()>>;

impl Pump {
    /// Watches the command that `start` starts, and reports to the service that it runs.
    pub(super) fn watch<E>(&self, start: impl FnOnce() -> Result<Job, E>) -> Result<(), E> {
        let _forking = lock(&self.forking);
        self.tell(Message::Watch(Box::new(start()?)));
        Ok(())
    }

    /// Ends a command with its tree.
    pub(super) fn kill(&self, id: u64) {
        self.tell(Message::Kill(id));
    }

    /// Types into the terminal of a command or resizes it, and replies to the service.
    pub(super) fn terminal(&self, request: TerminalRequest) {
        self.tell(Message::Terminal(request));
    }

    /// Ends all commands for the same reason.
    pub(super) fn end_all(&self, end: ExecEnd) {
        self.tell(Message::EndAll(end));
    }

    /// Ends the command whose processes use most memory.
    pub(super) fn end_largest(&self, used: MemoryUse) {
        self.tell(Message::EndLargest(used));
    }

    fn tell(&self, message: Message) {
        // The pump lives as long as the process. A full wake pipe means that the pump is about to wake.
        drop(self.messages.send(message));
        drop((&*self.wake).write(&[0]));
    }
}

pub(super) fn spawn(service: Service, children: &SigSet) -> io::Result<Pump> {
    let (messages, inbox) = mpsc::channel();
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let signals = SignalFd::with_flags(children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let forking = Forking::default();
    let mut state = State { service, inbox, woken, signals, forking: Arc::clone(&forking), jobs: Vec::new() };
    thread::spawn("pump", move || state.run())?;
    Ok(Pump { messages, wake: Arc::new(wake), forking })
}

struct State {
    service: Service,
    inbox: mpsc::Receiver<Message>,
    woken: UnixStream,
    signals: SignalFd,
    forking: Forking,
    jobs: Vec<Job>,
}

fn lock(forking: &Forking) -> MutexGuard<'_, ()> {
    forking.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn run(&mut self) {
        let mut buffer = vec![0; frame::OUTPUT_BYTES_MAX];
        loop {
            let now = Instant::now();
            let wake_at =
                self.jobs.iter_mut().map(|job| job.keep_time(now)).min().unwrap_or(now + wait::IDLE);
            self.wait(wake_at);
            let now = Instant::now();
            for job in &mut self.jobs {
                job.read_status(now);
                job.read_output(&mut buffer, &self.service, now);
                if let Some((keys, terminal)) = job.keys.as_mut().zip(job.output.as_ref()) {
                    keys.send(terminal);
                }
            }
            self.take_messages_and_reap();
            self.finish(&mut buffer);
        }
    }

    fn wait(&mut self, until: Instant) {
        let now = Instant::now();
        let read = PollFlags::POLLIN;
        let mut fds = vec![PollFd::new(self.woken.as_fd(), read), PollFd::new(self.signals.as_fd(), read)];
        fds.extend(self.jobs.iter().flat_map(|job| job.poll_fds(now)));
        let timeout = wait::timeout(until.saturating_duration_since(now));
        // If the wait is interrupted, the pump only checks early.
        poll(&mut fds, timeout).ok();
        drop((&self.woken).read(&mut [0; 64]));
        while let Ok(Some(_)) = self.signals.read_signal() {}
    }

    fn take_messages_and_reap(&mut self) {
        let forking = Arc::clone(&self.forking);
        let _forking = lock(&forking);
        self.take_messages();
        let mut lost = false;
        while let Some(status) = self.reap() {
            lost |= matches!(status, WaitStatus::Signaled(..));
        }
        if lost {
            self.end_orphans();
        }
    }

    fn take_messages(&mut self) {
        let now = Instant::now();
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Watch(job) => {
                    let pid = job.supervisor.unsigned_abs();
                    self.service.send(job.id, reply::Body::Process(Process { pid }));
                    self.jobs.push(*job);
                }
                Message::Kill(id) => {
                    let job = self.jobs.iter_mut().find(|job| job.id == id);
                    job.into_iter().for_each(|job| job.terminate(ExecEnd::Killed, now));
                }
                Message::Terminal(TerminalRequest { id, exec, body }) => match self.at_terminal(exec, body) {
                    Ok(()) => self.service.send(id, reply::Body::Ack(Ack {})),
                    Err(failure) => self.service.fail(id, failure),
                },
                Message::EndAll(end) => self.end_all(end, now),
                Message::EndLargest(used) => self.end_largest(&used, now),
            }
        }
    }

    fn end_all(&mut self, end: ExecEnd, now: Instant) {
        self.jobs.iter_mut().for_each(|job| job.kill(end, now));
        tree::end_all();
    }

    fn at_terminal(&mut self, exec: u64, body: request::Body) -> Result<(), Failure> {
        let job = self.jobs.iter_mut().find(|job| job.id == exec && job.phase != Phase::Background);
        let parts = job.and_then(|job| job.keys.as_mut().zip(job.output.as_ref()));
        let gone = || Failure::new(FailureCode::TerminalUnknown, "the program at the terminal has ended");
        let (keys, terminal) = parts.ok_or_else(gone)?;
        keys.take(terminal, body)
    }

    /// Reaps one dead child and returns how it ended. A supervisor's end is recorded; all others are orphans.
    fn reap(&mut self) -> Option<WaitStatus> {
        let status = waitpid(None, Some(WaitPidFlag::WNOHANG)).ok()?;
        let pid = status.pid()?;
        let gone = |job: &&mut Job| job.supervisor == pid.as_raw() && job.supervisor_end.is_none();
        if let Some(job) = self.jobs.iter_mut().find(gone) {
            job.note_end(status);
        }
        Some(status)
    }

    /// Ends the processes whose supervisor was killed; they belong to no command any more.
    fn end_orphans(&self) {
        let living = self.jobs.iter().filter(|job| job.supervisor_end.is_none());
        let supervisors: BTreeSet<i32> = living.map(|job| job.supervisor).collect();
        for orphan in tree::Processes::read().orphans(&supervisors) {
            tree::end(orphan);
            tree::signal(orphan, Signal::SIGKILL);
        }
    }

    fn end_largest(&mut self, used: &MemoryUse, now: Instant) {
        let processes = tree::Processes::read();
        let living: BTreeSet<i32> = processes.all().collect();
        let ended = used.by_process.iter().filter(|(pid, _)| !living.contains(pid));
        // The command that was ended after the last measurement may have taken until now.
        if ended.map(|(_, bytes)| bytes).sum::<u64>() >= used.excess_bytes {
            return;
        }
        let bytes = |job: &Job| {
            let tree = processes.below(job.supervisor);
            tree.iter().filter_map(|pid| used.by_process.get(pid)).sum::<u64>()
        };
        if let Some(job) = self.jobs.iter_mut().max_by_key(|job| bytes(job)) {
            job.kill(ExecEnd::MemoryLimit, now);
            // A background process has no command left that could end, so end its tree here.
            tree::end(job.supervisor);
        }
    }

    fn finish(&mut self, buffer: &mut [u8]) {
        let now = Instant::now();
        for job in &mut self.jobs {
            if job.is_over(now) {
                self.service.send(job.id, reply::Body::Exit(job.exit()));
                job.phase = Phase::Background;
                job.read_output(buffer, &self.service, now);
            }
        }
        self.jobs.retain(|job| {
            job.phase != Phase::Background || job.supervisor_end.is_none() || job.output.is_some()
        });
        let pipes =
            self.jobs.iter().filter(|job| job.phase == Phase::Background && job.output.is_some()).count();
        let excess = pipes.saturating_sub(BACKGROUND_PIPES_MAX);
        let background =
            self.jobs.iter_mut().filter(|job| job.phase == Phase::Background && job.output.is_some());
        background.take(excess).for_each(|job| job.output = None);
    }
}
