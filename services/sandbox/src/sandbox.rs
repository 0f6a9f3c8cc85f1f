//! One running sandbox, seen from the service: requests go in; replies, output and exits come out.

use crate::{
    code::of_failure,
    error::Error,
    isolation::{
        cgroup::{Events, Group},
        launch::{LaunchSpec, Launcher, Mount, Program},
        process::SandboxProcess,
        processes,
        root::{image::Root, namespace::MountNamespace},
        terminals,
    },
};
use bytes::Bytes;
use chassis::{lock, tasks::Tasks};
use domain::{ids::TenantId, session::environment::SandboxOptions};
use prost::Message as _;
use rpc::v1::ErrorCode;
use sandbox_wire::{
    frame,
    v1::{EndAll, Exec, Exit, Hello, Kill, Process, Reply, Request, reply, request},
};
use shares::Permit;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixStream, unix::OwnedWriteHalf},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

/// Longest wait for a starting sandbox to answer; milliseconds. It needs some 10 ms on an idle machine.
const SANDBOX_START_MS: u64 = 10_000;

/// Every message of the gRPC port fits into a frame.
const _: () =
    assert!(frame::FRAME_BYTES_MAX >= rpc::MESSAGE_BYTES_MAX, "a frame holds every message of the port");

/// Requests that wait for the socket; beyond this number callers wait. Each is that of a call, which has its bytes anyway: a loop makes eight calls at the same
/// time, each with 12 MiB at most.
const REQUESTS_WAITING_MAX: usize = 16;
/// Pieces of output that wait for the disk, each with 64 KiB at most: 1 MiB for one command or terminal. Beyond this number the sandbox waits.
const EVENTS_WAITING_MAX: usize = 16;
/// How long an init may take to exit by itself.
const LEAVE: Duration = Duration::from_secs(2);
/// The error text of a bubblewrap that cannot start; bytes. The rest is not read.
const ERROR_TEXT_BYTES_MAX: u64 = 4 * 1024;

#[derive(Debug)]
pub enum Event {
    /// The next bytes of its output.
    Output(Bytes),
    /// Its end; the last event. An exec without an exit was lost with its sandbox.
    Exit(Exit),
}

/// A command that was started.
#[derive(Debug)]
pub struct Command {
    /// In its sandbox.
    pub number: u64,
    /// Of the process that all of its processes descend from, as seen from inside.
    pub pid: u32,
    pub events: mpsc::Receiver<Event>,
}

/// What a sandbox is started with.
#[derive(Debug)]
pub struct SandboxSpec {
    /// The tenant for which it runs.
    pub tenant: TenantId,
    pub uid: u32,
    /// What it sees at `/`.
    pub root: Root,
    /// What it sees in addition to `/`. One of these mounts is /workspace.
    pub mounts: Vec<Mount>,
    /// What its programs may also do.
    pub options: SandboxOptions,
    /// The right to run it, given back when it is gone.
    pub permit: Option<Permit>,
}

#[derive(Debug)]
pub struct Sandbox {
    inner: Arc<Inner>,
    /// The first message of the init.
    pub hello: Hello,
    bounds_terminals: bool,
}

#[derive(Debug)]
struct Inner {
    frames: mpsc::Sender<Vec<u8>>,
    next: AtomicU64,
    replies: Mutex<HashMap<u64, oneshot::Sender<reply::Body>>>,
    execs: Mutex<HashMap<u64, mpsc::Sender<Event>>>,
    /// Its control group, which may be gone.
    group: Option<Arc<Group>>,
    /// Bubblewrap.
    pid: Option<u32>,
    stop: CancellationToken,
    /// What its control group had counted when it was gone.
    last_events: OnceLock<Events>,
    ended: CancellationToken,
}

