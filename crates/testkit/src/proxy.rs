//! A TCP proxy that misbehaves on command: it simulates the network between two processes. One proxy is one link. A
//! test changes the link's faults while connections run. The proxy knows no protocol.
// Continues in `proxy::connection`, which moves the bytes. `proxy::link` describes what a link can do wrong.

mod connection;
pub mod link;
mod state;

use connection::Connection;
use link::{ConnectionEnd, Rules, Trap};
use state::{Shared, State, reset};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub connections: u64,
    /// Traps that reset a connection.
    pub sprung: u64,
}

/// A link that runs as long as this value lives.
#[derive(Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free loopback port and connects each client to `target`.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state =
            watch::Sender::new(State { rules: Rules::default(), target, cuts: 0, end: ConnectionEnd::Reset });
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
    pub fn cut(&self, end: ConnectionEnd) {
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
        self.cut(ConnectionEnd::Reset);
        self.task.abort();
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

#[cfg(test)]
mod tests;
