//! The thread that carries connections of commands from 127.0.0.1:3128 to the door of the session: a socket of the broker, which decides what may
//! be reached. The sandbox has no other way out.

mod lane;

use super::thread;
use lane::Lane;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
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

/// Where commands find the proxy, as the service tells them.
const ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 3128);
/// The directory that the broker fills.
const DIRECTORY: &str = "/run/egress";
/// The door.
const DOOR: &str = "/run/egress/socket";
/// Connections at the same time, as many as the broker serves. Further ones wait in the queue of the listener.
const CONNECTIONS_MAX: usize = 256;
/// Pause before the door is tried again that has as many connections waiting as it can have, and after an error of the listener.
const RETRY_MS: u16 = 20;
/// What a program gets while nobody has opened the door.
const NO_DOOR: &str =
    "nobody has opened the network of this session: its next prompt does, if a broker runs on this machine\n";

/// Starts the thread, if the sandbox has a door.
///
/// # Errors
/// If the address is taken, or there can be no thread.
pub(super) fn spawn() -> io::Result<()> {
    if !Path::new(DIRECTORY).is_dir() {
        return Ok(());
    }
    let listener = TcpListener::bind(ADDRESS)?;
    listener.set_nonblocking(true)?;
    let mut forwarder = Forwarder { listener, waiting: None, connections: Vec::new() };
    thread::spawn("forward", move || {
        loop {
            forwarder.turn();
        }
    })
}

struct Forwarder {
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
    /// Waits until something can be carried, and carries it.
    fn turn(&mut self) {
        let accepts = self.waiting.is_none() && self.connections.len() < CONNECTIONS_MAX;
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
            match open() {
                Ok(door) => self.connections.extend(Connection::new(client, door, None).ok()),
                Err(Errno::EAGAIN) => self.waiting = Some(client),
                Err(_) => {
                    let refused =
                        refusal().and_then(|(door, other)| Connection::new(client, door, Some(other)));
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

/// Connects to the door.
///
/// # Errors
/// `EAGAIN`: too many connections wait there.
fn open() -> nix::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let end = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(end.as_raw_fd(), &UnixAddr::new(DOOR)?)?;
    Ok(UnixStream::from(end))
}

/// A door that only says that there is none, and its other end.
fn refusal() -> io::Result<(UnixStream, UnixStream)> {
    let (door, mut other) = UnixStream::pair()?;
    let head = "HTTP/1.1 503 Service Unavailable\r\nx-flotilla-code: egress_unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n";
    write!(other, "{head}Content-Length: {}\r\nConnection: close\r\n\r\n{NO_DOOR}", NO_DOOR.len())?;
    other.shutdown(Shutdown::Write)?;
    Ok((door, other))
}