impl Sandbox {
    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// `sandbox_unavailable` with the error text of bubblewrap; no process is left.
    ///
    /// Dropped midway: the sandbox ends.
    pub async fn start(launcher: &Launcher, tasks: &Tasks, plan: SandboxSpec) -> Result<Self, Error> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(Error::io("make a socket"))?;
        ours.set_nonblocking(true).map_err(Error::io("make a socket"))?;
        let ours = UnixStream::from_std(ours).map_err(Error::io("make a socket"))?;
        let start = LaunchSpec {
            program: Program::Init(theirs.into()),
            tenant: plan.tenant,
            uid: plan.uid,
            root: plan.root,
            mounts: plan.mounts,
            network: crate::isolation::policy::Network::None,
            options: plan.options,
            permit: plan.permit,
        };
        let started = launcher.launch(start).await.map_err(Error::io("start a sandbox"))?;
        let (from, into) = ours.into_split();
        let mut from = BufReader::new(from);
        let hello =
            match tokio::time::timeout(Duration::from_millis(SANDBOX_START_MS), greet(&mut from)).await {
                Ok(Ok(hello)) => hello,
                Ok(Err(_)) | Err(_) => return Err(start_error(started).await),
            };
        let bwrap = started.pid.filter(|_| launcher.facts().can_stage);
        let namespace = bwrap.map(MountNamespace::of).transpose().unwrap_or_else(|error| {
            tracing::debug!(%error, "the mount namespace of a sandbox cannot be held");
            None
        });
        let bounds_terminals = match bwrap.map(terminals::bound) {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::debug!(%error, "the terminals of a sandbox cannot be bounded");
                false
            }
            None => false,
        };
        let (frames, waiting) = mpsc::channel(REQUESTS_WAITING_MAX);
        let inner = Arc::new(Inner {
            frames,
            next: AtomicU64::new(1),
            replies: Mutex::default(),
            execs: Mutex::default(),
            group: started.group.clone(),
            pid: started.pid,
            stop: CancellationToken::new(),
            last_events: OnceLock::new(),
            ended: CancellationToken::new(),
        });
        let task = SandboxTask { inner: Arc::clone(&inner), process: started, namespace };
        tasks.spawn("sandbox", task.run(from, into, waiting));
        Ok(Self { inner, hello, bounds_terminals })
    }

    /// Does one file operation or terminal operation.
    ///
    /// # Errors
    /// The error of the operation, or `sandbox_unavailable` if the sandbox ended during the call.
    pub async fn call(&self, body: request::Body) -> Result<reply::Body, Error> {
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        self.ask(id, body).await
    }

    /// Starts a command.
    ///
    /// # Errors
    /// Those of the start.
    pub async fn exec(&self, exec: Exec) -> Result<Command, Error> {
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        lock(&self.inner.execs).insert(number, sender);
        match self.ask(number, request::Body::Exec(exec)).await {
            Ok(reply::Body::Process(Process { pid })) => Ok(Command { number, pid, events }),
            other => {
                lock(&self.inner.execs).remove(&number);
                let wrong =
                    || Error::refused(ErrorCode::Internal, "the sandbox sent a reply of the wrong kind");
                Err(other.err().unwrap_or_else(wrong))
            }
        }
    }

    /// Asks for the end of a command and its tree: SIGTERM, then SIGKILL. Its exit follows as an event.
    pub async fn kill(&self, id: u64) {
        let request = Request { id, body: Some(request::Body::Kill(Kill {})) };
        // If the sandbox is gone, the command is too.
        drop(self.inner.frames.send(frame::encode(&request)).await);
    }

    /// Asks for the end of all commands and of every other process in it, for the reason `end`. Their exits follow as events.
    pub async fn end_all(&self, end: rpc::v1::ExecEnd) {
        let request = Request { id: 0, body: Some(request::Body::EndAll(EndAll { end: end.into() })) };
        // If the sandbox is gone, its processes are too.
        drop(self.inner.frames.send(frame::encode(&request)).await);
    }

    /// Whether its commands can open only a few terminals.
    pub fn bounds_terminals(&self) -> bool {
        self.bounds_terminals
    }

    /// Gives its processes, as this process numbers them. Reads /proc.
    pub fn processes(&self) -> Vec<i32> {
        if self.is_gone() {
            return Vec::new();
        }
        if let Some(group) = &self.inner.group {
            return group.processes();
        }
        self.inner.pid.map(processes::inside).unwrap_or_default()
    }

    /// Reads the processor time of its programs and of its init so far; µs. `None`: the kernel does not count it for each sandbox.
    pub fn processor_time_us(&self) -> Option<u64> {
        self.inner.group.as_ref()?.processor_time_us()
    }

    /// Ends the sandbox with everything in it and returns when it is gone.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        self.inner.ended.cancelled().await;
    }

    /// Returns when the sandbox is gone, for whatever reason. Cancel-safe.
    pub async fn ended(&self) {
        self.inner.ended.cancelled().await;
    }

    /// Whether it is gone with all of its processes.
    pub fn is_gone(&self) -> bool {
        self.inner.ended.is_cancelled()
    }

    /// Whether it is gone or about to be.
    pub fn is_ended(&self) -> bool {
        self.inner.stop.is_cancelled() || self.inner.ended.is_cancelled()
    }

    /// What its control group counted so far.
    pub fn events(&self) -> Events {
        let now = || self.inner.group.as_deref().map(Group::events).unwrap_or_default();
        self.inner.last_events.get().copied().unwrap_or_else(now)
    }

    /// Dropped midway: the init is told to stop the file operation, and nobody waits for its reply.
    async fn ask(&self, id: u64, body: request::Body) -> Result<reply::Body, Error> {
        let gone = || {
            Error::refused(
                ErrorCode::SandboxUnavailable,
                "the sandbox of the session ended during the call; try again",
            )
        };
        let (reply, answer) = oneshot::channel();
        lock(&self.inner.replies).insert(id, reply);
        let _wait = Wait { inner: &self.inner, id };
        let frame = frame::encode(&Request { id, body: Some(body) });
        if self.is_ended() || self.inner.frames.send(frame).await.is_err() {
            return Err(gone());
        }
        match answer.await.map_err(|_| gone())? {
            reply::Body::Failure(failure) => Err(Error::refused(of_failure(failure.code()), failure.message)),
            body => Ok(body),
        }
    }
}

