//! The door of a clone to the server of a public repository. The helper has no network: git asks the door for a tunnel, as it would ask a proxy, and the service connects
//! only to the addresses of this server that it has checked, or to the operator's proxy. So a hole in git's client leads nowhere else.

use crate::{
    error::Error,
    isolation::launch::Mount,
    session::state::Session,
    workspace::{
        scratch::Scratch,
        source::{Tunnel, TunnelEnd},
    },
};
use chassis::{lock, tasks};
use futures::{StreamExt as _, stream};
use std::{
    fs::{self, File, Permissions},
    io,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpStream, UnixListener},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

/// The directory of the door, as the init of a sandbox knows it, and the socket in it to which the init forwards what git sends.
const INSIDE: &str = "/run/egress";
const SOCKET: &str = "git";
/// Connections of a clone at once; git needs two. Further ones wait.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request for a tunnel; git sends some hundred. A longer one is refused.
const HEAD_BYTES_MAX: u64 = 8 * 1024;
/// Longest wait for a request, and for a connection to one address.
const PATIENCE: Duration = Duration::from_secs(30);

/// The door. It closes when this is dropped.
#[derive(Debug)]
pub(super) struct ServerDoor {
    directory: Scratch,
    way: Arc<Way>,
    _serving: AbortOnDropHandle<()>,
}

/// Where it leads.
#[derive(Debug)]
struct Way {
    tunnel: Tunnel,
    /// What the service could not reach.
    failure: Mutex<Option<String>>,
}

impl ServerDoor {
    /// Opens the door of a helper that runs as `uid`.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn open(session: &Session, uid: u32, tunnel: Tunnel) -> Result<Self, Error> {
        let directory = Scratch::make(session, uid)?;
        let listen = || {
            // The address of a socket has at most 107 bytes, fewer than the path may have.
            let opened = File::open(directory.path())?;
            let place = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()));
            let listener = UnixListener::bind(&place)?;
            fs::set_permissions(&place, Permissions::from_mode(0o666))?;
            Ok(listener)
        };
        let listener = listen().map_err(Error::io("open the door of a clone"))?;
        let way = Arc::new(Way { tunnel, failure: Mutex::default() });
        let clients = stream::unfold(listener, async |listener| {
            let (client, _) = listener.accept().await.ok()?;
            Some((client, listener))
        });
        let own = Arc::clone(&way);
        let serving = clients.for_each_concurrent(CONNECTIONS_MAX, move |client| {
            let way = Arc::clone(&own);
            async move { way.carry(client).await }
        });
        Ok(Self { directory, way, _serving: tasks::spawn_owned("door of a clone", serving) })
    }

    /// The door as the helper sees it.
    pub(super) fn mount(&self) -> Mount {
        Mount::read(self.directory.path(), INSIDE)
    }

    /// What the service could not reach, for people.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.way.failure).clone()
    }
}

impl Way {
    /// Serves one connection. Whatever fails ends it: git says so.
    async fn carry(&self, mut client: impl AsyncRead + AsyncWrite + Unpin) {
        let head = timeout(PATIENCE, read_head(&mut client)).await;
        let Some(head) = head.ok().and_then(Result::ok).filter(|head| self.is_asked(head)) else {
            return drop(client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await);
        };
        let Some(mut server) = self.connect().await else {
            return drop(client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await);
        };
        let begun = match &self.tunnel.end {
            // It answers by itself.
            TunnelEnd::Proxy(_) => server.write_all(&head).await,
            TunnelEnd::Server(_) => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
        };
        if begun.is_ok() {
            drop(copy_bidirectional(&mut client, &mut server).await);
        }
    }

    /// Whether a request is one for a tunnel to the server.
    fn is_asked(&self, head: &[u8]) -> bool {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        line.eq_ignore_ascii_case(format!("CONNECT {} HTTP/1.1", self.tunnel.target).as_bytes())
    }

    /// Connects to the first address that answers.
    async fn connect(&self) -> Option<TcpStream> {
        let Tunnel { target, end } = &self.tunnel;
        let (name, places) = match end {
            TunnelEnd::Proxy(proxy) => (proxy.to_string(), vec![proxy.to_string()]),
            TunnelEnd::Server(addresses) => {
                (target.clone(), addresses.iter().map(ToString::to_string).collect())
            }
        };
        for place in places {
            let reason = match timeout(PATIENCE, TcpStream::connect(place)).await {
                Ok(Ok(server)) => return Some(server),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it does not answer".to_owned(),
            };
            *lock(&self.failure) = Some(format!("cannot connect to {name}: {reason}"));
        }
        None
    }
}

/// Reads a request to the end of its head. A client sends nothing more before the answer.
async fn read_head(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let (mut head, mut limited) = (Vec::new(), client.take(HEAD_BYTES_MAX));
    while !head.ends_with(b"\r\n\r\n") {
        if limited.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]
    use super::*;
    use tokio::{io::duplex, net::TcpListener};

    /// What the client of a door to `git.acme.dev`, which is a port of this machine, gets for what it sends.
    async fn ask(request: &str) -> String {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let end = TunnelEnd::Server(vec![server.local_addr().unwrap()]);
        let tunnel = Tunnel { target: "Git.acme.dev:443".to_owned(), end };
        let way = Way { tunnel, failure: Mutex::default() };
        let (mut client, door) = duplex(1024);
        let served = async {
            let (mut accepted, _) = server.accept().await.unwrap();
            accepted.write_all(b"hello").await.unwrap();
            drop(accepted);
            std::future::pending().await
        };
        let asked = async {
            client.write_all(request.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let mut got = String::new();
            client.read_to_string(&mut got).await.unwrap();
            got
        };
        tokio::select! {
            ((), got) = async { tokio::join!(way.carry(door), asked) } => got,
            never = served => never,
        }
    }

    #[tokio::test]
    async fn a_door_leads_to_its_server_and_nowhere_else() {
        let opened = ask("CONNECT git.acme.dev:443 HTTP/1.1\r\nHost: git.acme.dev:443\r\n\r\n").await;
        assert_eq!(opened, "HTTP/1.1 200 Connection established\r\n\r\nhello");
        for other in [
            "CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n",
            "CONNECT git.acme.dev:22 HTTP/1.1\r\n\r\n",
            "CONNECT git.acme.dev:443.evil.example HTTP/1.1\r\n\r\n",
            "GET http://git.acme.dev:443/ HTTP/1.1\r\n\r\n",
            "CONNECT evil.example:443\nCONNECT git.acme.dev:443 HTTP/1.1\r\n\r\n",
            "CONNECT git.acme.dev:443 HTTP/1.1",
        ] {
            assert_eq!(ask(other).await, "HTTP/1.1 403 Forbidden\r\n\r\n", "{other:?}");
        }
    }
}
