//! A TCP proxy that misbehaves when it is told to: the network between two processes, as a test wants it. One proxy is
//! one link; what it does wrong is changed while connections run. It knows no protocol.
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
    /// From who connected to who listens.
    Up,
    /// Back.
    Down,
}

/// What becomes of the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passing {
    /// They arrive.
    #[default]
    All,
    /// They wait, and so does the end of the connection: a peer that is there and silent. They arrive later.
    Frozen,
    /// They vanish. A connection that lost bytes is reset when the link is well again.
    Lost,
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Whether bytes arrive.
    pub passing: Passing,
    /// How late each piece arrives.
    pub delay: Duration,
    /// Up to how much later still; another amount for each piece, the same in every run.
    pub jitter: Duration,
}

/// How a link behaves. The default is a good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// From who connected to who listens.
    pub up: Flow,
    /// Back.
    pub down: Flow,
    /// New connections are reset at once.
    pub refuses: bool,
}

impl Rules {
    /// Both directions are silent: connections can be made, and nothing comes of them.
    pub fn half_open() -> Self {
        let frozen = Flow { passing: Passing::Frozen, ..Flow::default() };
        Self { up: frozen, down: frozen, refuses: false }
    }

    /// One direction loses everything.
    pub fn one_way(lost: Way) -> Self {
        let lossy = Flow { passing: Passing::Lost, ..Flow::default() };
        match lost {
            Way::Up => Self { up: lossy, ..Self::default() },
            Way::Down => Self { down: lossy, ..Self::default() },
        }
    }

    /// Every piece is late, in both directions.
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

/// Resets one connection, once, at a moment that no timer hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trap {
    /// When so many more bytes of all connections have passed this way; the last of them arrives.
    AfterBytes(Way, u64),
    /// When the answer to a piece with these bytes comes back: the piece arrived, and its sender never learns so.
    AnswerTo(Vec<u8>),
}

/// What a proxy has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Connections that it took.
    pub connections: u64,
    /// Traps that caught one.
    pub sprung: u64,
}

/// A link that runs as long as this value.
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
    /// Connections that are older than the newest of these end by `end`.
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
    /// Listens on a free loopback port and connects each caller to `target`.
    ///
    /// # Errors
    /// When there is no port.
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

    /// Changes how the link behaves, for the connections that run as well.
    pub fn set(&self, rules: Rules) {
        self.shared.state.send_modify(|state| state.rules = rules);
    }

    /// Ends all connections. New ones are taken.
    pub fn cut(&self, end: End) {
        self.shared.state.send_modify(|state| {
            state.cuts += 1;
            state.end = end;
        });
    }

    /// Sets a trap, in place of the one before.
    pub fn trap(&self, trap: Trap) {
        *self.shared.trap() = Some(trap);
    }

    /// Takes an unused trap away.
    pub fn disarm(&self) {
        *self.shared.trap() = None;
    }

    /// Connects new callers to another address.
    pub fn retarget(&self, target: SocketAddr) {
        self.shared.state.send_modify(|state| state.target = target);
    }

    /// Gives what it has done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.shared.connections.load(Ordering::Relaxed),
            sprung: self.shared.sprung.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Connections hold the other end of `state` and would go on for ever.
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
        // A caller that left before it was taken is no reason to stop.
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

/// Makes the drop of a stream an RST.
fn reset(stream: &TcpStream) {
    // A stream that is closed already needs none.
    drop(stream.set_zero_linger());
}

#[cfg(test)]
mod tests;
