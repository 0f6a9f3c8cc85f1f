//! Carries connections of commands to the door of the session: from 127.0.0.1:3128 to the proxy, and from 127.0.0.1:3129 to the door for git. Each is a
//! socket of the broker, which decides what may be reached. The sandbox has no other way out.

mod lane;

use crate::thread;
use lane::Lane;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl::set_pdeathsig,
        signal::Signal,
        socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
    },
};
use std::{
    io::{self, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};
use wire::v1::ErrorCode;

/// The directory that the broker fills.
pub(crate) const DIRECTORY: &str = "/run/egress";
/// What a program gets while the door is closed.
const NO_DOOR: &str =
    "the network of this session is closed: its next prompt opens it, if a broker runs on this machine";

/// One way through the door.
#[derive(Debug, Clone, Copy)]
struct Passage {
    /// Where commands find it, as the service tells them.
    port: u16,
    /// The socket of the broker.
    socket: &'static str,
    /// Connections at the same time, as many as the broker serves. Further ones wait in the queue of the listener.
    connections_max: usize,
    /// The code of the answer while the door is closed.
    code: ErrorCode,
}

/// To the proxy.
const PROXY: Passage = Passage {
    port: 3128,
    socket: "/run/egress/socket",
    connections_max: 256,
    code: ErrorCode::EgressUnavailable,
};
/// To servers of git.
const GIT: Passage =
    Passage { port: 3129, socket: "/run/egress/git", connections_max: 16, code: ErrorCode::GitUnavailable };
/// Pause before the door is tried again that has as many connections waiting as it can have, and after an error of the listener.
const RETRY_MS: u16 = 20;
/// What tells the script of a helper that connections are carried from this moment on.
const READY: &str = "ready";

/// Starts the threads, if the sandbox has a door.
///
/// # Errors
/// If an address is taken, or there can be no thread.
pub(crate) fn spawn() -> io::Result<()> {
    if !Path::new(DIRECTORY).is_dir() {
        return Ok(());
    }
    for (name, passage) in [("forward", PROXY), ("forward git", GIT)] {
        let mut forwarder = Forwarder::new(passage)?;
        thread::spawn(name, move || forwarder.run())?;
    }
    Ok(())
}

/// Carries connections of git while the script of a helper runs, which has no init of its own.
///
/// # Errors
/// If this is no sandbox with a door, or the address is taken.
pub(crate) fn serve_script() -> io::Result<()> {
    // The sandbox ends when its last process does, so this one must not outlive the script.
    set_pdeathsig(Signal::SIGKILL)?;
    if !Path::new(DIRECTORY).is_dir() {
        return Err(io::Error::other("only the scripts of the sandbox service start this program"));
    }
    let mut forwarder = Forwarder::new(GIT)?;
    writeln!(io::stdout(), "{READY}")?;
    forwarder.run()
}

struct Forwarder {
    passage: Passage,
    listener: TcpListener,
    /// A client whose connection to the door must be tried again.
    waiting: Option<TcpStream>,
    connections: Vec<Connection>,
}

/// A client and the door.
struct Connection {
    client: TcpStream,
    door: UnixStream,
    up: Lane,
    down: Lane,
    /// The other end of a door that only refuses. It takes what the client sends: a client whose request is not taken may never read the refusal.
    _refusing: Option<UnixStream>,
}

impl Forwarder {
    fn new(passage: Passage) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, passage.port))?;
        listener.set_nonblocking(true)?;
        Ok(Self { passage, listener, waiting: None, connections: Vec::new() })
    }

    fn run(&mut self) -> ! {
        loop {
            self.turn();
        }
    }

    /// Waits until something can be carried, and carries it.
    fn turn(&mut self) {
        let accepts = self.waiting.is_none() && self.connections.len() < self.passage.connections_max;
        if self.wait(accepts).is_err() {
            std::thread::sleep(Duration::from_millis(RETRY_MS.into()));
        }
        if accepts {
            match self.listener.accept() {
                Ok((client, _)) => self.waiting = Some(client),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => std::thread::sleep(Duration::from_millis(RETRY_MS.into())),
            }
        }
        if let Some(client) = self.waiting.take() {
            match self.passage.open() {
                Ok(door) => self.connections.extend(Connection::new(client, door, None).ok()),
                Err(Errno::EAGAIN) => self.waiting = Some(client),
                Err(_) => {
                    let refused = self
                        .passage
                        .refusal()
                        .and_then(|(door, other)| Connection::new(client, door, Some(other)));
                    self.connections.extend(refused.ok());
                }
            }
        }
        self.connections.retain_mut(Connection::carry);
    }

    fn wait(&self, accepts: bool) -> nix::Result<()> {
        let mut fds = Vec::with_capacity(2 * self.connections.len() + 1);
        if accepts {
            fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        for Connection { client, door, up, down, .. } in &self.connections {
            fds.extend(interest(client.as_fd(), up, down));
            fds.extend(interest(door.as_fd(), down, up));
        }
        let timeout = if self.waiting.is_some() { PollTimeout::from(RETRY_MS) } else { PollTimeout::NONE };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What to wait for at an end that `from` is read from and `to` is written to. An end with nothing to do is left out, because a poll would report at
/// once that its peer has left.
fn interest<'a>(end: BorrowedFd<'a>, from: &Lane, to: &Lane) -> Option<PollFd<'a>> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::POLLIN, from.reads());
    flags.set(PollFlags::POLLOUT, to.writes());
    (!flags.is_empty()).then(|| PollFd::new(end, flags))
}

impl Connection {
    fn new(client: TcpStream, door: UnixStream, refusing: Option<UnixStream>) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        door.set_nonblocking(true)?;
        // Small messages of TLS must not wait for each other.
        client.set_nodelay(true)?;
        Ok(Self { client, door, up: Lane::default(), down: Lane::default(), _refusing: refusing })
    }

    /// Carries what is there. Gives whether the connection goes on.
    fn carry(&mut self) -> bool {
        let Self { client, door, up, down, .. } = self;
        up.carry(&*client, &*door, |door| door.shutdown(Shutdown::Write));
        down.carry(&*door, &*client, |client| client.shutdown(Shutdown::Write));
        !(up.is_over() && down.is_over())
    }
}

impl Passage {
    /// Connects to the door.
    ///
    /// # Errors
    /// `EAGAIN`: too many connections wait there.
    fn open(&self) -> nix::Result<UnixStream> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let end = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(end.as_raw_fd(), &UnixAddr::new(self.socket)?)?;
        Ok(UnixStream::from(end))
    }

    /// A door that only says that there is none, and its other end.
    fn refusal(&self) -> io::Result<(UnixStream, UnixStream)> {
        let (door, mut other) = UnixStream::pair()?;
        let code = self.code.as_str();
        let text = format!("{NO_DOOR} ({code})\n");
        let head = format!(
            "HTTP/1.1 503 Service Unavailable\r\nx-flotilla-code: {code}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        );
        write!(other, "{head}Content-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len())?;
        other.shutdown(Shutdown::Write)?;
        Ok((door, other))
    }
}
