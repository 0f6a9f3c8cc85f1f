//! The door of a clone to the server of a public repository. The helper has no network: git asks the door for a tunnel, as it would ask a proxy, and the service connects
//! only to the addresses of this server that it has checked, or asks the operator's proxy for a tunnel to this server. So a hole in git's client leads nowhere else.

use crate::{
    error::Error,
    isolation::launch::Mount,
    session::state::Session,
    tree::source::{Tunnel, TunnelEnd},
    workspace::scratch::Scratch,
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
/// Bytes of a request for a tunnel, and of the head of the proxy's answer. Git and proxies send some hundred. A longer one is refused.
const HEAD_BYTES_MAX: u64 = 16 * 1024;
/// The end of a head.
const END: &[u8] = b"\r\n\r\n";
/// What a client gets when the tunnel leads to its server.
const OPENED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// What a client gets when nothing answers.
const UNREACHABLE: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\n\r\n";
/// Longest wait for a request, for a connection to one address, and for the answer of the proxy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The door. It closes when this is dropped.
#[derive(Debug)]
pub(super) struct ServerDoor {
    directory: Scratch,
    way: Arc<Way>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Way {
    tunnel: Tunnel,
    /// What the service could not reach.
    failure: Mutex<Option<String>>,
}

impl ServerDoor {
    /// Opens the door of a helper that runs as `uid`.
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
        if !head.ok().and_then(Result::ok).is_some_and(|head| self.is_asked(&head)) {
            return drop(client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await);
        }
        let Some(mut server) = self.connect().await else {
            return drop(client.write_all(UNREACHABLE).await);
        };
        let begun = match &self.tunnel.end {
            TunnelEnd::Proxy(_) => self.ask_proxy(&mut server).await,
            TunnelEnd::Server(_) => Ok(OPENED.to_vec()),
        };
        match begun {
            Ok(answer) => {
                if client.write_all(&answer).await.is_ok() {
                    drop(copy_bidirectional(&mut client, &mut server).await);
                }
            }
            Err(refusal) => drop(client.write_all(&refusal).await),
        }
    }

    /// Whether a request is one for a tunnel to the server, and nothing else.
    fn is_asked(&self, head: &[u8]) -> bool {
        let asked = format!("CONNECT {} HTTP/1.1", self.tunnel.target);
        find_end(head) == Some(head.len()) && first_line(head).eq_ignore_ascii_case(asked.as_bytes())
    }

    /// Asks the proxy for the tunnel to the server. Nothing that a client wrote reaches a proxy that has not opened it: it could ask for another tunnel on the same
    /// connection. Returns what the proxy sent, with what may stand behind the head of its answer.
    ///
    /// # Errors
    /// The answer for the client: the proxy opens no tunnel.
    async fn ask_proxy(&self, proxy: &mut TcpStream) -> Result<Vec<u8>, Vec<u8>> {
        let target = &self.tunnel.target;
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let asked = async {
            proxy.write_all(request.as_bytes()).await?;
            read_head(proxy).await
        };
        let answer = timeout(PATIENCE, asked).await.ok().and_then(Result::ok).unwrap_or_default();
        match status(&answer) {
            Some(200..=299) => Ok(answer),
            // Without its body, because the connection ends: git would wait for it, and not tell the status.
            Some(status) => {
                let line = format!("HTTP/1.1 {status} Refused by the proxy\r\n");
                Err([line.as_bytes(), b"Content-Length: 0\r\nConnection: close\r\n\r\n"].concat())
            }
            None => {
                let text = "it does not answer the request for a tunnel as a proxy";
                *lock(&self.failure) = Some(text.to_owned());
                Err(UNREACHABLE.to_vec())
            }
        }
    }

    /// Connects to the first address that answers. An address that does not answer is told only if none does.
    async fn connect(&self) -> Option<TcpStream> {
        let Tunnel { target, end } = &self.tunnel;
        let (name, places) = match end {
            TunnelEnd::Proxy(proxy) => (proxy.to_string(), vec![proxy.to_string()]),
            TunnelEnd::Server(addresses) => {
                (target.clone(), addresses.iter().map(ToString::to_string).collect())
            }
        };
        let mut reason = "it has no address".to_owned();
        for place in places {
            reason = match timeout(PATIENCE, TcpStream::connect(place)).await {
                Ok(Ok(server)) => {
                    *lock(&self.failure) = None;
                    return Some(server);
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it does not answer".to_owned(),
            };
        }
        *lock(&self.failure) = Some(format!("cannot connect to {name}: {reason}"));
        None
    }
}

/// Reads a head to its end, and what came with it.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let (mut head, mut limited) = (Vec::new(), stream.take(HEAD_BYTES_MAX));
    while find_end(&head).is_none() {
        if limited.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// Where the head at the beginning of `bytes` ends.
fn find_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(END.len()).position(|four| four == END).map(|at| at + END.len())
}

fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\r').next().unwrap_or_default()
}

/// The status of an answer over HTTP. `None`: it is none.
fn status(answer: &[u8]) -> Option<u16> {
    let line = String::from_utf8_lossy(first_line(answer));
    let mut words = line.strip_prefix("HTTP/1.")?.split(' ').skip(1);
    let code = words.next().filter(|code| code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit()));
    code?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use chassis::network::proxy_address::ProxyAddress;
    use tokio::{io::duplex, net::TcpListener};

    const TARGET: &str = "Git.acme.dev:443";
    const REQUEST: &str = "CONNECT git.acme.dev:443 HTTP/1.1\r\nHost: git.acme.dev:443\r\n\r\n";

    fn way(end: TunnelEnd) -> Way {
        Way { tunnel: Tunnel { target: TARGET.to_owned(), end }, failure: Mutex::default() }
    }

    /// What the client of a door to `git.acme.dev`, which is a port of this machine, gets for what it sends.
    async fn ask(request: &str) -> String {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way = way(TunnelEnd::Server(vec![server.local_addr().unwrap()]));
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

    /// What happens at a door with a proxy.
    #[derive(Debug, PartialEq, Eq)]
    struct ProxyVisit {
        got: String,
        reached: String,
        failure: Option<String>,
    }

    /// Asks a door whose proxy gives `answer`, and keeps its connection. The client sends `next` after the answer.
    async fn ask_through_proxy(answer: &str, next: &str) -> ProxyVisit {
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = proxy.local_addr().unwrap();
        let end = ProxyAddress { host: address.ip().to_string(), port: address.port() };
        let way = way(TunnelEnd::Proxy(end));
        let (mut client, door) = duplex(1024);
        let served = async {
            let (mut accepted, _) = proxy.accept().await.unwrap();
            let mut reached = read_head(&mut accepted).await.unwrap();
            accepted.write_all(answer.as_bytes()).await.unwrap();
            accepted.read_to_end(&mut reached).await.unwrap();
            String::from_utf8(reached).unwrap()
        };
        let asked = async {
            client.write_all(REQUEST.as_bytes()).await.unwrap();
            let mut got = read_head(&mut client).await.unwrap();
            // An error means that the door has ended the connection.
            drop(client.write_all(next.as_bytes()).await);
            drop(client.shutdown().await);
            client.read_to_end(&mut got).await.unwrap();
            String::from_utf8(got).unwrap()
        };
        let ((), got, reached) = tokio::join!(way.carry(door), asked, served);
        let failure = lock(&way.failure).clone();
        ProxyVisit { got, reached, failure }
    }

    #[tokio::test]
    async fn a_proxy_opens_the_tunnel_of_the_door_and_gets_nothing_else_before() {
        let asked = format!("CONNECT {TARGET} HTTP/1.1\r\nHost: {TARGET}\r\n\r\n");
        for opened in
            ["HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 200 OK\r\nVia: x\r\n\r\nhello"]
        {
            let reached = format!("{asked}next");
            let want = ProxyVisit { got: opened.to_owned(), reached, failure: None };
            assert_eq!(ask_through_proxy(opened, "next").await, want);
        }
        let refused = |status: u16| {
            let line = format!("HTTP/1.1 {status} Refused by the proxy");
            format!("{line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        };
        let unreachable = || "HTTP/1.1 502 Bad Gateway\r\n\r\n".to_owned();
        let no_proxy = Some("it does not answer the request for a tunnel as a proxy");
        for (answer, got, failure) in [
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
                refused(407),
                None,
            ),
            ("HTTP/1.1 100 Continue\r\n\r\n", refused(100), None),
            ("HTTP/1.1 +20 OK\r\n\r\n", unreachable(), no_proxy),
            ("SSH-2.0-server\r\n\r\n", unreachable(), no_proxy),
        ] {
            let failure = failure.map(str::to_owned);
            let visit = ask_through_proxy(answer, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n").await;
            assert_eq!(visit, ProxyVisit { got, reached: asked.clone(), failure }, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_told_only_if_none_does() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (closed, open) = ("127.0.0.1:1".parse().unwrap(), server.local_addr().unwrap());
        for (addresses, is_told) in [(vec![closed, open], false), (vec![closed], true)] {
            let way = way(TunnelEnd::Server(addresses));
            *lock(&way.failure) = Some("an earlier one".to_owned());
            assert_eq!(way.connect().await.is_none(), is_told);
            let failure = lock(&way.failure).clone();
            let is_own = |text: &String| text.starts_with("cannot connect to Git.acme.dev:443: ");
            assert_eq!((failure.is_some(), failure.as_ref().is_some_and(is_own)), (is_told, is_told));
        }
    }

    #[tokio::test]
    async fn a_door_leads_to_its_server_and_nowhere_else() {
        let opened = ask(REQUEST).await;
        assert_eq!(opened, "HTTP/1.1 200 Connection established\r\n\r\nhello");
        for other in [
            "CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n",
            "CONNECT git.acme.dev:22 HTTP/1.1\r\n\r\n",
            "CONNECT git.acme.dev:443.evil.example HTTP/1.1\r\n\r\n",
            "GET http://git.acme.dev:443/ HTTP/1.1\r\n\r\n",
            "CONNECT evil.example:443\nCONNECT git.acme.dev:443 HTTP/1.1\r\n\r\n",
            "CONNECT git.acme.dev:443 HTTP/1.1",
            "CONNECT git.acme.dev:443 HTTP/1.1\r\n\r\nCONNECT evil.example:443 HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(ask(other).await, "HTTP/1.1 403 Forbidden\r\n\r\n", "{other:?}");
        }
    }
}
