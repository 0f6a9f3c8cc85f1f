//! A TCP proxy that misbehaves on command: it simulates the network between two processes. One proxy is one link. A
//! test changes the link's faults while connections run. The proxy knows no protocol.
// Continues in `proxy::connection`, which moves the bytes.

mod connection;

use connection::Connection;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// How the bytes of one direction are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passing {
    /// They arrive.
    #[default]
    All,
    /// They wait, and so does the end of the connection, as if the peer were silent. They arrive later.
    Frozen,
    /// They vanish. A connection that lost bytes is reset when the link recovers.
    Lost,
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// How bytes are treated.
    pub passing: Passing,
    /// The delay of each piece.
    pub delay: Duration,
    /// The maximum additional delay. It differs for each piece and is identical in every run.
    pub jitter: Duration,
}

/// The behaviour of a link. The default is a good link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// From the client to the server.
    pub up: Flow,
    /// From the server to the client.
    pub down: Flow,
    /// New connections are reset at once.
    pub refuses: bool,
}

impl Rules {
    /// Both directions are silent: connections open, but no bytes arrive.
    pub fn half_open() -> Self {
        let frozen = Flow { passing: Passing::Frozen, ..Flow::default() };
        Self { up: frozen, down: frozen, refuses: false }
    }

    /// One direction loses all bytes.
    pub fn one_way(lost: Way) -> Self {
        let lossy = Flow { passing: Passing::Lost, ..Flow::default() };
        match lost {
            Way::Up => Self { up: lossy, ..Self::default() },
            Way::Down => Self { down: lossy, ..Self::default() },
        }
    }

    /// Every piece is delayed, in both directions.
    pub fn slow(delay: Duration, jitter: Duration) -> Self {
        let slow = Flow { delay, jitter, ..Flow::default() };
        Self { up: slow, down: slow, refuses: false }
    }
}

/// How connections end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By RST: both sides get an error.
    Reset,
    /// By FIN: both sides see an end.
    Finish,
}

/// Resets one connection, once, at a moment that a timer could not hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trap {
    /// After this many more bytes of all connections have passed in this direction. The last of them still arrives.
    AfterBytes(Way, u64),
    /// When the answer to a piece with these bytes comes back: the piece arrives, but its sender never gets the answer.
    AnswerTo(Vec<u8>),
}

/// Counters of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Accepted connections.
    pub connections: u64,
    /// Traps that reset a connection.
    pub sprung: u64,
}

/// A link that runs as long as this value lives.
#[derive(Debug)]
pub struct Proxy {
    /// Where to connect to.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    rules: Rules,
    target: SocketAddr,
    /// Each cut increments it. Connections from before the newest cut end by `end`.
    cuts: u64,
    end: End,
}

#[derive(Debug)]
struct Shared {
    state: watch::Sender<State>,
    trap: Mutex<Option<Trap>>,
    connections: AtomicU64,
    sprung: AtomicU64,
}

impl Proxy {
    /// Listens on a free loopback port and connects each client to `target`.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = watch::Sender::new(State { rules: Rules::default(), target, cuts: 0, end: End::Reset });
        let shared = Arc::new(Shared {
            state,
            trap: Mutex::default(),
            connections: AtomicU64::new(0),
            sprung: AtomicU64::new(0),
        });
        let task = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// Changes the link's behaviour, for running connections as well.
    pub fn set(&self, rules: Rules) {
        self.shared.state.send_modify(|state| state.rules = rules);
    }

    /// Ends all connections. New ones are accepted.
    pub fn cut(&self, end: End) {
        self.shared.state.send_modify(|state| {
            state.cuts += 1;
            state.end = end;
        });
    }

    /// Sets a trap and replaces the earlier one.
    pub fn trap(&self, trap: Trap) {
        *self.shared.trap() = Some(trap);
    }

    /// Removes an unused trap.
    pub fn disarm(&self) {
        *self.shared.trap() = None;
    }

    /// Connects new clients to another address.
    pub fn retarget(&self, target: SocketAddr) {
        self.shared.state.send_modify(|state| state.target = target);
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.shared.connections.load(Ordering::Relaxed),
            sprung: self.shared.sprung.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Connections hold the other end of `state` and would otherwise run for ever.
        self.cut(End::Reset);
        self.task.abort();
    }
}

impl Shared {
    fn trap(&self) -> std::sync::MutexGuard<'_, Option<Trap>> {
        self.trap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // A client that left before it was accepted must not stop the proxy.
        let Ok((client, _)) = listener.accept().await else { continue };
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        if shared.state.borrow().rules.refuses {
            reset(&client);
            continue;
        }
        let connection = Connection::new(Arc::clone(&shared), number);
        tokio::spawn(connection.run(client));
    }
}

/// Makes the stream send an RST when it is dropped.
fn reset(stream: &TcpStream) {
    // A closed stream does not need one.
    drop(stream.set_zero_linger());
}

#[cfg(test)]
mod tests;