/// A call that waits for its reply. If it leaves before, the reply has no reader, and the init need not go on.
struct Wait<'a> {
    inner: &'a Inner,
    id: u64,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if lock(&self.inner.replies).remove(&self.id).is_some() {
            let request = Request { id: self.id, body: Some(request::Body::Kill(Kill {})) };
            // While many requests wait for the socket, the operation ends by its own bounds.
            drop(self.inner.frames.try_send(frame::encode(&request)));
        }
    }
}

/// The task that owns a sandbox.
struct SandboxTask {
    inner: Arc<Inner>,
    process: SandboxProcess,
    /// `None`: the last process of the sandbox takes it apart.
    namespace: Option<MountNamespace>,
}

impl SandboxTask {
    async fn run(
        mut self,
        from: impl AsyncRead + Unpin,
        into: OwnedWriteHalf,
        waiting: mpsc::Receiver<Vec<u8>>,
    ) {
        metrics::gauge!("flotilla_sandboxes_live").increment(1.0);
        let inner = Arc::clone(&self.inner);
        tokio::select! {
            () = inner.stop.cancelled() => {}
            result = listen(&inner, from) => {
                if let Err(error) = result {
                    tracing::warn!("a sandbox sent an invalid frame and is ended: {error}");
                }
            }
            () = speak(into, waiting) => {}
            _ = self.process.wait() => {}
        }
        self.inner.stop.cancel();
        // The socket is closed now, so the init exits and the kernel kills all of its descendants. The workspace is
        // free only after bubblewrap has exited.
        if tokio::time::timeout(LEAVE, self.process.wait()).await.is_err() {
            tracing::warn!("a sandbox did not end by itself and is killed");
            self.process.kill();
        }
        let end = self.process.wait().await;
        if let Some(namespace) = self.namespace {
            namespace.leave().await;
        }
        self.inner.last_events.get_or_init(|| end.events);
        // Dropping the senders tells every waiting caller that no reply and no event will come.
        lock(&self.inner.replies).clear();
        lock(&self.inner.execs).clear();
        metrics::gauge!("flotilla_sandboxes_live").decrement(1.0);
        self.inner.ended.cancel();
    }
}

async fn listen(inner: &Inner, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
    while let Some(Reply { id, body }) = read(&mut from).await? {
        match body {
            Some(reply::Body::Output(data)) => {
                if data.len() > frame::OUTPUT_BYTES_MAX {
                    return Err(invalid("a piece of output is too large"));
                }
                let exec = lock(&inner.execs).get(&id).cloned();
                if let Some(exec) = exec {
                    // The recorder task may already have exited. Drop the output in that case.
                    drop(exec.send(Event::Output(data)).await);
                }
            }
            Some(reply::Body::Exit(exit)) => {
                let exec = lock(&inner.execs).remove(&id);
                if let Some(exec) = exec {
                    drop(exec.send(Event::Exit(exit)).await);
                }
            }
            Some(body) => {
                if let Some(reply) = lock(&inner.replies).remove(&id) {
                    drop(reply.send(body));
                }
            }
            None => return Err(invalid("the reply is empty")),
        }
    }
    Ok(())
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

async fn speak(mut into: OwnedWriteHalf, mut waiting: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = waiting.recv().await {
        if into.write_all(&frame).await.is_err() {
            return;
        }
    }
}

async fn greet(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Hello> {
    match read(from).await? {
        Some(Reply { body: Some(reply::Body::Hello(hello)), .. }) => Ok(hello),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Reply>> {
    let mut head = [0; 4];
    match from.read_exact(&mut head).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        other => other?,
    };
    let mut body = vec![0; frame::length(head)?];
    from.read_exact(&mut body).await?;
    let reply =
        Reply::decode(Bytes::from(body)).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    Ok(Some(reply))
}

/// Ends a sandbox that did not start, and returns its error text.
async fn start_error(mut started: SandboxProcess) -> Error {
    started.kill();
    let mut error = String::new();
    if let Some(stderr) = started.stderr.take() {
        let mut limited = stderr.take(ERROR_TEXT_BYTES_MAX);
        drop(tokio::time::timeout(LEAVE, limited.read_to_string(&mut error)).await);
    }
    started.wait().await;
    let error = error.trim();
    let error = if error.is_empty() { "bubblewrap printed no error" } else { error };
    Error::refused(ErrorCode::SandboxUnavailable, format!("the sandbox did not start: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_piece_of_output_that_is_too_large_is_invalid() {
        let inner = Inner {
            frames: mpsc::channel(1).0,
            next: AtomicU64::new(1),
            replies: Mutex::default(),
            execs: Mutex::default(),
            group: None,
            pid: None,
            stop: CancellationToken::new(),
            last_events: OnceLock::new(),
            ended: CancellationToken::new(),
        };
        let output = |bytes: usize| {
            frame::encode(&Reply { id: 1, body: Some(reply::Body::Output(vec![0; bytes].into())) })
        };
        listen(&inner, output(frame::OUTPUT_BYTES_MAX).as_slice()).await.unwrap();
        let error = listen(&inner, output(frame::OUTPUT_BYTES_MAX + 1).as_slice()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
